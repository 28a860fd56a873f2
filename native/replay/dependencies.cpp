#include "dependencies.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>
#include <unordered_map>

namespace busfare::replay {
namespace {

[[noreturn]] void refuse(const char* column, std::size_t row) {
    throw std::invalid_argument(std::string("replay: column ") + column + ", row " + std::to_string(row) +
                                ": out of range or out of order");
}

void check_length(std::size_t length, std::size_t wanted, const char* column) {
    if (length != wanted) refuse(column, std::min(length, wanted));
}

Index highest(std::span<const Index> values, const char* column) {
    Index most = kNone;
    for (std::size_t row = 0; row < values.size(); ++row) {
        if (values[row] < kNone || values[row] == std::numeric_limits<Index>::max()) refuse(column, row);
        most = std::max(most, values[row]);
    }
    return most;
}

void check_below(std::span<const Index> values, std::size_t limit, const char* column) {
    for (std::size_t row = 0; row < values.size(); ++row) {
        if (values[row] < kNone || (values[row] != kNone && static_cast<std::size_t>(values[row]) >= limit))
            refuse(column, row);
    }
}

void check(const Timeline& t) {
    const std::size_t calls = t.calls.size(), operations = t.operations.size(), streams = t.streams.size();
    constexpr auto most = static_cast<std::size_t>(std::numeric_limits<Index>::max()) / 2;
    if (calls + operations > most)
        throw std::invalid_argument("replay: more than a billion calls and operations");
    const auto& c = t.calls;
    for (auto [length, name] : {std::pair{c.gap.size(), "gap"},
                                {c.own.size(), "own"},
                                {c.after.size(), "after"},
                                {c.wait.size(), "wait"},
                                {c.wait_key.size(), "wait_key"},
                                {c.wait_lag.size(), "wait_lag"},
                                {c.act.size(), "act"},
                                {c.act_stream.size(), "act_stream"},
                                {c.act_event.size(), "act_event"}})
        check_length(length, calls, name);
    const auto& o = t.operations;
    for (auto [length, name] : {std::pair{o.launched.size(), "launched"},
                                {o.stream.size(), "stream"},
                                {o.engine.size(), "engine"},
                                {o.duration.size(), "duration"},
                                {o.launch_lag.size(), "launch_lag"},
                                {o.order_lag.size(), "order_lag"},
                                {o.extra.size(), "extra"},
                                {o.turn.size(), "turn"},
                                {o.after.size(), "after"},
                                {o.released.size(), "released"},
                                {o.unordered.size(), "unordered"},
                                {o.bytes_per_s.size(), "bytes_per_s"}})
        check_length(length, operations, name);
    check_length(t.streams.context.size(), streams, "context");
    check_length(t.streams.kind.size(), streams, "kind");
    check_length(t.links.both.size(), t.links.bytes_per_s.size(), "both");
    check_length(t.links.opposite.size(), t.links.bytes_per_s.size(), "opposite");
    check_below(c.act_stream, streams, "act_stream");
    check_below(o.stream, streams, "stream");
    check_below(o.engine, t.engines.slots.size(), "engine");
    check_below(o.links, t.links.bytes_per_s.size(), "links");
    check_below(t.links.opposite, t.links.bytes_per_s.size(), "opposite");
    for (std::size_t row = 0; row < t.engines.slots.size(); ++row)
        if (t.engines.slots[row] < 1) refuse("slots", row);
    for (std::size_t row = 0; row < t.links.bytes_per_s.size(); ++row)
        if (!(t.links.bytes_per_s[row] > 0) || !(t.links.both[row] > 0)) refuse("bytes_per_s", row);
    for (std::size_t row = 0; row < calls; ++row) {
        if (c.gap[row] < 0 || c.own[row] < 0) refuse("gap", row);
        if (c.after[row] < kNone || c.after[row] >= static_cast<Index>(row)) refuse("after", row);
        if (c.thread[row] < 0) refuse("thread", row);
    }
    for (std::size_t row = 0; row < operations; ++row) {
        if (o.duration[row] < 0 || o.extra[row] < 0) refuse("duration", row);
        if (o.stream[row] < 0) refuse("stream", row);
        if (o.after[row] < kNone || o.after[row] >= static_cast<Index>(row)) refuse("after", row);
        const Index before = row ? o.call[row - 1] : kNone;
        if (o.call[row] < before || o.call[row] >= static_cast<Index>(calls)) refuse("call", row);
        if (o.launched[row] && o.call[row] == kNone) refuse("launched", row);
    }
    if (!o.link_begin.empty()) {
        check_length(o.link_begin.size(), operations + 1, "link_begin");
        for (std::size_t row = 0; row <= operations; ++row) {
            const std::int64_t before = row ? o.link_begin[row - 1] : 0;
            if (o.link_begin[row] < before || o.link_begin[row] > static_cast<std::int64_t>(o.links.size()))
                refuse("link_begin", row);
        }
    }
}

// The streams of one device, the last used first: what a device synchronisation has to look at.
class RecentStreams {
  public:
    explicit RecentStreams(std::size_t streams) : newer_(streams, kNone), older_(streams, kNone) {}

