#include "explain.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "check.hpp"

namespace busfare::replay {
namespace {

// Time stamps of one GPU, and of a host and a GPU that were aligned, agree to about this; more is a
// contradiction.
constexpr Time kTolerance = 5000;
// The clock of a GPU is ahead of the host's by no more than its quickest launches take; of so many around a
// call.
constexpr std::ptrdiff_t kLaunchesAround = 8;
// How many operations of a stream are looked at for one that a contradicted wait may have waited for.
constexpr int kMostSteps = 4096;
// What counts as usual at most: a first launch may load a module, an order may hide a wait that nobody
// recorded.
constexpr Time kMostLaunch = 1000000, kMostOrder = 10000;
// An engine that stands still for longer between two operations was free.
constexpr Time kLongestGap = 20000;
// Where a trace shows no case of its own.
constexpr Time kUsualLaunch = 5000, kUsualOrder = 1000, kUsualCall = 2000;
// From a kernel to a copy or back: `busfare probe` measures 2.7 to 5.2 µs from a kernel to a copy on H100s
// and H200s (`after_kernel_s`, results/probe), most often between 4 and 5.
constexpr Time kUsualUnitChange = 4500;

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
        check_times(r_.call_start, r_.call_end, calls, "call_start", "call_end");
        check_times(r_.operation_start, r_.operation_end, operations, "operation_start", "operation_end");
        if (r_.call_class.size() != calls) refuse("call_class", std::min(r_.call_class.size(), calls));
        if (r_.operation_class.size() != operations)
            refuse("operation_class", std::min(r_.operation_class.size(), operations));
        if (r_.operation_unit.size() != operations)
            refuse("operation_unit", std::min(r_.operation_unit.size(), operations));
        for (const Index device : t_.streams.device)
            if (device != kNone) quick_.resize(std::max(quick_.size(), static_cast<std::size_t>(device) + 1));
    }

    Explained run() {
        drop_broken_orders();
        line_up_at_engines();
        typical_lags();
        look_at_waits();
        typical_calls();
        split_operations();
        split_calls();
        return std::move(x_);
    }

  private:
    bool is_call(Index node) const { return node < calls_; }

    // An operation that began before what it should wait for had ended, or begun, does not wait for it.
    bool contradicts(Index before, Index operation) const {
        return r_.operation_start[operation] <
               std::max(r_.operation_end[before] - kTolerance, r_.operation_start[before]);
    }

    void drop_broken_orders() {
        const std::size_t operations = t_.operations.size();
        x_.unordered.assign(operations, 0);
        before_.assign(operations, kNever);
        unit_changes_.assign(operations, 0);
        for (std::size_t before = 0; before < operations; ++before) {
            const Index o = d_.operation_behind[before];
            if (o == kNone) continue;
            if (contradicts(static_cast<Index>(before), o)) {
                x_.unordered[o] |= kNotInStream;
                ++x_.orders_dropped;
            } else {
                follows(o, static_cast<Index>(before));
            }
        }
        for (const Edge& edge : d_.edges) {
            if (is_call(edge.from) || is_call(edge.to)) continue;
            const Index from = edge.from - calls_, to = edge.to - calls_;
            if (edge.order != 0 && contradicts(from, to)) {
                x_.unordered[to] |= edge.order;
                ++x_.orders_dropped;
            }
        }
        for (const Edge& edge : d_.edges) {
            if (is_call(edge.from) || is_call(edge.to)) continue;
            const Index to = edge.to - calls_;
            if (!(x_.unordered[to] & edge.order)) follows(to, edge.from - calls_);
        }
    }

    void follows(Index operation, Index before) {
        if (r_.operation_end[before] <= before_[operation]) return;
        before_[operation] = r_.operation_end[before];
        unit_changes_[operation] = r_.operation_unit[before] != r_.operation_unit[operation];
    }

    Time usual_order(std::size_t o) const {
        return (unit_changes_[o] ? x_.typical_unit_change : x_.typical_order)[r_.operation_class[o]];
    }

