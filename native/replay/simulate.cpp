#include "simulate.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <queue>
#include <stdexcept>
#include <utility>

#include "engine.hpp"
#include "flows.hpp"
#include "joints.hpp"

namespace busfare::replay {
namespace {

// In this order at the same time: an engine is left before the next one enters.
enum class Happens : std::uint8_t { flow_done, operation_done, squeezed_done, flow_begins, operation_ready };

struct Event {
    Time time;
    Time key;  // of flow_done: the change of paces that it was foreseen in; of squeezed_done: likewise
    Index operation;
    Happens what;
    bool operator>(const Event& event) const {
        if (time != event.time) return time > event.time;
        if (what != event.what) return what > event.what;
        if (key != event.key) return key > event.key;
        return operation > event.operation;
    }
};

class Simulator {
  public:
    Simulator(const Timeline& timeline, Dependencies dependencies, const std::function<void()>& poll,
              bool with_bindings)
        : t_(timeline),
          d_(std::move(dependencies)),
          poll_(poll),
          calls_(static_cast<Index>(timeline.calls.size())),
          operations_(static_cast<Index>(timeline.operations.size())),
          binds_(with_bindings),
          flows_(timeline.operations, timeline.links),
          joints_(timeline) {
        p_.call_start.assign(timeline.calls.size(), 0);
        p_.call_end.assign(timeline.calls.size(), 0);
        p_.operation_start.assign(timeline.operations.size(), 0);
        p_.operation_end.assign(timeline.operations.size(), 0);
        if (binds_) {
            p_.start_bound_by.assign(timeline.calls.size(), kNone);
            p_.return_bound_by.assign(timeline.calls.size(), kNone);
            p_.operation_bound_by.assign(timeline.operations.size(), kNone);
            if (joints_) p_.joined_by.assign(timeline.calls.size() + timeline.operations.size(), kNone);
        }
        for (const Index slots : timeline.engines.slots) engines_.push_back({.free = slots, .slots = slots});
    }

    Played run() {
        for (auto root = d_.roots.rbegin(); root != d_.roots.rend(); ++root) {
            if (*root < calls_) p_.call_start[*root] = t_.calls.gap[*root];
            to_do_.push_back(*root);
        }
        for (;;) {
            settle();
            if (events_.empty()) break;
            const Event event = events_.top();
            events_.pop();
            happen(event);
        }
        const bool all = finished_ == static_cast<std::int64_t>(calls_) + operations_;
        if (!all && joints_)
            throw std::invalid_argument(
                "replay: column joint_members: ranks wait for each other in a circle");
        if (!all) throw std::logic_error("replay: something waits for what never happens");
        return std::move(p_);
    }

  private:
    void tick(std::size_t work = 1) {
        if ((steps_ += work) < 0x80000) return;
        steps_ = 0;
        poll_();
    }

    // Follows everything whose time is already certain: calls that can start, calls that have returned (~row)
    // and operations that are ready.
    void settle() {
        while (!to_do_.empty()) {
            const Index node = to_do_.back();
            to_do_.pop_back();
            if (node >= calls_)
                ready(node - calls_);
            else
                run_thread(node < 0 ? call_returned(~node) : node);
        }
    }

    // From this call on until one waits for what is not certain yet.
    void run_thread(Index call) {
        while (call != kNone) {
            tick();
            const Time start = p_.call_start[call];
            if (joints_) arrives(call, start);
            for (Index o = d_.first_operation[call]; o < d_.first_operation[call + 1]; ++o)
                if (t_.operations.launched[o] && release(o, start + t_.operations.launch_lag[o], call))
                    ready(o);
            if (joints_ && joints_.waits(call)) return;
            if (!may_return(call, begins(call) + t_.calls.busy[call], kNone)) return;
            call = call_returned(call);
        }
    }

    // These three take note that one of the things waited for has happened, and say whether it was the last.
    bool may_start(Index call, Time time, Index by) {
        if (time >= p_.call_start[call]) {
            p_.call_start[call] = time;
            if (binds_) p_.start_bound_by[call] = by;
        }
        return --d_.start_waits[call] == 0;
    }

    bool may_return(Index call, Time time, Index by) {
        if (by == kNone ? time >= p_.call_end[call] : time > p_.call_end[call]) {
            p_.call_end[call] = time;
            if (binds_) p_.return_bound_by[call] = by;
        }
        return --d_.return_waits[call] == 0;
    }

    bool release(Index operation, Time time, Index by) {
        Time& start = p_.operation_start[operation];
        if (binds_ && (time > start || (time == start && p_.operation_bound_by[operation] == kNone)))
            p_.operation_bound_by[operation] = by;
        start = std::max(start, time);
        return --d_.operation_waits[operation] == 0;
    }

