// Which work a stream waits for where a trace has the calls that record events and wait for them, but names
// no event: by the order of the calls and the times of the work.
#pragma once

#include <vector>

#include "timeline.hpp"

namespace busfare::replay {

enum class Called : std::uint8_t { launch, record, wait };

// The calls that launch, record an event or make a stream wait, in their order. Of launches: the stream and
// the start of their first operation, the stream and the end of their last. `row`: what a pair calls them.
struct EventCalls {
    std::span<const Index> row;
    std::span<const std::uint8_t> kind;
    std::span<const Index> thread, process;
    std::span<const Time> time;
    std::span<const Index> first_stream, last_stream;
    std::span<const Time> first_start, last_end;
    std::size_t size() const { return row.size(); }
};

// A record of an event and a wait for it, and the streams of both.
struct EventPair {
    Index record, recorded, wait, waiting;
};

// Throws std::invalid_argument for columns of different sizes, numbers below zero or kinds that are none.
std::vector<EventPair> unnamed_events(const EventCalls& calls);

}  // namespace busfare::replay
