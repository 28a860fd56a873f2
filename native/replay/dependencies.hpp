// Who waits for whom, from the order in which the host issued things.
#pragma once

#include <vector>

#include "timeline.hpp"

namespace busfare::replay {

// A node is a call (its row) or an operation (number of calls + its row). An edge says that `to` waits for
// the end of `from`. Edges run from what was issued earlier to what was issued later, so there is no circle.
struct Edge {
    Index from, to;
    std::uint8_t order = 0;  // of Unordered: the order between operations that it stands for
};

struct Dependencies {
    std::vector<Index> call_behind;       // the next on the same thread
    std::vector<Index> operation_behind;  // the next in the same stream, where it keeps the stream's order
    std::vector<Index> first_operation;   // calls + 1 places: the operations of each call
    std::vector<Edge> edges;              // all others
    // Edges by `from`: edge_first[node] is the first, edge_next[edge] the next, kNone the last.
    std::vector<Index> edge_first, edge_next;
    // How much has to happen: before a call starts, before it returns (its own time is one), before an
    // operation can start. Roots wait for nothing.
    std::vector<std::uint8_t> start_waits;
    std::vector<Index> return_waits, operation_waits;
    std::vector<Index> roots;
};

// Throws std::invalid_argument naming the column and row that is out of range or against the order.
Dependencies dependencies(const Timeline& timeline);

}  // namespace busfare::replay
