#include "explain.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <stdexcept>

namespace busfare::replay {
namespace {

constexpr Time kNever = std::numeric_limits<Time>::min();
// Time stamps of host and GPU agree to about this; more is a contradiction.
constexpr Time kTolerance = 5000;
// What counts as usual at most: a first launch may load a module, an order may hide a wait that nobody
// recorded.
constexpr Time kMostLaunch = 1000000, kMostOrder = 10000;
// An engine that stands still for longer between two operations was free.
constexpr Time kTurnRound = 20000;
// Where a trace shows no case of its own.
constexpr Time kUsualLaunch = 5000, kUsualOrder = 1000, kUsualCall = 2000;

Time median(std::vector<Time>& values, Time otherwise) {
    if (values.empty()) return otherwise;
    auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

class Explainer {
  public:
    Explainer(const Timeline& timeline, const Recorded& recorded)
        : t_(timeline),
          r_(recorded),
          d_(dependencies(timeline)),
          calls_(static_cast<Index>(timeline.calls.size())) {
        const std::size_t calls = t_.calls.size(), operations = t_.operations.size();
        for (const std::size_t length : {r_.call_start.size(), r_.call_end.size(), r_.call_class.size()})
            if (length != calls)
                throw std::invalid_argument("replay: recorded calls and calls differ in number");
        for (const std::size_t length :
             {r_.operation_start.size(), r_.operation_end.size(), r_.operation_class.size()})
            if (length != operations)
                throw std::invalid_argument("replay: recorded operations and operations differ in number");
    }

    Explained run() {
        drop_broken_orders();
        engine_free();
        typical_lags();
        split_operations();
        split_calls();
        return std::move(x_);
    }

  private:
    bool is_call(Index node) const { return node < calls_; }

    // An operation that began before what it should wait for had ended does not wait for it.
    void drop_broken_orders() {
        const std::size_t operations = t_.operations.size();
        x_.unordered.assign(operations, 0);
        before_.assign(operations, kNever);
        for (std::size_t o = 0; o < operations; ++o) {
            const Index before = d_.operation_before[o];
            if (before == kNone) continue;
            if (r_.operation_start[o] < r_.operation_end[before] - kTolerance) {
                x_.unordered[o] |= kNotInStream;
                ++x_.orders_dropped;
            } else {
                before_[o] = r_.operation_end[before];
            }
        }
        for (const Edge& edge : d_.edges) {
            if (is_call(edge.from) || is_call(edge.to)) continue;
            const Index from = edge.from - calls_, to = edge.to - calls_;
            if (r_.operation_start[to] < r_.operation_end[from] - kTolerance) {
                x_.unordered[to] |= kNotBehindBarrier | kNotBehindOthers;
                ++x_.orders_dropped;
            }
        }
        for (const Edge& edge : d_.edges) {
            if (is_call(edge.from) || is_call(edge.to)) continue;
            const Index to = edge.to - calls_;
            if (!(x_.unordered[to] & kNotBehindBarrier) || t_.operations.after[to] == edge.from - calls_)
                before_[to] = std::max(before_[to], r_.operation_end[edge.from - calls_]);
        }
    }

    // When the engine of each operation last became free before it; only where one operation runs at a time.
    void engine_free() {
        const std::size_t operations = t_.operations.size();
        engine_free_.assign(operations, kNever);
        std::vector<Index> order;
        for (std::size_t o = 0; o < operations; ++o) {
            const Index engine = t_.operations.engine[o];
            if (engine != kNone && t_.engines.slots[engine] == 1) order.push_back(static_cast<Index>(o));
        }
        std::stable_sort(order.begin(), order.end(),
                         [&](Index a, Index b) { return r_.operation_start[a] < r_.operation_start[b]; });
        std::vector<Time> free(t_.engines.slots.size(), kNever), busy_since(t_.engines.slots.size(), kNever);
        busy_since_.assign(operations, kNever);
        for (Index o : order) {
            Time& end = free[t_.operations.engine[o]];
            Time& since = busy_since[t_.operations.engine[o]];
            const bool stood_still = end == kNever || end + kTurnRound < r_.operation_start[o];
            if (!stood_still) {
                engine_free_[o] = std::min(end, r_.operation_start[o]);
                busy_since_[o] = since;
            } else {
                since = r_.operation_start[o];
            }
            end = std::max(end, r_.operation_end[o]);
        }
    }

    bool launched(std::size_t o) const { return t_.operations.launched[o] != 0; }

    void typical_lags() {
        std::array<std::vector<Time>, 256> launch, order, call;
        for (std::size_t o = 0; o < t_.operations.size(); ++o) {
            const Time start = r_.operation_start[o], before = std::max(before_[o], engine_free_[o]);
            const std::uint8_t kind = r_.operation_class[o];
            if (!launched(o)) continue;
            const Time called = r_.call_start[t_.operations.call[o]],
                       done = r_.call_end[t_.operations.call[o]];
            if (before < called && start >= called) launch[kind].push_back(start - called);
            if (before > done + kUsualLaunch && start >= before) order[kind].push_back(start - before);
        }
        std::vector<Time> waited = last_waited_for();
        for (Index c = 0; c < calls_; ++c) {
            if (waited[c] < r_.call_start[c])
                call[r_.call_class[c]].push_back(r_.call_end[c] - r_.call_start[c]);
        }
        for (std::size_t kind = 0; kind < 256; ++kind) {
            x_.typical_launch[kind] = std::min(median(launch[kind], kUsualLaunch), kMostLaunch);
            x_.typical_order[kind] = std::min(median(order[kind], kUsualOrder), kMostOrder);
            x_.typical_call[kind] = median(call[kind], kUsualCall);
        }
    }

    std::vector<Time> last_waited_for() const {
        std::vector<Time> waited(t_.calls.size(), kNever);
        for (const Edge& edge : d_.edges)
            if (is_call(edge.to) && !is_call(edge.from))
                waited[edge.to] = std::max(waited[edge.to], r_.operation_end[edge.from - calls_]);
        return waited;
    }

    void split_operations() {
        const std::size_t operations = t_.operations.size();
        x_.launch_lag.assign(operations, 0);
        x_.order_lag.assign(operations, 0);
        x_.extra.assign(operations, 0);
        for (std::size_t o = 0; o < operations; ++o) {
            const Time start = r_.operation_start[o];
            const std::uint8_t kind = r_.operation_class[o];
            Time explained = std::max<Time>(0, t_.operations.released[o]);
            if (launched(o)) {
                const Time called = r_.call_start[t_.operations.call[o]];
                x_.launch_lag[o] = std::min(x_.typical_launch[kind], start - called);
                explained = std::max(explained, called + x_.launch_lag[o]);
            }
            x_.order_lag[o] = x_.typical_order[kind];
            if (before_[o] != kNever) {
                x_.order_lag[o] = std::min(x_.order_lag[o], start - before_[o]);
                explained = std::max(explained, before_[o] + x_.order_lag[o]);
            }
            // In the way of an operation is an engine that was at work from before it could have started.
            if (engine_free_[o] > explained && busy_since_[o] <= explained + kTolerance &&
                start - engine_free_[o] <= x_.typical_order[kind] + kTolerance) {
                x_.order_lag[o] = start - engine_free_[o];
                explained = start;
            }
            x_.extra[o] = std::max<Time>(0, start - explained);
        }
    }

    void split_calls() {
        const std::size_t calls = t_.calls.size();
        x_.own.assign(calls, 0);
        x_.wait_lag.assign(calls, 0);
        x_.wait.assign(t_.calls.wait.begin(), t_.calls.wait.end());
        const std::vector<Time> waited = last_waited_for();
        for (std::size_t c = 0; c < calls; ++c) {
            const Time start = r_.call_start[c], end = r_.call_end[c], duration = end - start;
            const Time usual = x_.typical_call[r_.call_class[c]];
            x_.own[c] = duration;
            if (static_cast<Wait>(x_.wait[c]) == Wait::none || waited[c] == kNever) continue;
            const bool own = static_cast<Wait>(x_.wait[c]) == Wait::own;
            // A staged copy to the device returns once its last part is in the staging buffer: before its
            // end.
            if (waited[c] > end + kTolerance && !(own && first_start(c) <= end)) {
                x_.wait[c] = static_cast<std::uint8_t>(Wait::none);
                ++x_.waits_dropped;
            } else if (waited[c] > start) {
                x_.wait_lag[c] = end - waited[c];
                x_.own[c] = std::min(duration, usual);
            } else {
                x_.wait_lag[c] = std::min(duration, usual);
            }
        }
    }

    Time first_start(std::size_t call) const {
        Time first = std::numeric_limits<Time>::max();
        for (Index o = d_.first_operation[call]; o < d_.first_operation[call + 1]; ++o)
            if (launched(static_cast<std::size_t>(o))) first = std::min(first, r_.operation_start[o]);
        return first;
    }

    const Timeline& t_;
    const Recorded& r_;
    const Dependencies d_;
    const Index calls_;
    Explained x_;
    std::vector<Time> before_, engine_free_, busy_since_;
};

}  // namespace

Explained explain(const Timeline& timeline, const Recorded& recorded) {
    return Explainer(timeline, recorded).run();
}

}  // namespace busfare::replay
