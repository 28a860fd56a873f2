#include "lengths.hpp"

#include <algorithm>
#include <exception>
#include <limits>
#include <thread>

namespace busfare {

namespace {

constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
// From here on a second thread is worth its start.
constexpr std::size_t kForTwo = 1 << 18;
constexpr std::size_t kBlock = 4096;  // rows whose marks stay in the processor's cache

// What one pass over some intervals knows of each set's union.
struct Swept {
    Swept() { std::fill_n(reached, kMostSets, kLeast); }
    std::int64_t reached[kMostSets];     // its end so far
    std::uint64_t sums[kMostSets] = {};  // as unsigned: sums of impossible times may wrap, but not overflow
};

std::uint64_t distance(std::int64_t from, std::int64_t to) {
    return static_cast<std::uint64_t>(to) - static_cast<std::uint64_t>(from);
}

// Adds the intervals from `begin` to `end`. False if they are not in order.
bool sweep(const LaneIntervals& intervals, const std::uint64_t* sets_of, std::size_t begin, std::size_t end,
           Swept& swept) {
    std::int64_t before = begin == 0 ? kLeast : intervals.starts[begin - 1];
    for (std::size_t i = begin; i < end; ++i) {
        const std::int64_t start = intervals.starts[i], ended = intervals.ends[i];
        if (start < before) return false;
        before = start;
        for (std::uint64_t left = sets_of[intervals.lane_of[i]]; left != 0; left &= left - 1) {
            const int set = __builtin_ctzll(left);
            if (ended <= swept.reached[set]) continue;
            swept.sums[set] += distance(std::max(start, swept.reached[set]), ended);
            swept.reached[set] = ended;
        }
    }
    return true;
}

// Of the intervals from `begin` on, how much of each set's union lies before the end that it had reached
// there.
void overlap(const LaneIntervals& intervals, const std::uint64_t* sets_of, std::size_t begin,
             const Swept& first, Swept& found) {
    const std::int64_t last = *std::ranges::max_element(first.reached);
    for (std::size_t i = begin; i < intervals.count && intervals.starts[i] < last; ++i) {
        for (std::uint64_t left = sets_of[intervals.lane_of[i]]; left != 0; left &= left - 1) {
            const int set = __builtin_ctzll(left);
            const std::int64_t start = std::max(intervals.starts[i], found.reached[set]);
            const std::int64_t end = std::min(intervals.ends[i], first.reached[set]);
            if (end <= start) continue;
            found.sums[set] += distance(start, end);
            found.reached[set] = end;
        }
    }
}

}  // namespace

bool lengths(const LaneIntervals& intervals, const std::uint64_t* sets_of, std::size_t sets,
             std::vector<std::int64_t>& found) {
    const std::size_t half = intervals.count < kForTwo ? intervals.count : intervals.count / 2;
    Swept first, second, twice;
    bool in_order = true, later_in_order = true;
    {
        std::jthread beside;
        if (half < intervals.count) {
            beside = std::jthread(
                [&] { later_in_order = sweep(intervals, sets_of, half, intervals.count, second); });
        }
        in_order = sweep(intervals, sets_of, 0, half, first);
    }
    if (!in_order || !later_in_order) return false;
    overlap(intervals, sets_of, half, first, twice);
    found.resize(sets);
    for (std::size_t set = 0; set < sets; ++set) {
        found[set] = static_cast<std::int64_t>(first.sums[set] + second.sums[set] - twice.sums[set]);
    }
    return true;
}

std::optional<std::int64_t> length_with(const LaneIntervals& intervals, const std::uint8_t* chosen,
                                        const std::uint32_t* rows, std::size_t count) {
    std::int64_t before = kLeast, reached = kLeast;
    std::uint64_t sum = 0;
    std::size_t next = 0;  // of `rows`
    bool in_order = true;
    std::uint8_t named[kBlock];
    for (std::size_t first = 0; first < intervals.count; first += kBlock) {
        const std::size_t size = std::min(kBlock, intervals.count - first);
        std::fill_n(named, size, std::uint8_t{0});
        for (; next < count && rows[next] < first + size; ++next) {
            if (rows[next] < first) return std::nullopt;
            named[rows[next] - first] = 1;
        }
        // By no branch on which are taken, for that cannot be foretold.
        for (std::size_t k = 0; k < size; ++k) {
            const std::size_t i = first + k;
            const std::int64_t start = intervals.starts[i];
            in_order &= start >= before;
            before = start;
            const bool taken = (named[k] | chosen[intervals.lane_of[i]]) != 0;
            const std::int64_t end = taken ? intervals.ends[i] : kLeast;
            const std::int64_t from = std::max(start, reached);
            sum += end > reached ? distance(from, end) : 0;
            reached = std::max(reached, end);
        }
    }
    if (!in_order || next < count) return std::nullopt;
    return static_cast<std::int64_t>(sum);
}

}  // namespace busfare
