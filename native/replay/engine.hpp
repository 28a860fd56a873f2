// An engine of a GPU: its slots, who waits for some, and the one operation that has fewer than it takes.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <queue>
#include <stdexcept>
#include <utility>
#include <vector>

#include "check.hpp"
#include "timeline.hpp"

namespace busfare::replay {

using Turn = std::pair<Time, Index>;

// The one operation that has fewer slots of its engine than it takes.
struct Squeezed {
    Index operation = kNone;
    Index has = 0, takes = 0;
    double left = 0;  // of its duration, at full pace
    Time since = 0;   // when that was so

    // When it ends if it gets no more. Its whole work may be longer than times can be: then throws
    // std::invalid_argument.
    Time ends() const {
        const double needs = left * takes / has;
        if (!(static_cast<double>(since) + needs < static_cast<double>(kLongest)))
            throw std::invalid_argument("replay: column operation_takes: a kernel would take decades");
        return since + std::llround(needs);
    }

    // Takes what it still lacks out of `free`, and says whether it has all now: then `left` is its time.
    bool takes_more(Index& free, Time now) {
        if (now > since) {
            left = std::max(0.0, left - static_cast<double>(now - since) * has / takes);
            since = now;
        }
        const Index more = std::min(free, takes - has);
        has += more;
        free -= more;
        return has == takes;
    }
};

struct Engine {
    Index free = 1, slots = 1;
    Time left_at = 0;
    Index left_by = kNone;
    Squeezed squeezed = {};  // while there is one, no slot is free
    Time squeezings = 0;     // how often what it has changed
    std::priority_queue<Turn, std::vector<Turn>, std::greater<>> queue = {};
};

}  // namespace busfare::replay