    void used(Index stream) {
        if (newest_ == stream) return;
        if (newer_[stream] != kNone) {
            older_[newer_[stream]] = older_[stream];
            if (older_[stream] != kNone) newer_[older_[stream]] = newer_[stream];
        }
        newer_[stream] = kNone;
        older_[stream] = newest_;
        if (newest_ != kNone) newer_[newest_] = stream;
        newest_ = stream;
    }
    Index newest() const { return newest_; }
    Index older(Index stream) const { return older_[stream]; }

  private:
    Index newest_ = kNone;
    std::vector<Index> newer_, older_;
};

// Legacy default-stream order within one context: its null stream waits for all, and all wait for it.
struct Barrier {
    Index last = kNone;             // the last operation of the null stream
    std::vector<Index> used_since;  // blocking streams that ran something since
};

class Builder {
  public:
    explicit Builder(const Timeline& timeline)
        : t_(timeline), calls_(static_cast<Index>(timeline.calls.size())) {}

    Dependencies build() {
        prepare();
        const auto operations = static_cast<Index>(t_.operations.size());
        Index operation = 0;
        while (operation < operations && t_.operations.call[operation] == kNone) issue(operation++);
        for (Index call = 0; call < calls_; ++call) {
            d_.first_operation[call] = operation;
            thread(call);
            act(call);
            while (operation < operations && t_.operations.call[operation] == call) issue(operation++);
            wait(call);
        }
        d_.first_operation[calls_] = operation;
        link_edges();
        return std::move(d_);
    }

  private:
    void prepare() {
        const std::size_t streams = t_.streams.size(), operations = t_.operations.size();
        const Index devices = highest(t_.streams.device, "device") + 1;
        const Index contexts = highest(t_.streams.context, "context") + 1;
        threads_ = static_cast<std::size_t>(highest(t_.calls.thread, "thread") + 1);
        Index events = highest(t_.calls.act_event, "act_event");
        for (std::size_t row = 0; row < t_.calls.size(); ++row)
            if (static_cast<Wait>(t_.calls.wait[row]) == Wait::event)
                events = std::max(events, t_.calls.wait_key[row]);
        last_call_.assign(threads_, kNone);
        last_in_stream_.assign(streams, kNone);
        pending_events_.resize(streams);
        recent_.assign(static_cast<std::size_t>(devices), RecentStreams(streams));
        barriers_.resize(static_cast<std::size_t>(contexts));
        used_since_barrier_.assign(streams, 0);
        behind_barrier_.assign(streams, kNone);
        recorded_.assign(static_cast<std::size_t>(events + 1), kNone);
        waited_for_.assign(threads_ * static_cast<std::size_t>(devices), kNone);
        d_.call_before.assign(t_.calls.size(), kNone);
        d_.call_behind.assign(t_.calls.size(), kNone);
        d_.operation_before.assign(operations, kNone);
        d_.operation_behind.assign(operations, kNone);
        d_.first_operation.assign(t_.calls.size() + 1, 0);
    }

    void edge(Index from_operation, Index to) { d_.edges.push_back({calls_ + from_operation, to}); }

    void thread(Index call) {
        Index& last = last_call_[t_.calls.thread[call]];
        d_.call_before[call] = last;
        if (last != kNone) d_.call_behind[last] = call;
        last = call;
        if (t_.calls.after[call] != kNone) d_.edges.push_back({t_.calls.after[call], call});
    }

    void act(Index call) {
        const auto what = static_cast<Act>(t_.calls.act[call]);
        const Index stream = t_.calls.act_stream[call], event = t_.calls.act_event[call];
        if (what == Act::none || stream == kNone || event == kNone) return;
        auto& pending = pending_events_[stream];
        if (what == Act::record_event) {
            recorded_[event] = last_in_stream_[stream];
            // The stream may itself wait for others that nothing in it waits for yet.
            if (!pending.empty())
                recorded_more_[event] = pending;
            else
                recorded_more_.erase(event);
        } else {
            each_recorded(event, [&](Index operation) { pending.push_back(operation); });
        }
    }

    template <typename Use>
    void each_recorded(Index event, Use use) const {
        if (recorded_[event] != kNone) use(recorded_[event]);
        if (const auto more = recorded_more_.find(event); more != recorded_more_.end())
            for (Index operation : more->second) use(operation);
    }

