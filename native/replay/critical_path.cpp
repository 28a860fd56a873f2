#include "critical_path.hpp"

#include <algorithm>

namespace busfare::replay {
namespace {

class Walk {
  public:
    Walk(const Timeline& timeline, const Played& played)
        : t_(timeline), p_(played), calls_(static_cast<Index>(timeline.calls.size())) {}

    Path back_from_the_end() {
        Index node = last();
        while (node != kNone) node = node < calls_ ? through_call(node) : through_operation(node - calls_);
        std::ranges::reverse(path_.step);
        std::ranges::reverse(path_.row);
        for (auto* times : {&path_.start, &path_.end}) std::ranges::reverse(*times);
        return std::move(path_);
    }

  private:
    Index last() const {
        for (Index c = 0; c < calls_; ++c)
            if (p_.call_end[c] == p_.makespan) return c;
        for (std::size_t o = 0; o < t_.operations.size(); ++o)
            if (p_.operation_end[o] == p_.makespan) return calls_ + static_cast<Index>(o);
        return kNone;
    }

    // Steps end where the step behind them starts, and none starts before the run, so that lags below zero
    // leave neither hole nor overlap.
    void step(Step what, Index row, Time start) {
        const Time end = path_.start.empty() ? p_.makespan : path_.start.back();
        path_.step.push_back(static_cast<std::uint8_t>(what));
        path_.row.push_back(row);
        path_.start.push_back(std::clamp(start, Time{0}, end));
        path_.end.push_back(end);
    }

    // Each gives the node whose end comes before, having walked to it.
    Index through_call(Index call) {
        if (const Index by = p_.return_bound_by[call]; by != kNone) {
            step(Step::wake_up, call, p_.operation_end[by - calls_]);
            return by;
        }
        if (const Index last = joined_by(call); last != kNone) {
            step(Step::call, call, start_of(last));
            return before_start(last);
        }
        step(Step::call, call, p_.call_start[call]);
        return before_call(call);
    }

    Index before_call(Index call) {
        const Index by = p_.start_bound_by[call];
        step(Step::host_gap, call, by == kNone ? 0 : p_.call_end[by]);
        return by;
    }

    Index through_operation(Index operation) {
        if (const Index last = joined_by(calls_ + operation); last != kNone) {
            step(Step::operation, operation, start_of(last));
            return before_start(last);
        }
        step(Step::operation, operation, p_.operation_start[operation]);
        return before_operation(operation);
    }

    // The last to arrive in the joint that the node awaited, if it came after the node itself.
    Index joined_by(Index node) const { return p_.joined_by.empty() ? kNone : p_.joined_by[node]; }
    Time start_of(Index node) const {
        return node < calls_ ? p_.call_start[node] : p_.operation_start[node - calls_];
    }
    Index before_start(Index node) {
        return node < calls_ ? before_call(node) : before_operation(node - calls_);
    }

    Index before_operation(Index operation) {
        const Index by = p_.operation_bound_by[operation];
        if (by == kNone) {
            step(Step::unexplained, operation, 0);  // it was there from the start, or released
            return kNone;
        }
        // Nothing is left unexplained where another on the engine decided.
        const Time possible = by < calls_
                                  ? p_.call_start[by] + t_.operations.launch_lag[operation]
                                  : p_.operation_end[by - calls_] + t_.operations.order_lag[operation];
        step(Step::unexplained, operation, possible);
        if (by >= calls_) {
            step(Step::queue, operation, p_.operation_end[by - calls_]);
            return by;
        }
        step(Step::launch, operation, p_.call_start[by]);
        return before_call(by);
    }

    const Timeline& t_;
    const Played& p_;
    const Index calls_;
    Path path_;
};

}  // namespace

Path critical_path(const Timeline& timeline, const Played& played) {
    return Walk(timeline, played).back_from_the_end();
}

}  // namespace busfare::replay