    // Who went before whom, and when the engine of each operation last became free before it; only where one
    // operation runs at a time.
    void line_up_at_engines() {
        const std::size_t operations = t_.operations.size();
        engine_free_.assign(operations, kNever);
        for (std::size_t o = 0; o < operations; ++o) {
            const Index engine = t_.operations.engine[o];
            if (engine != kNone && t_.engines.slots[engine] == 1) lined_up_.push_back(static_cast<Index>(o));
        }
        std::stable_sort(lined_up_.begin(), lined_up_.end(), [&](Index a, Index b) {
            return std::pair(r_.operation_start[a], r_.operation_end[a]) <
                   std::pair(r_.operation_start[b], r_.operation_end[b]);
        });
        std::vector<Time> free(t_.engines.slots.size(), kNever);
        for (Index o : lined_up_) {
            Time& end = free[t_.operations.engine[o]];
            engine_free_[o] = end;
            end = std::max(end, r_.operation_end[o]);
        }
    }

    // Right up to this operation.
    bool engine_worked(std::size_t o) const {
        return engine_free_[o] != kNever && engine_free_[o] + kLongestGap >= r_.operation_start[o];
    }

    bool launched(std::size_t o) const { return t_.operations.launched[o] != 0; }

    void typical_lags() {
        std::array<std::vector<Time>, 256> launch, order, unit_change;
        for (std::size_t o = 0; o < t_.operations.size(); ++o) {
            const Time start = r_.operation_start[o], free = engine_worked(o) ? engine_free_[o] : kNever,
                       before = std::max(before_[o], free);
            const std::uint8_t kind = r_.operation_class[o];
            if (!launched(o)) continue;
            const Time called = r_.call_start[t_.operations.call[o]],
                       done = r_.call_end[t_.operations.call[o]];
            if (before < called) {
                if (start >= called) launch[kind].push_back(start - called);
                if (const Index device = t_.streams.device[t_.operations.stream[o]]; device != kNone)
                    quick_[device].push_back({t_.operations.call[o], start - called});
            }
            if (before > done + kUsualLaunch && start >= before)
                (unit_changes_[o] && free <= before_[o] ? unit_change : order)[kind].push_back(start -
                                                                                               before);
        }
        for (std::size_t kind = 0; kind < 256; ++kind) {
            x_.typical_launch[kind] = std::min(median(launch[kind], kUsualLaunch), kMostLaunch);
            x_.typical_order[kind] = std::min(median(order[kind], kUsualOrder), kMostOrder);
            x_.typical_unit_change[kind] = std::min(median(unit_change[kind], kUsualUnitChange), kMostOrder);
        }
    }

    // What calls take that find nothing to wait for.
    void typical_calls() {
        std::array<std::vector<Time>, 256> call;
        for (Index c = 0; c < calls_; ++c) {
            const Index last = last_awaited_[c];
            if (last == kNone || r_.operation_end[last] < r_.call_start[c])
                call[r_.call_class[c]].push_back(r_.call_end[c] - r_.call_start[c]);
        }
        for (std::size_t kind = 0; kind < 256; ++kind) x_.typical_call[kind] = median(call[kind], kUsualCall);
    }

    void split_operations() {
        const std::size_t operations = t_.operations.size();
        x_.launch_lag.assign(operations, 0);
        x_.order_lag.assign(operations, 0);
        x_.extra.assign(operations, 0);
        for (std::size_t o = 0; o < operations; ++o) {
            const Time start = r_.operation_start[o];
            const std::uint8_t kind = r_.operation_class[o];
            if (launched(o))
                x_.launch_lag[o] =
                    std::min(x_.typical_launch[kind], start - r_.call_start[t_.operations.call[o]]);
            x_.order_lag[o] = usual_order(o);
            for (const Time before : {before_[o], engine_free_[o]})
                if (before != kNever) x_.order_lag[o] = std::min(x_.order_lag[o], start - before);
            x_.extra[o] = std::max<Time>(0, start - explained(o));
        }
        blame_engines();
    }

    // When the operation could have started if nothing were in its way on its engine.
    Time explained(std::size_t o) const {
        Time time = std::max<Time>(0, t_.operations.released[o]);
        if (launched(o)) time = std::max(time, r_.call_start[t_.operations.call[o]] + x_.launch_lag[o]);
        if (before_[o] != kNever) time = std::max(time, before_[o] + x_.order_lag[o]);
        return time;
    }

