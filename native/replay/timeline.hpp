// A run as columns: what host threads called, what ran on the GPUs for it, and what each waits for.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

namespace busfare::replay {

using Time = std::int64_t;  // nanoseconds
inline constexpr Time kNever = std::numeric_limits<Time>::min();
using Index = std::int32_t;  // a row of a table; kNone: no row
inline constexpr Index kNone = -1;

// What a call waits for before it returns; `key` is the row or the number that it names.
enum class Wait : std::uint8_t { none, launches, stream, device, event, operation };
// What a call does to a stream besides launching operations.
enum class Act : std::uint8_t { none, record_event, wait_for_event };
enum class StreamKind : std::uint8_t { legacy, blocking, non_blocking };

// Orders that an operation does not keep, since the recording shows it breaking them.
enum Unordered : std::uint8_t { kNotInStream = 1, kNotBehindBarrier = 2, kNotBehindEvents = 4 };

// Host calls, sorted by recorded start. A call starts `gap` after the thread's call before it has ended or,
// where another thread hands the work over, after that call (`after`); it lasts `busy` plus what it waits.
struct Calls {
    std::span<const Index> thread;
    std::span<const Time> gap, busy;
    std::span<const Index> after;
    std::span<const std::uint8_t> wait;
    std::span<const Index> wait_key;
    std::span<const Time> wait_lag;  // from the end of what was waited for to the return; may be negative
    std::span<const std::uint8_t> act;
    std::span<const Index> act_stream, act_event;
    std::span<const Index> awaits;  // a joint, or empty where there is none
    std::size_t size() const { return thread.size(); }
};

// Work on the GPUs, sorted by `call`: the call that launched it or, where `launched` is 0, the last call
// before it.
struct Operations {
    std::span<const Index> call;
    std::span<const std::uint8_t> launched;
    std::span<const Index> stream, engine;  // engine: kNone where nothing can be in its way
    std::span<const Index> takes;           // slots of its engine, from 1 to all of them
    std::span<const Time> duration;
    std::span<const Time> launch_lag, order_lag, extra;
    std::span<const Time> engine_lag;  // behind another that took all of its engine
    std::span<const Time> queue_key;   // of those that wait for an engine, the least goes first
    std::span<const Index> after;      // an operation with a smaller row that must have ended
    std::span<const Time> released;    // not before this time, whatever else
    std::span<const std::uint8_t> unordered;
    std::span<const double> bytes_per_s;       // alone on its links; 0: shares none
    std::span<const double> weight;            // its part of a full link beside others'
    std::span<const std::int64_t> link_begin;  // rows + 1 places in `links`, or empty
    std::span<const Index> links;
    std::span<const double> link_cost;  // by place in `links`: bytes of the link that each of its bytes takes
    std::span<const Index> awaits;  // a joint, or empty where there is none; then without engine and links
    std::size_t size() const { return call.size(); }
};

struct Streams {
    std::span<const Index> device, context;
    std::span<const std::uint8_t> kind;
    std::size_t size() const { return device.size(); }
};

struct Engines {
    std::span<const Index> slots;  // how many operations of one slot run at once
};

// Links that several engines share, bytes per second; infinite: never full. While `opposite` is in use, too,
// the rate is `duplex_share` of it.
struct Links {
    std::span<const double> bytes_per_s, duplex_share;
    std::span<const Index> opposite;
};

// Sets of nodes (a call's row, or number of calls + an operation's row) that arrive as they start, each in
// any number of joints, whether or not it awaits one. A call that awaits a joint returns no earlier than its
// own time after the last of them. An operation that does begins when it is ready, and ends its duration
// after the last of them or after its own start, whichever is later: its duration is the transfer alone.
struct JointSets {
    std::span<const std::int64_t> begin;  // joints + 1 places in `members`, or empty
    std::span<const Index> members;
    std::size_t size() const { return begin.empty() ? 0 : begin.size() - 1; }
    std::span<const Index> of(std::size_t joint) const {
        const auto first = static_cast<std::size_t>(begin[joint]);
        return members.subspan(first, static_cast<std::size_t>(begin[joint + 1]) - first);
    }
};

struct Timeline {
    Calls calls;
    Operations operations;
    Streams streams;
    Engines engines;
    Links links;
    JointSets joints = {};
};

}  // namespace busfare::replay
