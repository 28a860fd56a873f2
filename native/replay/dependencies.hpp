// Who waits for whom, from the order in which the host issued things.
#pragma once

#include <vector>

#include "timeline.hpp"

namespace busfare::replay {

// A node is a call (its row) or an operation (number of calls + its row). An edge says that `to` waits for
// the end of `from`. Edges run from what was issued earlier to what was issued later, so there is no circle.
struct Edge {
    Index from, to;
};

struct Dependencies {
    std::vector<Index> call_before, call_behind;            // on the same thread
    std::vector<Index> operation_before, operation_behind;  // in the same stream
    std::vector<Index> first_operation;                     // calls + 1 places: the operations of each call
    std::vector<Edge> edges;                                // all others
    // Edges by `from`: edge_first[node] is the first, edge_next[edge] the next, kNone the last.
    std::vector<Index> edge_first, edge_next;
};

// Throws std::invalid_argument naming the column and row that is out of range or against the order.
Dependencies dependencies(const Timeline& timeline);

}  // namespace busfare::replay
