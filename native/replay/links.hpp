// Copies that share links: each gets its max-min fair part of every link on its way.
#pragma once

#include <vector>

#include "timeline.hpp"

namespace busfare::replay {

// A copy under way. `left` is the time it still needs alone; `pace` what part of its own rate it has now.
struct Flow {
    Index operation = kNone;
    double left = 0, pace = 1;
    Time since = 0;
    std::uint32_t version = 0;
};

// Sets the pace of every flow: rates grow together until a link is full or a flow has all that it can use. A
// link whose opposite is in use carries `both` of its rate. Flows without links keep pace 1.
void share(std::vector<Flow>& flows, const Operations& operations, const Links& links);

// How long each operation would have taken alone, from when it was recorded and who ran beside it, in
// nanoseconds.
std::vector<Time> alone(const Timeline& timeline, std::span<const Time> start, std::span<const Time> end);

}  // namespace busfare::replay
