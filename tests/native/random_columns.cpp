// Unions of random intervals and pairs looked up in random tables, against counting one by one; ends with
// status 1 if a result differs. Arguments: the first seed and how many. Built with the address and
// undefined-behaviour sanitizers.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "intervals.hpp"
#include "pairs.hpp"

namespace {

using namespace busfare;
using Numbers = std::vector<std::int64_t>;

bool unions_agree(std::mt19937_64& dice) {
    const auto draw = [&](std::int64_t most) { return static_cast<std::int64_t>(dice() % (most + 1)); };
    const auto count = static_cast<std::size_t>(draw(60));
    Numbers starts(count), ends(count);
    std::vector<std::uint32_t> lane_of(count);
    for (std::int64_t& start : starts) start = draw(80);
    std::ranges::sort(starts);
    for (std::size_t i = 0; i < count; ++i) {
        ends[i] = starts[i] + draw(9);
        lane_of[i] = static_cast<std::uint32_t>(draw(2));
    }
    const LaneIntervals intervals{starts.data(), ends.data(), lane_of.data(), count};
    const std::vector<std::uint64_t> sets_of = {1, 3, 2};
    std::vector<std::int64_t> summed;
    if (!lengths(intervals, sets_of.data(), 2, summed)) return false;
    std::vector<Intervals> united(2);
    std::vector<std::vector<bool>> covered(2, std::vector<bool>(100));
    std::int64_t twice = 0;
    for (std::size_t set = 0; set < 2; ++set) {
        std::vector<std::uint8_t> chosen;
        for (const std::uint64_t bits : sets_of) chosen.push_back(bits >> set & 1);
        if (!unite(intervals, chosen.data(), united[set])) return false;
        for (std::size_t i = 0; i < count; ++i) {
            if (!chosen[lane_of[i]]) continue;
            for (std::int64_t at = starts[i]; at < ends[i]; ++at)
                covered[set][static_cast<std::size_t>(at)] = true;
        }
        std::int64_t length = 0;
        for (std::size_t i = 0; i < united[set].starts.size(); ++i)
            length += united[set].ends[i] - united[set].starts[i];
        if (length != summed[set] || length != std::ranges::count(covered[set], true)) return false;
    }
    for (std::size_t at = 0; at < 100; ++at) twice += covered[0][at] && covered[1][at];
    const auto& [a, b] = std::pair(united[0], united[1]);
    return twice == shared(a.starts.data(), a.ends.data(), a.starts.size(), b.starts.data(), b.ends.data(),
                           b.starts.size());
}

template <typename Number>
std::vector<Number> drawn(std::mt19937_64& dice, std::size_t count, std::int64_t most, Number spread) {
    std::vector<Number> numbers(count);
    for (Number& number : numbers)
        number = static_cast<Number>((static_cast<std::int64_t>(dice() % (2 * most)) - most) * spread);
    return numbers;
}

bool pairs_agree(std::mt19937_64& dice) {
    const bool far = dice() % 2 == 1;
    const std::int32_t apart = far ? (1 << 25) + 7 : 1;
    const std::int64_t spread = far ? (std::int64_t{1} << 40) + 7 : 1;
    const std::size_t have = dice() % 200, wanted = dice() % 200;
    const auto first = drawn(dice, have, 40, apart), a = drawn(dice, wanted, 40, apart);
    const auto second = drawn(dice, have, 30, spread), b = drawn(dice, wanted, 30, spread);
    std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> row_of;
    for (std::size_t i = 0; i < have; ++i)
        row_of.emplace(std::pair(first[i], second[i]), static_cast<std::int64_t>(i));
    std::vector<std::int32_t> rows(wanted);
    first_rows({first.data(), second.data(), have}, {a.data(), b.data(), wanted}, rows.data());
    for (std::size_t i = 0; i < wanted; ++i) {
        const auto at = row_of.find(std::pair(a[i], b[i]));
        if (rows[i] != (at == row_of.end() ? -1 : at->second)) return false;
    }
    return true;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) return 2;
    const auto first = std::strtoull(argv[1], nullptr, 10), count = std::strtoull(argv[2], nullptr, 10);
    for (auto seed = first; seed < first + count; ++seed) {
        std::mt19937_64 dice(seed);
        if (unions_agree(dice) && pairs_agree(dice)) continue;
        std::printf("seed %llu: another result than counting gives\n", seed);
        return 1;
    }
    return 0;
}
