#include "dependencies.hpp"

#include <algorithm>
#include <limits>
#include <span>
#include <stdexcept>
#include <unordered_map>

#include "check.hpp"

namespace busfare::replay {
namespace {

// The streams of each device, the last used first: what a device synchronisation has to look at.
class RecentStreams {
  public:
    RecentStreams(Index devices, std::size_t streams)
        : newest_(static_cast<std::size_t>(devices), kNone), newer_(streams, kNone), older_(streams, kNone) {}

    void used(Index device, Index stream) {
        Index& newest = newest_[device];
        if (newest == stream) return;
        if (newer_[stream] != kNone) {
            older_[newer_[stream]] = older_[stream];
            if (older_[stream] != kNone) newer_[older_[stream]] = newer_[stream];
        }
        newer_[stream] = kNone;
        older_[stream] = newest;
        if (newest != kNone) newer_[newest] = stream;
        newest = stream;
    }
    Index newest(Index device) const { return newest_[device]; }
    Index older(Index stream) const { return older_[stream]; }

  private:
    std::vector<Index> newest_, newer_, older_;
};

// Legacy default-stream order within one context: its null stream waits for all, and all wait for it.
struct Barrier {
    Index last = kNone;             // the last operation of the null stream
    std::vector<Index> used_since;  // blocking streams that ran something since
};

class Builder {
  public:
    explicit Builder(const Timeline& timeline)
        : t_(timeline),
          check_(timeline),
          calls_(static_cast<Index>(timeline.calls.size())),
          operations_(static_cast<Index>(timeline.operations.size())),
          recent_(check_.devices(), timeline.streams.size()) {
        const std::size_t streams = t_.streams.size(), calls = t_.calls.size();
        last_call_.assign(calls, kNone);
        last_in_stream_.assign(streams, kNone);
        pending_.resize(streams);
        barriers_.resize(static_cast<std::size_t>(check_.contexts()));
        used_since_barrier_.assign(streams, 0);
        behind_barrier_.assign(streams, kNone);
        d_.call_behind.assign(calls, kNone);
        d_.operation_behind.assign(t_.operations.size(), kNone);
        d_.first_operation.resize(calls + 1);
        d_.start_waits.assign(calls, 0);
        d_.return_waits.assign(calls, 1);
        d_.operation_waits.resize(t_.operations.size());
    }

    Dependencies build() {
        Index operation = 0;
        while (operation < operations_ && t_.operations.call[operation] == kNone) issue(operation++);
        for (Index call = 0; call < calls_; ++call) {
            check_.call(static_cast<std::size_t>(call));
            d_.first_operation[call] = operation;
            thread(call);
            if (t_.calls.act[call] != 0) act(call);
            while (operation < operations_ && t_.operations.call[operation] == call) issue(operation++);
            if (t_.calls.wait[call] != 0) wait(call, operation);
        }
        d_.first_operation[calls_] = operation;
        // What is left is out of order; so the check says.
        while (operation < operations_) check_.operation(static_cast<std::size_t>(operation++));
        link_edges();
        return std::move(d_);
    }

  private:
    void edge(Index from_operation, Index to, std::uint8_t order = 0) {
        if (d_.edges.size() >= static_cast<std::size_t>(std::numeric_limits<Index>::max()))
            throw std::invalid_argument("replay: column call_wait: more than two billion waits");
        d_.edges.push_back({calls_ + from_operation, to, order});
        to < calls_ ? ++d_.return_waits[to] : ++d_.operation_waits[to - calls_];
    }

    void thread(Index call) {
        Index& last = last_call_[t_.calls.thread[call]];
        if (last != kNone) {
            d_.call_behind[last] = call;
            ++d_.start_waits[call];
        }
        last = call;
        if (t_.calls.after[call] != kNone) {
            d_.edges.push_back({t_.calls.after[call], call});
            ++d_.start_waits[call];
        }
        if (d_.start_waits[call] == 0) d_.roots.push_back(call);
    }

    void act(Index call) {
        const Index stream = t_.calls.act_stream[call], event = t_.calls.act_event[call];
        if (stream == kNone || event == kNone) return;
        if (static_cast<Act>(t_.calls.act[call]) == Act::record_event) {
            // The stream may itself wait for others that nothing in it waits for yet.
            auto& recorded = recorded_[event];
            recorded = pending_[stream];
            for (Index used : implied_by(stream)) add(recorded, last_in_stream_[used]);
            if (last_in_stream_[stream] != kNone) add(recorded, last_in_stream_[stream]);
        } else if (const auto record = recorded_.find(event); record != recorded_.end()) {
            for (Index operation : record->second) add(pending_[stream], operation);
        }
    }

    // What the null stream stands for, whether or not anything runs in it: blocking streams used since it
    // last ran something.
    std::span<const Index> implied_by(Index stream) const {
        const Index context = t_.streams.context[stream];
        if (context == kNone || static_cast<StreamKind>(t_.streams.kind[stream]) != StreamKind::legacy)
            return {};
        return barriers_[context].used_since;
    }

