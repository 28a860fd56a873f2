#include "lengths.hpp"

#include <algorithm>
#include <limits>

namespace busfare {

bool lengths(const LaneIntervals& intervals, const std::uint64_t* sets_of, std::size_t sets,
             std::vector<std::int64_t>& found) {
    constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
    std::int64_t reached[kMostSets];  // the end of the set's union so far
    std::fill_n(reached, kMostSets, kLeast);
    std::uint64_t sums[kMostSets] = {};  // as unsigned: sums of impossible times may wrap, but not overflow
    std::int64_t before = kLeast;
    for (std::size_t i = 0; i < intervals.count; ++i) {
        const std::int64_t start = intervals.starts[i], end = intervals.ends[i];
        if (start < before) return false;
        before = start;
        for (std::uint64_t left = sets_of[intervals.lane_of[i]]; left != 0; left &= left - 1) {
            const int set = __builtin_ctzll(left);
            if (end <= reached[set]) continue;
            sums[set] +=
                static_cast<std::uint64_t>(end) - static_cast<std::uint64_t>(std::max(start, reached[set]));
            reached[set] = end;
        }
    }
    found.resize(sets);
    for (std::size_t set = 0; set < sets; ++set) found[set] = static_cast<std::int64_t>(sums[set]);
    return true;
}

std::optional<std::int64_t> length_with(const LaneIntervals& intervals, const std::uint8_t* chosen,
                                        const std::uint32_t* rows, std::size_t count) {
    std::int64_t before = std::numeric_limits<std::int64_t>::min(), reached = before;
    std::uint64_t sum = 0;
    std::size_t next = 0;  // of `rows`
    for (std::size_t i = 0; i < intervals.count; ++i) {
        const std::int64_t start = intervals.starts[i], end = intervals.ends[i];
        if (start < before) return std::nullopt;
        before = start;
        const bool named = next < count && rows[next] == i;
        next += named;
        if (next < count && rows[next] <= i) return std::nullopt;
        if (!(named || chosen[intervals.lane_of[i]]) || end <= reached) continue;
        sum += static_cast<std::uint64_t>(end) - static_cast<std::uint64_t>(std::max(start, reached));
        reached = end;
    }
    if (next < count) return std::nullopt;
    return static_cast<std::int64_t>(sum);
}

}  // namespace busfare
