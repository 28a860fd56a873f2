#include "simulate.hpp"

#include <algorithm>
#include <cmath>
#include <queue>
#include <stdexcept>

#include "links.hpp"

namespace busfare::replay {
namespace {

// In this order at the same time: an engine is left before the next one enters.
enum class Happens : std::uint8_t { flow_done, operation_done, flow_begins, operation_ready };

struct Event {
    Time time;
    Happens what;
    Index operation;
    std::uint32_t version;
    bool operator>(const Event& other) const {
        if (time != other.time) return time > other.time;
        if (what != other.what) return what > other.what;
        return operation > other.operation;
    }
};

using Turn = std::pair<Time, Index>;

struct Engine {
    Index free = 1, slots = 1;
    Time left_at = 0;
    Index left_by = kNone;
    std::priority_queue<Turn, std::vector<Turn>, std::greater<>> queue;
};

class Simulator {
  public:
    Simulator(const Timeline& timeline, const Dependencies& dependencies, const std::function<void()>& poll)
        : t_(timeline),
          d_(dependencies),
          poll_(poll),
          calls_(static_cast<Index>(timeline.calls.size())),
          operations_(static_cast<Index>(timeline.operations.size())) {
        p_.call_start.assign(timeline.calls.size(), 0);
        p_.call_end.assign(timeline.calls.size(), 0);
        p_.operation_start.assign(timeline.operations.size(), 0);
        p_.operation_end.assign(timeline.operations.size(), 0);
        p_.start_bound_by.assign(timeline.calls.size(), kNone);
        p_.return_bound_by.assign(timeline.calls.size(), kNone);
        p_.operation_bound_by.assign(timeline.operations.size(), kNone);
        for (const Index slots : timeline.engines.slots) engines_.push_back({.free = slots, .slots = slots});
        share_links_ = !timeline.operations.link_begin.empty();
        count();
    }

    Played run() {
        begin();
        for (;;) {
            settle();
            if (events_.empty()) break;
            const Event event = events_.top();
            events_.pop();
            happen(event);
        }
        if (finished_ != static_cast<std::int64_t>(calls_) + operations_)
            throw std::logic_error("replay: something waits for what never happens");
        return std::move(p_);
    }

  private:
    // What each still waits for: of a call its start, then its return; of an operation its start.
    void count() {
        start_waits_.assign(t_.calls.size(), 0);
        return_waits_.assign(t_.calls.size(), 1);
        operation_waits_.assign(t_.operations.size(), 0);
        for (Index c = 0; c < calls_; ++c) start_waits_[c] = d_.call_before[c] != kNone;
        for (Index o = 0; o < operations_; ++o)
            operation_waits_[o] = (d_.operation_before[o] != kNone) + (t_.operations.launched[o] != 0);
        for (const Edge& edge : d_.edges) {
            if (edge.to >= calls_) {
                ++operation_waits_[edge.to - calls_];
            } else if (edge.from < calls_) {
                ++start_waits_[edge.to];
            } else {
                ++return_waits_[edge.to];
            }
        }
    }

    void begin() {
        for (Index c = calls_; c-- > 0;) {
            if (start_waits_[c] == 0) {
                p_.call_start[c] = t_.calls.gap[c];
                to_start_.push_back(c);
            }
        }
        for (Index o = 0; o < operations_; ++o) {
            p_.operation_start[o] = std::max<Time>(0, t_.operations.released[o]);
            if (operation_waits_[o] == 0) ready(o);
        }
    }

    // Follows everything whose time is already certain.
    void settle() {
        while (!to_start_.empty() || !to_finish_.empty()) {
            if ((++steps_ & 0xFFFFF) == 0) poll_();
            if (!to_finish_.empty()) {
                const Index node = to_finish_.back();
                to_finish_.pop_back();
                node < calls_ ? call_finished(node) : operation_finished(node - calls_);
            } else {
                const Index call = to_start_.back();
                to_start_.pop_back();
                call_started(call);
            }
        }
    }

    void call_started(Index call) {
        const Time start = p_.call_start[call];
        for (Index o = d_.first_operation[call]; o < d_.first_operation[call + 1]; ++o)
            if (t_.operations.launched[o]) release(o, start + t_.operations.launch_lag[o], call);
        may_return(call, start + t_.calls.own[call], kNone);
    }

    void may_return(Index call, Time time, Index by) {
        if (by == kNone ? time >= p_.call_end[call] : time > p_.call_end[call]) {
            p_.call_end[call] = time;
            p_.return_bound_by[call] = by;
        }
        if (--return_waits_[call] == 0) to_finish_.push_back(call);
    }

    void may_start(Index call, Time time, Index by) {
        if (time >= p_.call_start[call]) {
            p_.call_start[call] = time;
            p_.start_bound_by[call] = by;
        }
        if (--start_waits_[call] == 0) to_start_.push_back(call);
    }

    void call_finished(Index call) {
        ++finished_;
        const Time end = p_.call_end[call];
        p_.makespan = std::max(p_.makespan, end);
        // A call that another thread hands over to counts its gap from there.
        if (const Index next = d_.call_behind[call]; next != kNone)
            may_start(next, end + (t_.calls.after[next] == kNone ? t_.calls.gap[next] : 0), call);
        for (Index e = d_.edge_first[call]; e != kNone; e = d_.edge_next[e])
            may_start(d_.edges[e].to, end + t_.calls.gap[d_.edges[e].to], call);
    }

