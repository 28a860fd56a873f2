#include "check.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

namespace busfare::replay {
namespace {

void check_length(std::size_t length, std::size_t wanted, const char* column) {
    if (length != wanted) refuse(column, std::min(length, wanted));
}

bool is_rate(double value) {
    return std::isfinite(value) && value > 0;
}

// Neither overflows nor vanishes in products with rates.
bool is_factor(double value) {
    return value >= 1e-3 && value <= 1e3;
}

}  // namespace

void refuse(const char* column, std::size_t row) {
    throw std::invalid_argument(std::string("replay: column ") + column + ", row " + std::to_string(row) +
                                ": out of range or out of order");
}

Check::Check(const Timeline& timeline) : t_(timeline), joints_(!timeline.joints.begin.empty()) {
    const Calls& c = t_.calls;
    const Operations& o = t_.operations;
    const Streams& s = t_.streams;
    const Links& l = t_.links;
    constexpr auto most = static_cast<std::size_t>(std::numeric_limits<Index>::max()) / 2;
    if (c.size() + o.size() > most)
        throw std::invalid_argument("replay: more than a billion calls and operations");
    for (auto [length, name] : {std::pair{c.gap.size(), "call_gap"},
                                {c.busy.size(), "call_own"},
                                {c.after.size(), "call_after"},
                                {c.wait.size(), "call_wait"},
                                {c.wait_key.size(), "call_wait_key"},
                                {c.wait_lag.size(), "call_wait_lag"},
                                {c.act.size(), "call_act"},
                                {c.act_stream.size(), "call_act_stream"},
                                {c.act_event.size(), "call_act_event"}})
        check_length(length, c.size(), name);
    for (auto [length, name] : {std::pair{o.launched.size(), "operation_launched"},
                                {o.stream.size(), "operation_stream"},
                                {o.engine.size(), "operation_engine"},
                                {o.takes.size(), "operation_takes"},
                                {o.duration.size(), "operation_duration"},
                                {o.launch_lag.size(), "operation_launch_lag"},
                                {o.order_lag.size(), "operation_order_lag"},
                                {o.extra.size(), "operation_extra"},
                                {o.engine_lag.size(), "operation_engine_lag"},
                                {o.queue_key.size(), "operation_turn"},
                                {o.after.size(), "operation_after"},
                                {o.released.size(), "operation_released"},
                                {o.unordered.size(), "operation_unordered"},
                                {o.bytes_per_s.size(), "operation_bytes_per_s"},
                                {o.weight.size(), "operation_weight"}})
        check_length(length, o.size(), name);
    if (!o.link_begin.empty()) check_length(o.link_begin.size(), o.size() + 1, "operation_link_begin");
    check_length(o.link_cost.size(), o.links.size(), "operation_link_cost");
    check_length(c.awaits.size(), joints_ ? c.size() : 0, "call_awaits");
    check_length(o.awaits.size(), joints_ ? o.size() : 0, "operation_awaits");
    members();
    check_length(s.context.size(), s.size(), "stream_context");
    check_length(s.kind.size(), s.size(), "stream_kind");
    for (std::size_t row = 0; row < o.weight.size(); ++row)
        if (!is_factor(o.weight[row])) refuse("operation_weight", row);
    check_length(l.duplex_share.size(), l.bytes_per_s.size(), "link_both");
    check_length(l.opposite.size(), l.bytes_per_s.size(), "link_opposite");
    for (std::size_t row = 0; row < s.size(); ++row) {
        if (!none_or_within(s.device[row], s.size())) refuse("stream_device", row);
        if (!none_or_within(s.context[row], s.size())) refuse("stream_context", row);
        if (s.kind[row] > static_cast<std::uint8_t>(StreamKind::non_blocking)) refuse("stream_kind", row);
        devices_ = std::max(devices_, s.device[row] + 1);
        contexts_ = std::max(contexts_, s.context[row] + 1);
    }
    for (std::size_t row = 0; row < t_.engines.slots.size(); ++row)
        if (t_.engines.slots[row] < 1) refuse("engine_slots", row);
    for (std::size_t row = 0; row < l.bytes_per_s.size(); ++row) {
        if (!(l.bytes_per_s[row] > 0)) refuse("link_bytes_per_s", row);
        if (!is_rate(l.duplex_share[row])) refuse("link_both", row);
        if (!none_or_within(l.opposite[row], l.bytes_per_s.size())) refuse("link_opposite", row);
    }
}

void Check::key(std::size_t row) const {
    const Index key = t_.calls.wait_key[row];
    bool good = true;
    switch (static_cast<Wait>(t_.calls.wait[row])) {
        case Wait::none:
        case Wait::launches:
            break;
        case Wait::stream:
            good = within(key, t_.streams.size());
            break;
        case Wait::device:
            good = within(key, static_cast<std::size_t>(devices_));
            break;
        case Wait::event:
            good = key >= 0;
            break;
        case Wait::operation:
            good = within(key, t_.operations.size()) &&
                   t_.operations.call[static_cast<std::size_t>(key)] <= static_cast<Index>(row);
            break;
        default:
            refuse("call_wait", row);
    }
    if (!good) refuse("call_wait_key", row);
}

void Check::links(std::size_t row) const {
    const Operations& o = t_.operations;
    const std::int64_t begin = o.link_begin[row], end = o.link_begin[row + 1];
    if (begin < 0 || end < begin || end > static_cast<std::int64_t>(o.links.size()))
        refuse("operation_link_begin", row);
    for (auto at = static_cast<std::size_t>(begin); at < static_cast<std::size_t>(end); ++at) {
        if (!within(o.links[at], t_.links.bytes_per_s.size())) refuse("operation_links", at);
        if (!is_factor(o.link_cost[at])) refuse("operation_link_cost", at);
    }
}

void Check::members() const {
    const JointSets& j = t_.joints;
    constexpr auto most = static_cast<std::size_t>(std::numeric_limits<Index>::max());
    if (j.size() > most || j.members.size() > most)
        throw std::invalid_argument("replay: column joint_members: more than two billion joints or members");
    for (std::size_t row = 0; row < j.begin.size(); ++row)
        if (j.begin[row] < (row ? j.begin[row - 1] : 0)) refuse("joint_begin", row);
    if (joints_ ? j.begin.front() != 0 : !j.members.empty()) refuse("joint_begin", 0);
    if (joints_ && j.begin.back() != std::ssize(j.members)) refuse("joint_begin", j.size());
    for (std::size_t at = 0; at < j.members.size(); ++at)
        if (!within(j.members[at], t_.calls.size() + t_.operations.size())) refuse("joint_members", at);
}

void Check::awaits(std::size_t row) const {
    const Operations& o = t_.operations;
    const bool links = !o.link_begin.empty() && o.link_begin[row] != o.link_begin[row + 1];
    if (!within(o.awaits[row], t_.joints.size()) || o.engine[row] != kNone || links)
        refuse("operation_awaits", row);
}

void check_times(std::span<const Time> start, std::span<const Time> end, std::size_t rows,
                 const char* start_column, const char* end_column) {
    check_length(start.size(), rows, start_column);
    check_length(end.size(), rows, end_column);
    for (std::size_t row = 0; row < rows; ++row) {
        if (start[row] < -kLongest || start[row] > kLongest) refuse(start_column, row);
        if (end[row] < start[row] || end[row] > kLongest) refuse(end_column, row);
    }
}

void check(const Timeline& timeline) {
    Check check(timeline);
    for (std::size_t row = 0; row < timeline.calls.size(); ++row) check.call(row);
    for (std::size_t row = 0; row < timeline.operations.size(); ++row) check.operation(row);
}

}  // namespace busfare::replay