    // An operation that could have started while others had its engine waited for them, if it followed soon;
    // not if they had it for long after.
    // Of those, one that found the engine free was there before all that came later: nobody who is played
    // again may be ready before it and go first.
    void blame_engines() {
        std::vector<Time> nobody_before(t_.engines.slots.size(), kNever);
        for (const Index o : lined_up_) {
            const Time start = r_.operation_start[o], free = engine_free_[o];
            const Time usual = x_.typical_order[r_.operation_class[o]];
            Time& floor = nobody_before[t_.operations.engine[o]];
            const Time possible = explained(o);
            const bool waited = engine_worked(o) && free > possible && free >= before_[o] &&
                                floor <= possible + kTolerance && start - free <= usual + kTolerance &&
                                free - start <= kTolerance;
            if (waited) {
                x_.order_lag[o] = start - free;
                x_.extra[o] = std::max<Time>(0, floor - explained(o));
            }
            const Time ready = explained(o) + x_.extra[o];
            if (!waited || ready > free) floor = ready;
        }
    }

    // How far the clock of a device may be ahead of the host's around a call: by the quickest of the launches
    // there that found the device ready.
    Time tolerance(Index operation, Index call) const {
        const Index device = t_.streams.device[t_.operations.stream[operation]];
        if (device == kNone) return kTolerance;
        const auto& launches = quick_[device];
        const auto at = std::lower_bound(launches.begin(), launches.end(), std::pair(call, Time{0}));
        auto from = at - std::min(kLaunchesAround, at - launches.begin());
        const auto to = at + std::min(kLaunchesAround, launches.end() - at);
        Time quickest = from == to ? kTolerance : kMostLaunch;
        for (; from != to; ++from) quickest = std::min(quickest, from->second);
        return std::max(quickest, kTolerance);
    }

    bool outlasts(Index operation, Index call) const {
        return r_.operation_end[operation] > r_.call_end[call] + kTolerance &&
               r_.operation_end[operation] > r_.call_end[call] + tolerance(operation, call);
    }

    // Of what each call waits for, the last operation that had ended when it returned; in place of one that
    // had not, the last before it in its stream that had.
    void look_at_waits() {
        last_awaited_.assign(t_.calls.size(), kNone);
        contradicted_.assign(t_.calls.size(), 0);
        std::vector<Index> before(t_.operations.size(), kNone), last(t_.streams.size(), kNone);
        latest_.assign(t_.operations.size(), kNone);
        // How often each stream's order was broken up to an operation: one that comes later then covers none
        // before.
        std::vector<Index> breaks(t_.operations.size(), 0);
        for (std::size_t o = 0; o < t_.operations.size(); ++o) {
            before[o] = last[t_.operations.stream[o]];
            breaks[o] =
                (before[o] == kNone ? 0 : breaks[before[o]]) + ((x_.unordered[o] & kNotInStream) != 0);
            last[t_.operations.stream[o]] = static_cast<Index>(o);
            const Index earlier = before[o] == kNone ? kNone : latest_[before[o]];
            latest_[o] = earlier != kNone && r_.operation_end[earlier] > r_.operation_end[o] + kTolerance
                             ? earlier
                             : static_cast<Index>(o);
        }
        last.assign(t_.streams.size(), kNone);
        Index issued = 0;
        // Of each thread and device, what its waits should have covered and did not: later ones may.
        std::unordered_map<std::uint64_t, std::vector<Index>> uncovered;
        auto edge = d_.edges.begin();  // those to calls are in the order of these
        for (Index call = 0; call < calls_; ++call) {
            for (; issued < d_.first_operation[call + 1]; ++issued)
                last[t_.operations.stream[issued]] = issued;
            std::vector<Index>* missed = nullptr;
            std::vector<Index> earlier;
            if (static_cast<Wait>(t_.calls.wait[call]) == Wait::device) {
                missed = &uncovered[static_cast<std::uint64_t>(t_.calls.thread[call]) << 32 |
                                    static_cast<std::uint64_t>(t_.calls.wait_key[call])];
                earlier.swap(*missed);
            }
            for (; edge != d_.edges.end() && (!is_call(edge->to) || edge->to == call); ++edge) {
                if (is_call(edge->to) && !is_call(edge->from))
                    look_at_wait(call, edge->from - calls_, before, missed);
            }
            for (const Index operation : earlier) {
                look_at_wait(call, operation, before, missed);
                const Index newest = last[t_.operations.stream[operation]];
                if (last_awaited_[call] == operation && breaks[newest] != breaks[operation])
                    contradicted_[call] = 1;
            }
        }
    }