    // Gives the next call of the thread, if it can start.
    Index call_returned(Index call) {
        ++finished_;
        const Time end = p_.call_end[call];
        p_.makespan = std::max(p_.makespan, end);
        for (Index e = d_.edge_first[call]; e != kNone; e = d_.edge_next[e]) {
            const Index to = d_.edges[e].to;
            if (may_start(to, end + t_.calls.gap[to], call)) to_do_.push_back(to);
        }
        const Index next = d_.call_behind[call];
        if (next == kNone) return kNone;
        // A call that another thread hands over to counts its gap from there.
        const Time gap = t_.calls.after[next] == kNone ? t_.calls.gap[next] : 0;
        return may_start(next, end + gap, call) ? next : kNone;
    }

    // All that the operation waits for has happened: it runs, or tries to get its engine and its links.
    void ready(Index operation) {
        const Operations& o = t_.operations;
        while (operation != kNone) {
            tick();
            Time& start = p_.operation_start[operation];
            if (o.released[operation] > start) {
                start = o.released[operation];
                if (binds_) p_.operation_bound_by[operation] = kNone;
            }
            start += o.extra[operation];
            if (o.engine[operation] != kNone) {
                events_.push({start, o.queue_key[operation], operation, Happens::operation_ready});
                return;
            }
            if (joints_) {
                arrives(calls_ + operation, start);
                if (joints_.waits(calls_ + operation)) return;
            }
            if (flows_.share(operation)) {
                events_.push({start, 0, operation, Happens::flow_begins});
                return;
            }
            operation = ended(operation, begins(calls_ + operation) + o.duration[operation]);
        }
    }

    // A node has started. Where it is the last of a joint, those that wait for that go on.
    void arrives(Index node, Time time) {
        for (const Index joint : joints_.of(node)) {
            tick();
            if (!joints_.arrives(joint, node, time)) continue;
            Index waiter;
            while ((waiter = joints_.take_waiting(joint)) != kNone) {
                tick();
                if (waiter >= calls_)
                    ends(waiter - calls_, begins(waiter) + t_.operations.duration[waiter - calls_]);
                else if (may_return(waiter, begins(waiter) + t_.calls.busy[waiter], kNone))
                    to_do_.push_back(~waiter);
            }
        }
    }

    // When a node that has started, and waits for nobody any more, begins what is its own: its work or its
    // transfer.
    Time begins(Index node) {
        const Time start = node < calls_ ? p_.call_start[node] : p_.operation_start[node - calls_];
        const Joint* joint = joints_ ? joints_.awaited_by(node) : nullptr;
        if (joint == nullptr || joint->arrived <= start) return start;
        if (binds_) p_.joined_by[node] = joint->last;
        return joint->arrived;
    }

    // The end of an operation is certain. Gives the next one of its stream, if that is ready.
    Index ended(Index operation, Time end) {
        ++finished_;
        p_.operation_end[operation] = end;
        p_.makespan = std::max(p_.makespan, end);
        const Index node = calls_ + operation;
        for (Index e = d_.edge_first[node]; e != kNone; e = d_.edge_next[e]) {
            const Index to = d_.edges[e].to;
            if (to < calls_) {
                if (may_return(to, end + t_.calls.wait_lag[to], node)) to_do_.push_back(~to);
            } else if (release(to - calls_, end + t_.operations.order_lag[to - calls_], node)) {
                to_do_.push_back(to);
            }
        }
        const Index next = d_.operation_behind[operation];
        if (next == kNone || !release(next, end + t_.operations.order_lag[next], node)) return kNone;
        return next;
    }

    void ends(Index operation, Time end) {
        if (const Index next = ended(operation, end); next != kNone) to_do_.push_back(calls_ + next);
    }

    void happen(const Event& event) {
        tick();
        now_ = std::max(now_, event.time);
        switch (event.what) {
            case Happens::operation_ready: {
                Engine& engine = engines_[t_.operations.engine[event.operation]];
                const Index takes = t_.operations.takes[event.operation];
                if (is_late(engine, event)) {
                    enter_late(engine, event.operation);
                } else if (engine.free >= takes && engine.queue.empty()) {
                    enter(engine, event.operation, takes == engine.slots && engine.left_by != kNone);
                } else {
                    engine.queue.emplace(event.key, event.operation);
                    admit(engine, false);
                }
                break;
            }
            case Happens::operation_done:
                leave(event.operation, event.time, t_.operations.takes[event.operation]);
                break;
            case Happens::squeezed_done: {
                Engine& engine = engines_[t_.operations.engine[event.operation]];
                if (event.key != engine.squeezings) break;  // it has got more since
                const Index had = engine.squeezed.has;
                engine.squeezed.operation = kNone;
                ends(event.operation, event.time);
                leave(event.operation, event.time, had);
                break;
            }
            case Happens::flow_begins: {
                // A lag below zero may let it begin before what has already been looked at: then it was
                // alone.
                const Time alone_until = event.time + t_.operations.duration[event.operation];
                if (alone_until < flows_.looked_at()) {
                    flow_ended(event.operation, alone_until);
                    break;
                }
                const Time now = std::max(event.time, flows_.looked_at());
                expect(flows_.begin(event.operation, now, alone_until));
                break;
            }
            case Happens::flow_done:
                if (!flows_.holds(event.key)) break;  // the paces have changed since
                expect(flows_.end(event.operation, event.time));
                flow_ended(event.operation, event.time);
                break;
        }
    }

