// Whether columns make a timeline: every number within its table, every time within what can be added up.
#pragma once

#include <limits>

#include "timeline.hpp"

namespace busfare::replay {

// No run lasts longer, nor do all times of a timeline together: 73 years. Twice this still fits Time.
inline constexpr Time kLongest = Time{1} << 61;

[[noreturn]] void refuse(const char* column, std::size_t row);

// Throws std::invalid_argument naming column and row. It looks at one row at a time, so that whoever goes
// through the rows anyway reads them once.
class Check {
  public:
    explicit Check(const Timeline& timeline);  // lengths, streams, engines, links and members
    void call(std::size_t row);
    void operation(std::size_t row);
    Index devices() const { return devices_; }
    Index contexts() const { return contexts_; }

  private:
    static bool within(Index value, std::size_t limit) {
        return value >= 0 && static_cast<std::size_t>(value) < limit;
    }
    static bool none_or_within(Index value, std::size_t limit) {
        return value == kNone || within(value, limit);
    }
    // Fits whatever is added: the total stays below 2^61 and no magnitude is above 2^63.
    void add(Time time, const char* column, std::size_t row) {
        total_ += time < 0 ? 0 - static_cast<std::uint64_t>(time) : static_cast<std::uint64_t>(time);
        if (total_ > static_cast<std::uint64_t>(kLongest)) refuse(column, row);
    }
    void key(std::size_t row) const;
    void links(std::size_t row) const;
    void members() const;
    void awaits(std::size_t row) const;  // of an operation

    const Timeline& t_;
    const bool joints_;
    Index devices_ = 0, contexts_ = 0;
    std::uint64_t total_ = 0;
};

// The whole timeline at once.
void check(const Timeline& timeline);

// Recorded times of `rows` things: none ends before it starts.
void check_times(std::span<const Time> start, std::span<const Time> end, std::size_t rows,
                 const char* start_column, const char* end_column);

inline void Check::call(std::size_t row) {
    const Calls& c = t_.calls;
    if (!within(c.thread[row], c.size())) refuse("call_thread", row);
    if (c.gap[row] < 0) refuse("call_gap", row);
    if (c.busy[row] < 0) refuse("call_own", row);
    if (!none_or_within(c.after[row], row)) refuse("call_after", row);
    add(c.gap[row], "call_gap", row);
    add(c.busy[row], "call_own", row);
    add(c.wait_lag[row], "call_wait_lag", row);
    if (c.wait[row] != 0) key(row);
    if (c.act[row] != 0) {
        if (c.act[row] > static_cast<std::uint8_t>(Act::wait_for_event)) refuse("call_act", row);
        if (!none_or_within(c.act_stream[row], t_.streams.size())) refuse("call_act_stream", row);
        if (c.act_event[row] < kNone) refuse("call_act_event", row);
    }
    if (joints_ && !none_or_within(c.awaits[row], t_.joints.size())) refuse("call_awaits", row);
}

inline void Check::operation(std::size_t row) {
    const Operations& o = t_.operations;
    const Index before = row ? o.call[row - 1] : kNone;
    if (o.call[row] < before || !none_or_within(o.call[row], t_.calls.size())) refuse("operation_call", row);
    if (o.launched[row] && o.call[row] == kNone) refuse("operation_launched", row);
    if (!within(o.stream[row], t_.streams.size())) refuse("operation_stream", row);
    if (!none_or_within(o.engine[row], t_.engines.slots.size())) refuse("operation_engine", row);
    if (o.takes[row] < 1 || (o.engine[row] != kNone && o.takes[row] > t_.engines.slots[o.engine[row]]))
        refuse("operation_takes", row);
    if (!none_or_within(o.after[row], row)) refuse("operation_after", row);
    if (o.duration[row] < 0) refuse("operation_duration", row);
    if (o.extra[row] < 0) refuse("operation_extra", row);
    if (o.released[row] > kLongest) refuse("operation_released", row);
    add(o.duration[row], "operation_duration", row);
    add(o.launch_lag[row], "operation_launch_lag", row);
    add(o.order_lag[row], "operation_order_lag", row);
    add(o.extra[row], "operation_extra", row);
    add(o.engine_lag[row], "operation_engine_lag", row);
    if (o.unordered[row] > (kNotInStream | kNotBehindBarrier | kNotBehindEvents))
        refuse("operation_unordered", row);
    // Also where it is not a number.
    if (!(o.bytes_per_s[row] >= 0 && o.bytes_per_s[row] <= std::numeric_limits<double>::max()))
        refuse("operation_bytes_per_s", row);
    if (!o.link_begin.empty()) links(row);
    if (joints_ && o.awaits[row] != kNone) awaits(row);
}

}  // namespace busfare::replay
