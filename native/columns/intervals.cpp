#include "intervals.hpp"

#include <algorithm>
#include <limits>
#include <system_error>
#include <thread>

namespace busfare {

namespace {

constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
// From here on a second thread is worth its start.
constexpr std::size_t kForTwo = 1 << 18;

// What one pass over some intervals knows of each set's union.
struct Swept {
    Swept() { std::fill_n(end, kMostSets, kLeast); }
    std::int64_t end[kMostSets];         // so far
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
            if (ended <= swept.end[set]) continue;
            swept.sums[set] += distance(std::max(start, swept.end[set]), ended);
            swept.end[set] = ended;
        }
    }
    return true;
}

// Of the intervals from `begin` on, how much of each set's union lies before its end in `first`.
void overlap(const LaneIntervals& intervals, const std::uint64_t* sets_of, std::size_t begin,
             const Swept& first, Swept& twice) {
    const std::int64_t last = *std::ranges::max_element(first.end);
    for (std::size_t i = begin; i < intervals.count && intervals.starts[i] < last; ++i) {
        for (std::uint64_t left = sets_of[intervals.lane_of[i]]; left != 0; left &= left - 1) {
            const int set = __builtin_ctzll(left);
            const std::int64_t start = std::max(intervals.starts[i], twice.end[set]);
            const std::int64_t end = std::min(intervals.ends[i], first.end[set]);
            if (end <= start) continue;
            twice.sums[set] += distance(start, end);
            twice.end[set] = end;
        }
    }
}

}  // namespace

bool unite(const LaneIntervals& intervals, const std::uint8_t* chosen, Intervals& united) {
    std::int64_t before = kLeast, start = 0, end = 0;
    bool open = false;
    const auto close = [&] {
        united.starts.push_back(start);
        united.ends.push_back(end);
    };
    for (std::size_t i = 0; i < intervals.count; ++i) {
        if (!chosen[intervals.lane_of[i]]) continue;
        const std::int64_t next = intervals.starts[i];
        if (next < before) return false;
        before = next;
        if (open && next <= end) {
            end = std::max(end, intervals.ends[i]);
            continue;
        }
        if (open) close();
        start = next;
        end = intervals.ends[i];
        open = true;
    }
    if (open) close();
    return true;
}

bool lengths(const LaneIntervals& intervals, const std::uint64_t* sets_of, std::size_t sets,
             std::vector<std::int64_t>& lengths) {
    const std::size_t half = intervals.count < kForTwo ? intervals.count : intervals.count / 2;
    Swept first, second, twice;
    bool in_order = true, later_in_order = true;
    {
        std::jthread later;
        const auto rest = [&] { later_in_order = sweep(intervals, sets_of, half, intervals.count, second); };
        try {
            if (half < intervals.count) later = std::jthread(rest);
        } catch (const std::system_error&) {
            rest();  // no thread is to be had
        }
        in_order = sweep(intervals, sets_of, 0, half, first);
    }
    if (!in_order || !later_in_order) return false;
    overlap(intervals, sets_of, half, first, twice);
    lengths.resize(sets);
    for (std::size_t set = 0; set < sets; ++set) {
        lengths[set] = static_cast<std::int64_t>(first.sums[set] + second.sums[set] - twice.sums[set]);
    }
    return true;
}

std::int64_t shared(const std::int64_t* a_starts, const std::int64_t* a_ends, std::size_t a,
                    const std::int64_t* b_starts, const std::int64_t* b_ends, std::size_t b) {
    std::int64_t sum = 0;
    for (std::size_t i = 0, j = 0; i < a && j < b;) {
        sum += std::max<std::int64_t>(0, std::min(a_ends[i], b_ends[j]) - std::max(a_starts[i], b_starts[j]));
        if (a_ends[i] < b_ends[j]) {
            ++i;
        } else {
            ++j;
        }
    }
    return sum;
}

}  // namespace busfare