    void issue(Index operation) {
        const auto& o = t_.operations;
        const Index stream = o.stream[operation], node = calls_ + operation;
        const std::uint8_t unordered = o.unordered[operation];
        const Index before = last_in_stream_[stream];
        if (before != kNone && !(unordered & kNotInStream)) {
            d_.operation_before[operation] = before;
            d_.operation_behind[before] = operation;
        }
        if (!(unordered & kNotBehindOthers)) {
            for (Index other : pending_events_[stream]) edge(other, node);
        }
        pending_events_[stream].clear();
        if (o.after[operation] != kNone) edge(o.after[operation], node);
        barrier(operation, stream, !(unordered & kNotBehindBarrier));
        last_in_stream_[stream] = operation;
        if (t_.streams.device[stream] != kNone) recent_[t_.streams.device[stream]].used(stream);
    }

    void barrier(Index operation, Index stream, bool ordered) {
        const Index context = t_.streams.context[stream];
        const auto kind = static_cast<StreamKind>(t_.streams.kind[stream]);
        if (context == kNone || kind == StreamKind::non_blocking) return;
        Barrier& barrier = barriers_[context];
        if (kind == StreamKind::legacy) {
            for (Index other : barrier.used_since) {
                if (ordered) edge(last_in_stream_[other], calls_ + operation);
                used_since_barrier_[other] = 0;
            }
            barrier.used_since.clear();
            barrier.last = operation;
            return;
        }
        if (barrier.last != kNone && behind_barrier_[stream] != barrier.last) {
            behind_barrier_[stream] = barrier.last;
            if (ordered) edge(barrier.last, calls_ + operation);
        }
        if (!used_since_barrier_[stream]) {
            used_since_barrier_[stream] = 1;
            barrier.used_since.push_back(stream);
        }
    }

    void wait(Index call) {
        const Index key = t_.calls.wait_key[call];
        switch (static_cast<Wait>(t_.calls.wait[call])) {
            case Wait::none:
                break;
            case Wait::own:
                for (Index o = d_.first_operation[call];
                     o < static_cast<Index>(t_.operations.size()) && t_.operations.call[o] == call; ++o)
                    if (t_.operations.launched[o]) edge(o, call);
                break;
            case Wait::stream:
                if (key < 0 || key >= static_cast<Index>(t_.streams.size())) refuse("wait_key", call);
                if (last_in_stream_[key] != kNone) edge(last_in_stream_[key], call);
                for (Index operation : pending_events_[key]) edge(operation, call);
                break;
            case Wait::device:
                if (key < 0 || key >= static_cast<Index>(recent_.size())) refuse("wait_key", call);
                wait_for_device(call, key);
                break;
            case Wait::event:
                if (key < 0) refuse("wait_key", call);
                each_recorded(key, [&](Index operation) { edge(operation, call); });
                break;
            case Wait::operation:
                if (key < 0 || key >= static_cast<Index>(t_.operations.size()) ||
                    t_.operations.call[key] > call)
                    refuse("wait_key", call);
                edge(key, call);
                break;
            default:
                refuse("wait", call);
        }
    }

    // Streams that this thread has already waited for need no second look: the list is in order of last use.
    void wait_for_device(Index call, Index device) {
        Index& done = waited_for_[static_cast<std::size_t>(device) * threads_ + t_.calls.thread[call]];
        Index newest = done;
        for (Index stream = recent_[device].newest(); stream != kNone;
             stream = recent_[device].older(stream)) {
            const Index last = last_in_stream_[stream];
            if (last <= done) break;
            edge(last, call);
            newest = std::max(newest, last);
        }
        done = newest;
    }

    void link_edges() {
        d_.edge_first.assign(t_.calls.size() + t_.operations.size(), kNone);
        d_.edge_next.assign(d_.edges.size(), kNone);
        for (std::size_t at = d_.edges.size(); at-- > 0;) {
            d_.edge_next[at] = d_.edge_first[d_.edges[at].from];
            d_.edge_first[d_.edges[at].from] = static_cast<Index>(at);
        }
    }

    const Timeline& t_;
    const Index calls_;
    Dependencies d_;
    std::size_t threads_ = 0;
    std::vector<Index> last_call_, last_in_stream_, behind_barrier_, recorded_, waited_for_;
    std::unordered_map<Index, std::vector<Index>> recorded_more_;
    std::vector<std::vector<Index>> pending_events_;
    std::vector<RecentStreams> recent_;
    std::vector<Barrier> barriers_;
    std::vector<std::uint8_t> used_since_barrier_;
};

}  // namespace

Dependencies dependencies(const Timeline& timeline) {
    check(timeline);
    return Builder(timeline).build();
}

}  // namespace busfare::replay