    // Of each stream the last operation is enough: lists never grow beyond the number of streams.
    void add(std::vector<Index>& operations, Index operation) const {
        for (Index& newest : operations) {
            if (t_.operations.stream[newest] == t_.operations.stream[operation]) {
                newest = std::max(newest, operation);
                return;
            }
        }
        operations.push_back(operation);
    }

    void issue(Index operation) {
        check_.operation(static_cast<std::size_t>(operation));
        const auto& o = t_.operations;
        const Index stream = o.stream[operation], node = calls_ + operation;
        const std::uint8_t unordered = o.unordered[operation];
        const Index before = last_in_stream_[stream];
        d_.operation_waits[operation] = o.launched[operation] != 0;
        if (before != kNone && !(unordered & kNotInStream)) {
            d_.operation_behind[before] = operation;
            ++d_.operation_waits[operation];
        }
        if (auto& pending = pending_[stream]; !pending.empty()) {
            if (!(unordered & kNotBehindEvents))
                for (Index earlier : pending) edge(earlier, node, kNotBehindEvents);
            pending.clear();
        }
        if (o.after[operation] != kNone) edge(o.after[operation], node);
        barrier(operation, stream, !(unordered & kNotBehindBarrier));
        last_in_stream_[stream] = operation;
        if (t_.streams.device[stream] != kNone) recent_.used(t_.streams.device[stream], stream);
        if (d_.operation_waits[operation] == 0) d_.roots.push_back(node);
    }

    void barrier(Index operation, Index stream, bool ordered) {
        const Index context = t_.streams.context[stream];
        const auto kind = static_cast<StreamKind>(t_.streams.kind[stream]);
        if (context == kNone || kind == StreamKind::non_blocking) return;
        Barrier& barrier = barriers_[context];
        if (kind == StreamKind::legacy) {
            for (Index used : barrier.used_since) {
                if (ordered) edge(last_in_stream_[used], calls_ + operation, kNotBehindBarrier);
                used_since_barrier_[used] = 0;
            }
            barrier.used_since.clear();
            barrier.last = operation;
            return;
        }
        if (barrier.last != kNone && behind_barrier_[stream] != barrier.last) {
            behind_barrier_[stream] = barrier.last;
            if (ordered) edge(barrier.last, calls_ + operation, kNotBehindBarrier);
        }
        if (!used_since_barrier_[stream]) {
            used_since_barrier_[stream] = 1;
            barrier.used_since.push_back(stream);
        }
    }

    // `issued` operations were so far.
    void wait(Index call, Index issued) {
        const Index key = t_.calls.wait_key[call];
        switch (static_cast<Wait>(t_.calls.wait[call])) {
            case Wait::none:
                break;
            case Wait::launches:
                for (Index o = d_.first_operation[call]; o < issued; ++o)
                    if (t_.operations.launched[o]) edge(o, call);
                break;
            case Wait::stream:
                if (last_in_stream_[key] != kNone) edge(last_in_stream_[key], call);
                for (Index operation : pending_[key]) edge(operation, call);
                for (Index used : implied_by(key)) edge(last_in_stream_[used], call);
                break;
            case Wait::device:
                wait_for_device(call, key);
                break;
            case Wait::event:
                if (const auto record = recorded_.find(key); record != recorded_.end())
                    for (Index operation : record->second) edge(operation, call);
                break;
            case Wait::operation:
                if (key >= issued) refuse("call_wait_key", static_cast<std::size_t>(call));
                edge(key, call);
                break;
        }
    }

    // Streams that this thread has already waited for need no second look: the list is in order of last use.
    void wait_for_device(Index call, Index device) {
        const auto thread = static_cast<std::uint64_t>(t_.calls.thread[call]);
        Index& done =
            waited_for_.try_emplace(thread << 32 | static_cast<std::uint64_t>(device), kNone).first->second;
        Index newest = done;
        for (Index stream = recent_.newest(device); stream != kNone; stream = recent_.older(stream)) {
            const Index last = last_in_stream_[stream];
            if (last <= done) break;
            edge(last, call);
            newest = std::max(newest, last);
        }
        done = newest;
    }

    void link_edges() {
        d_.edge_first.assign(t_.calls.size() + t_.operations.size(), kNone);
        d_.edge_next.resize(d_.edges.size());
        for (std::size_t at = d_.edges.size(); at-- > 0;) {
            d_.edge_next[at] = d_.edge_first[d_.edges[at].from];
            d_.edge_first[d_.edges[at].from] = static_cast<Index>(at);
        }
    }

    const Timeline& t_;
    Check check_;
    const Index calls_, operations_;
    Dependencies d_;
    RecentStreams recent_;
    std::vector<Index> last_call_, last_in_stream_, behind_barrier_;
    std::vector<std::vector<Index>> pending_;  // by stream: what its next operation waits for
    std::unordered_map<Index, std::vector<Index>> recorded_;
    std::unordered_map<std::uint64_t, Index> waited_for_;  // by thread and device: the newest operation
    std::vector<Barrier> barriers_;
    std::vector<std::uint8_t> used_since_barrier_;
};

}  // namespace

Dependencies dependencies(const Timeline& timeline) {
    return Builder(timeline).build();
}

}  // namespace busfare::replay
