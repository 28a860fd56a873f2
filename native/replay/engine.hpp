// An engine of a GPU: its slots, who waits for some, and the one operation that has fewer than it takes.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <queue>
#include <stdexcept>
#include <utility>
#include <vector>

#include "check.hpp"
#include "timeline.hpp"

namespace busfare::replay {

using Queued = std::pair<Time, Index>;

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
    Index free = 1, slots = 1;  // below zero: one that was late is there beside others
    Time entered_at = kNever;   // when the last one was let in
    Index entered = kNone;
    Time left_at = 0;
    Index left_by = kNone;
    Squeezed squeezed = {};  // while there is one, no slot is free
    Time squeezings = 0;     // how often what it has changed
    std::priority_queue<Queued, std::vector<Queued>, std::greater<>> queue = {};
    std::array<std::pair<Time, Time>, 8> left = {};  // the last that left: from when to when they were there
    std::size_t leaves = 0;

    void leave(Time from, Time to) { left[leaves++ % left.size()] = {from, to}; }

    // When those that were there before `time` had left, as far as that is remembered.
    Time free_for(Time time) const {
        Time until = kNever;
        for (std::size_t n = 0; n < std::min(leaves, left.size()); ++n)
            if (left[n].first <= time) until = std::max(until, left[n].second);
        return until;
    }
};

}  // namespace busfare::replay