    void expect(const std::optional<Flows::Foreseen>& first) {
        tick(flows_.count());
        if (first) events_.push({first->time, first->change, first->operation, Happens::flow_done});
    }

    void flow_ended(Index operation, Time time) {
        ends(operation, time);
        if (t_.operations.engine[operation] != kNone) leave(operation, time, t_.operations.takes[operation]);
    }

    // Those who wait, as far as there is room.
    void admit(Engine& engine, bool behind_another) {
        while (engine.free > 0 && !engine.queue.empty()) {
            const Index next = engine.queue.top().second;
            if (engine.free < t_.operations.takes[next] && flows_.share(next)) break;
            engine.queue.pop();
            enter(engine, next, behind_another);
        }
    }

    // Another has left the engine, or there has been room.
    void enter(Engine& engine, Index operation, bool behind_another) {
        const Index takes = t_.operations.takes[operation];
        Time& start = p_.operation_start[operation];
        if (behind_another) {
            // Whoever takes all of an engine needs its turn-round; of others, a slot has long been free.
            const Time free_at =
                engine.left_at + (takes == engine.slots ? t_.operations.engine_lag[operation] : 0);
            if (free_at > start) {
                start = free_at;
                if (binds_) p_.operation_bound_by[operation] = calls_ + engine.left_by;
            }
        }
        engine.entered_at = now_;
        engine.entered = operation;
        if (engine.free >= takes) {
            hold(engine, operation);
            return;
        }
        if (joints_) arrives(calls_ + operation, start);
        const auto duration = static_cast<double>(t_.operations.duration[operation]);
        engine.squeezed = {operation, engine.free, takes, duration, start};
        engine.free = 0;
        foresee(engine);
    }

    // A lag below zero may tell late of an operation: it was ready before the last that was let in began.
    bool is_late(const Engine& engine, const Event& ready) const {
        return ready.time < engine.entered_at && ready.time < p_.operation_start[engine.entered];
    }

    // It waits for those only that were there before it; others are not held up again.
    void enter_late(Engine& engine, Index operation) {
        Time& start = p_.operation_start[operation];
        if (t_.operations.takes[operation] == engine.slots) {
            const Time free_at = engine.free_for(start);
            if (free_at > kNever) start = std::max(start, free_at + t_.operations.engine_lag[operation]);
        }
        hold(engine, operation);
    }

    void hold(Engine& engine, Index operation) {
        const Time start = p_.operation_start[operation];
        if (joints_) arrives(calls_ + operation, start);
        engine.free -= t_.operations.takes[operation];
        if (flows_.share(operation))
            events_.push({start, 0, operation, Happens::flow_begins});
        else
            ends_at(operation, start + t_.operations.duration[operation]);
    }

    // What follows from its end is certain from here on.
    void ends_at(Index operation, Time end) {
        events_.push({end, 0, operation, Happens::operation_done});
        ends(operation, end);
    }

    void leave(Index operation, Time time, Index freed) {
        Engine& engine = engines_[t_.operations.engine[operation]];
        engine.free += freed;
        engine.leave(p_.operation_start[operation], time);
        // By clocks that are a little off, one that came within another's time may end before it does.
        if (engine.left_by == kNone || time >= engine.left_at) {
            engine.left_at = time;
            engine.left_by = operation;
        }
        if (engine.squeezed.operation != kNone && engine.free > 0) give_room(engine, time);
        admit(engine, true);
    }

    // The free slots to the one that has too few; once it has all, nobody takes them from it again.
    void give_room(Engine& engine, Time now) {
        Squeezed& s = engine.squeezed;
        if (!s.takes_more(engine.free, now)) {
            foresee(engine);
            return;
        }
        ++engine.squeezings;
        const Index operation = std::exchange(s.operation, kNone);
        ends_at(operation, s.since + std::llround(s.left));
    }

    void foresee(Engine& engine) {
        const Squeezed& s = engine.squeezed;
        events_.push({s.ends(), ++engine.squeezings, s.operation, Happens::squeezed_done});
    }

    const Timeline& t_;
    Dependencies d_;  // the counts of waits go down to 0
    const std::function<void()>& poll_;
    const Index calls_, operations_;
    const bool binds_;
    Flows flows_;
    Joints joints_;
    Played p_;
    std::vector<Index> to_do_;
    std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
    std::vector<Engine> engines_;
    Time now_ = 0;
    std::int64_t finished_ = 0;
    std::size_t steps_ = 0;
};

}  // namespace

Played simulate(const Timeline& timeline, Dependencies dependencies, const std::function<void()>& poll,
                bool with_bindings) {
    return Simulator(timeline, std::move(dependencies), poll, with_bindings).run();
}

}  // namespace busfare::replay
