#include "intervals.hpp"

#include <algorithm>
#include <limits>

namespace busfare {

bool unite(const std::int64_t* starts, const std::int64_t* ends, const std::uint32_t* lane_of,
           const std::uint8_t* chosen, std::size_t rows, Intervals& united) {
    std::int64_t before = std::numeric_limits<std::int64_t>::min();
    std::int64_t start = 0, end = 0;
    bool open = false;
    for (std::size_t i = 0; i < rows; ++i) {
        if (!chosen[lane_of[i]]) continue;
        if (starts[i] < before) return false;
        before = starts[i];
        if (open && starts[i] <= end) {
            end = std::max(end, ends[i]);
            continue;
        }
        if (open) {
            united.starts.push_back(start);
            united.ends.push_back(end);
        }
        start = starts[i];
        end = ends[i];
        open = true;
    }
    if (open) {
        united.starts.push_back(start);
        united.ends.push_back(end);
    }
    return true;
}

bool longest_gaps(const std::int64_t* starts, const std::int64_t* ends, const std::uint32_t* lane_of,
                  const std::uint8_t* chosen, std::size_t rows, std::size_t most, Intervals& gaps) {
    struct Gap {
        std::uint64_t length;
        std::int64_t start, end;
    };
    std::vector<Gap> kept;  // longest first
    std::int64_t before = std::numeric_limits<std::int64_t>::min(), reached = before;
    bool open = false;
    for (std::size_t i = 0; i < rows; ++i) {
        if (!chosen[lane_of[i]]) continue;
        if (starts[i] < before) return false;
        before = starts[i];
        if (open && starts[i] > reached && most > 0) {
            const Gap gap{static_cast<std::uint64_t>(starts[i]) - static_cast<std::uint64_t>(reached),
                          reached, starts[i]};
            if (kept.size() < most || gap.length > kept.back().length) {
                if (kept.size() == most) kept.pop_back();
                const auto behind =
                    std::ranges::find_if(kept, [&](const Gap& other) { return other.length < gap.length; });
                kept.insert(behind, gap);
            }
        }
        reached = open ? std::max(reached, ends[i]) : ends[i];
        open = true;
    }
    for (const Gap& gap : kept) {
        gaps.starts.push_back(gap.start);
        gaps.ends.push_back(gap.end);
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
