// Unions of intervals of time, in passes over intervals in order of their starts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace busfare {

struct Intervals {
    std::vector<std::int64_t> starts, ends;
};

// Intervals in lanes, in order of their starts.
struct LaneIntervals {
    const std::int64_t* starts;
    const std::int64_t* ends;
    const std::uint32_t* lane_of;
    std::size_t count;
};

// The union of the intervals whose lane is chosen. Intervals that touch are joined. Gives false if they are
// not in order of their starts.
bool unite(const LaneIntervals& intervals, const std::uint8_t* chosen, Intervals& united);

constexpr std::size_t kMostSets = 64;

// The lengths of the unions of `sets` sets of lanes (at most kMostSets); bit k of sets_of[lane]: whether the
// lane is in set k. False if the intervals are not in order.
bool lengths(const LaneIntervals& intervals, const std::uint64_t* sets_of, std::size_t sets,
             std::vector<std::int64_t>& lengths);

// Nanoseconds that lie in two unions at once.
std::int64_t shared(const std::int64_t* a_starts, const std::int64_t* a_ends, std::size_t a,
                    const std::int64_t* b_starts, const std::int64_t* b_ends, std::size_t b);

}  // namespace busfare
