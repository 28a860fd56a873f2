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
                  const std::uint32_t* set_of, std::size_t rows, std::size_t sets, std::size_t most,
                  std::vector<Intervals>& gaps) {
    struct Gap {
        std::uint64_t length;
        std::int64_t start, end;
    };
    struct Set {
        std::int64_t reached =
            std::numeric_limits<std::int64_t>::max();  // so that no gap is before the first
        std::vector<Gap> kept;                         // longest first
    };
    std::vector<Set> found(sets);
    std::int64_t before = std::numeric_limits<std::int64_t>::min();
    for (std::size_t i = 0; i < rows; ++i) {
        const std::uint32_t number = set_of[lane_of[i]];
        if (number >= sets) continue;
        if (starts[i] < before) return false;
        before = starts[i];
        auto& [reached, kept] = found[number];
        if (starts[i] > reached && most > 0) {
            const Gap gap{static_cast<std::uint64_t>(starts[i]) - static_cast<std::uint64_t>(reached),
                          reached, starts[i]};
            if (kept.size() < most || gap.length > kept.back().length) {
                if (kept.size() == most) kept.pop_back();
                const auto behind =
                    std::ranges::find_if(kept, [&](const Gap& other) { return other.length < gap.length; });
                kept.insert(behind, gap);
            }
        }
        const bool first = reached == std::numeric_limits<std::int64_t>::max();
        reached = first ? ends[i] : std::max(reached, ends[i]);
    }
    gaps.resize(sets);
    for (std::size_t set = 0; set < sets; ++set) {
        for (const Gap& gap : found[set].kept) {
            gaps[set].starts.push_back(gap.start);
            gaps[set].ends.push_back(gap.end);
        }
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