    void release(Index operation, Time time, Index by) {
        Time& start = p_.operation_start[operation];
        if (time > start || p_.operation_bound_by[operation] == kNone) {
            start = std::max(start, time);
            p_.operation_bound_by[operation] = by;
        }
        if (--operation_waits_[operation] == 0) ready(operation);
    }

    void ready(Index operation) {
        if (t_.operations.engine[operation] == kNone) {
            start(operation, p_.operation_start[operation] + t_.operations.extra[operation]);
            finish(operation, p_.operation_start[operation] + t_.operations.duration[operation]);
        } else {
            p_.operation_start[operation] += t_.operations.extra[operation];
            events_.push({p_.operation_start[operation], Happens::operation_ready, operation, 0});
        }
    }

    void start(Index operation, Time time) { p_.operation_start[operation] = time; }

    void finish(Index operation, Time time) {
        p_.operation_end[operation] = time;
        p_.makespan = std::max(p_.makespan, time);
        to_finish_.push_back(calls_ + operation);
    }

    void operation_finished(Index operation) {
        ++finished_;
        const Time end = p_.operation_end[operation];
        const Index node = calls_ + operation;
        if (const Index next = d_.operation_behind[operation]; next != kNone)
            release(next, end + t_.operations.order_lag[next], node);
        for (Index e = d_.edge_first[node]; e != kNone; e = d_.edge_next[e]) {
            const Index to = d_.edges[e].to;
            if (to < calls_) {
                may_return(to, end + t_.calls.wait_lag[to], node);
            } else {
                release(to - calls_, end + t_.operations.order_lag[to - calls_], node);
            }
        }
    }

    void happen(const Event& event) {
        switch (event.what) {
            case Happens::operation_ready: {
                Engine& engine = engines_[t_.operations.engine[event.operation]];
                if (engine.free > 0) {
                    enter(engine, event.operation);
                } else {
                    engine.queue.emplace(t_.operations.turn[event.operation], event.operation);
                }
                break;
            }
            case Happens::operation_done:
                leave(event.operation, event.time);
                break;
            case Happens::flow_begins:
                advance(event.time);
                flows_.push_back({.operation = event.operation,
                                  .left = static_cast<double>(t_.operations.duration[event.operation]),
                                  .since = event.time});
                reschedule(event.time);
                break;
            case Happens::flow_done: {
                const auto flow = std::find_if(flows_.begin(), flows_.end(), [&](const Flow& f) {
                    return f.operation == event.operation && f.version == event.version;
                });
                if (flow == flows_.end()) break;  // its pace has changed since
                flows_.erase(flow);
                advance(event.time);
                reschedule(event.time);
                leave(event.operation, event.time);
                break;
            }
        }
    }

    void enter(Engine& engine, Index operation) {
        --engine.free;
        Time time = p_.operation_start[operation];
        // With one slot the engine itself needs its turn-round; with several, one of them has long been free.
        if (engine.slots == 1 && engine.left_by != kNone) {
            const Time turn = engine.left_at + t_.operations.order_lag[operation];
            if (turn > time) {
                time = turn;
                p_.operation_bound_by[operation] = calls_ + engine.left_by;
            }
        } else if (engine.left_by != kNone && engine.left_at > time) {
            time = engine.left_at;
            p_.operation_bound_by[operation] = calls_ + engine.left_by;
        }
        start(operation, time);
        if (share_links_ && t_.operations.bytes_per_s[operation] > 0) {
            events_.push({time, Happens::flow_begins, operation, 0});
        } else {
            events_.push({time + t_.operations.duration[operation], Happens::operation_done, operation, 0});
        }
    }

    void leave(Index operation, Time time) {
        Engine& engine = engines_[t_.operations.engine[operation]];
        ++engine.free;
        engine.left_at = time;
        engine.left_by = operation;
        if (!engine.queue.empty()) {
            const Index next = engine.queue.top().second;
            engine.queue.pop();
            enter(engine, next);
        }
        finish(operation, time);
    }

    void advance(Time now) {
        for (Flow& flow : flows_) {
            flow.left = std::max(0.0, flow.left - flow.pace * static_cast<double>(now - flow.since));
            flow.since = now;
        }
    }

    void reschedule(Time now) {
        share(flows_, t_.operations, t_.links);
        for (Flow& flow : flows_) {
            flow.version = ++versions_;
            const auto needs = static_cast<Time>(std::llround(flow.left / flow.pace));
            events_.push({now + needs, Happens::flow_done, flow.operation, flow.version});
        }
    }

    const Timeline& t_;
    const Dependencies& d_;
    const std::function<void()>& poll_;
    const Index calls_, operations_;
    Played p_;
    std::vector<Index> start_waits_, return_waits_, operation_waits_;
    std::vector<Index> to_start_, to_finish_;
    std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
    std::vector<Engine> engines_;
    std::vector<Flow> flows_;
    std::uint32_t versions_ = 0;
    bool share_links_ = false;
    std::int64_t finished_ = 0;
    std::uint64_t steps_ = 0;
};

}  // namespace

Played simulate(const Timeline& timeline, const Dependencies& dependencies,
                const std::function<void()>& poll) {
    return Simulator(timeline, dependencies, poll).run();
}

}  // namespace busfare::replay