    // `before`: of each operation the one before it in its stream. What outlasts the wait is added to
    // `missed`.
    void look_at_wait(Index call, Index operation, const std::vector<Index>& before,
                      std::vector<Index>* missed) {
        const bool waits_for_launches = static_cast<Wait>(t_.calls.wait[call]) == Wait::launches;
        // A staged copy to the device returns once its last part is in the staging buffer: before its end.
        const bool staged =
            waits_for_launches && first_start(static_cast<std::size_t>(call)) <= r_.call_end[call];
        Index o = operation;
        for (int steps = 0; o != kNone && !staged && outlasts(o, call);) {
            contradicted_[call] = 1;
            o = waits_for_launches || ++steps > kMostSteps ? kNone : before[o];
        }
        if (missed && o != operation) keep_newest(*missed, operation);
        // Where work of a stream ran out of order, what the call waited for is the one that ended last.
        if (o != kNone && !waits_for_launches && latest_[o] != o && !outlasts(latest_[o], call)) {
            contradicted_[call] = 1;
            o = latest_[o];
        }
        Index& latest = last_awaited_[call];
        if (o != kNone && (latest == kNone || r_.operation_end[o] > r_.operation_end[latest])) latest = o;
    }

    // One a stream.
    void keep_newest(std::vector<Index>& operations, Index operation) const {
        for (Index& newest : operations) {
            if (t_.operations.stream[newest] == t_.operations.stream[operation])
                return void(newest = std::max(newest, operation));
        }
        operations.push_back(operation);
    }

    void split_calls() {
        const std::size_t calls = t_.calls.size();
        x_.busy.assign(calls, 0);
        x_.wait_lag.assign(calls, 0);
        x_.wait.assign(t_.calls.wait.begin(), t_.calls.wait.end());
        x_.wait_key.assign(t_.calls.wait_key.begin(), t_.calls.wait_key.end());
        for (std::size_t c = 0; c < calls; ++c) {
            const Time start = r_.call_start[c], end = r_.call_end[c], duration = end - start;
            const Time usual = x_.typical_call[r_.call_class[c]];
            const Index last = last_awaited_[c];
            x_.busy[c] = duration;
            if (contradicted_[c]) {
                const bool left = last != kNone && r_.operation_end[last] > start;
                ++(left ? x_.waits_narrowed : x_.waits_dropped);
                x_.wait[c] = static_cast<std::uint8_t>(left ? Wait::operation : Wait::none);
                x_.wait_key[c] = left ? last : kNone;
            }
            if (static_cast<Wait>(x_.wait[c]) == Wait::none || last == kNone) continue;
            if (r_.operation_end[last] > start) {
                x_.wait_lag[c] = end - r_.operation_end[last];
                x_.busy[c] = std::min(duration, usual);
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
    std::vector<Time> before_, engine_free_;
    std::vector<std::uint8_t> unit_changes_;  ///< whether what it follows ran on another unit
    std::vector<Index> lined_up_;
    std::vector<std::vector<std::pair<Index, Time>>>
        quick_;                        ///< by device: calls whose work found it ready, and how soon
    std::vector<Index> last_awaited_;  ///< of each call
    std::vector<Index>
        latest_;  ///< of each operation: which ended last of it and those before it in its stream
    std::vector<std::uint8_t> contradicted_;  ///< whether something that a call waits for outlasts it
};

}  // namespace

Explained explain(const Timeline& timeline, const Recorded& recorded) {
    // Whatever orders it kept or broke before: the recording says.
    const std::vector<std::uint8_t> none(timeline.operations.unordered.size(), 0);
    Timeline ordered = timeline;
    ordered.operations.unordered = none;
    return Explainer(ordered, recorded).run();
}

}  // namespace busfare::replay
