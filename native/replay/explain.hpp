// Takes a recorded run apart: how much of each wait its dependencies explain, and what is left over.
#pragma once

#include <array>
#include <vector>

#include "dependencies.hpp"

namespace busfare::replay {

// When things happened, and of what class each is: classes share their typical lags.
struct Recorded {
    std::span<const Time> call_start, call_end;
    std::span<const Time> operation_start, operation_end;
    std::span<const std::uint8_t> call_class;       // by name
    std::span<const std::uint8_t> operation_class;  // by kind and memory
    std::span<const std::uint8_t> operation_unit;   // of the GPU: what follows on another unit starts later
};

// Columns of a timeline that replays as it was recorded.
struct Explained {
    std::vector<Time> busy, wait_lag;  // of calls
    // Of calls: what is left of a wait where the recording contradicts a part of it.
    std::vector<std::uint8_t> wait;
    std::vector<Index> wait_key;
    std::vector<Time> launch_lag, order_lag, extra;  // of operations
    std::vector<std::uint8_t> unordered;             // of operations
    // By class; `order` behind work of the same unit, `unit_change` behind that of another.
    std::array<Time, 256> typical_launch{}, typical_order{}, typical_unit_change{}, typical_call{};
    // Waits of which nothing is left, waits of which a part is, orders between operations that do not hold.
    std::int64_t waits_dropped = 0, waits_narrowed = 0, orders_dropped = 0;
};

// `timeline` with what the trace says; its own, lags, extra and unordered columns are not looked at.
Explained explain(const Timeline& timeline, const Recorded& recorded);

}  // namespace busfare::replay
