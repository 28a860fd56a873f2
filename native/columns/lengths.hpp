// How long unions of intervals are, of many sets of lanes at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace busfare {

// Intervals in lanes, in order of their starts.
struct LaneIntervals {
    const std::int64_t* starts;
    const std::int64_t* ends;
    const std::uint32_t* lane_of;
    std::size_t count;
};

constexpr std::size_t kMostSets = 64;

// The lengths of the unions of `sets` sets of lanes (at most kMostSets); bit k of sets_of[lane]: whether the
// lane is in set k. False if the intervals are not in order.
bool lengths(const LaneIntervals& intervals, const std::uint64_t* sets_of, std::size_t sets,
             std::vector<std::int64_t>& found);

// The length of the union of the intervals in chosen lanes and of `rows`, `count` of them. Nothing if
// intervals or rows are not in order.
std::optional<std::int64_t> length_with(const LaneIntervals& intervals, const std::uint8_t* chosen,
                                        const std::uint32_t* rows, std::size_t count);

}  // namespace busfare
