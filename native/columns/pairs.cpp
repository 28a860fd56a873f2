#include "pairs.hpp"

#include <algorithm>
#include <limits>
#include <unordered_map>
#include <vector>

namespace busfare {

namespace {

constexpr std::size_t kMostFirsts = 64;
// A direct table may be this many times longer than the pairs, and this long in any case.
constexpr std::uint64_t kSparse = 2, kSmall = 1 << 20;
constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

// Numbers the different firsts; pairs come in runs of like ones.
class Firsts {
  public:
    // The number of `value`, or seen() if it has none.
    std::size_t find(std::int32_t value) {
        if (last_ < values_.size() && values_[last_] == value) return last_;
        const auto at = number_of_.find(value);
        if (at == number_of_.end()) return values_.size();
        return last_ = at->second;
    }
    std::size_t add(std::int32_t value) {
        const std::size_t number = find(value);
        if (number == values_.size()) {
            number_of_.emplace(value, number);
            values_.push_back(value);
        }
        return number;
    }
    std::size_t seen() const { return values_.size(); }

  private:
    std::vector<std::int32_t> values_;
    std::unordered_map<std::int32_t, std::size_t> number_of_;
    std::size_t last_ = 0;
};

// By a table with a place for each first and each second. False, and nothing done, if that would be too
// large.
bool by_table(const Pairs& have, const Pairs& wanted, std::int32_t* rows) {
    const auto [least, most] = std::minmax_element(have.second, have.second + have.count);
    const std::uint64_t span = static_cast<std::uint64_t>(*most) - static_cast<std::uint64_t>(*least) + 1;
    const std::uint64_t limit = kSparse * (have.count + wanted.count) + kSmall;
    if (span == 0 || span > limit) return false;
    const auto base = static_cast<std::uint64_t>(*least);
    Firsts firsts;
    std::vector<std::uint32_t> table;
    for (std::size_t i = 0; i < have.count; ++i) {
        const std::size_t number = firsts.add(have.first[i]);
        if ((number + 1) * span > table.size()) {
            if (number == kMostFirsts || (number + 1) * span > limit) return false;
            table.resize((number + 1) * span, kNone);
        }
        std::uint32_t& row = table[number * span + (static_cast<std::uint64_t>(have.second[i]) - base)];
        row = std::min(row, static_cast<std::uint32_t>(i));
    }
    for (std::size_t i = 0; i < wanted.count; ++i) {
        const std::uint64_t at = static_cast<std::uint64_t>(wanted.second[i]) - base;
        const std::size_t number = at < span ? firsts.find(wanted.first[i]) : firsts.seen();
        const std::uint32_t row = number < firsts.seen() ? table[number * span + at] : kNone;
        rows[i] = static_cast<std::int32_t>(row);  // kNone: -1
    }
    return true;
}

struct Entry {
    std::int64_t second;
    std::int32_t row;
    auto operator<=>(const Entry&) const = default;
};
using Runs = std::vector<std::vector<Entry>>;  // by the number of their first, in order

// The pairs in runs; those whose first has no number yet get one if they may, and are left out else, as are
// seconds that are not from `least` to `most`.
Runs runs_of(const Pairs& pairs, Firsts& firsts, bool numbering, std::int64_t least, std::int64_t most) {
    Runs runs(firsts.seen());
    for (std::size_t i = 0; i < pairs.count; ++i) {
        if (pairs.second[i] < least || pairs.second[i] > most) continue;
        const std::size_t number = numbering ? firsts.add(pairs.first[i]) : firsts.find(pairs.first[i]);
        if (number == runs.size()) {
            if (!numbering) continue;
            runs.emplace_back();
        }
        runs[number].push_back({pairs.second[i], static_cast<std::int32_t>(i)});
    }
    for (auto& run : runs) {
        if (!std::ranges::is_sorted(run)) std::ranges::sort(run);
    }
    return runs;
}

void by_merging(const Pairs& have, const Pairs& wanted, std::int32_t* rows) {
    Firsts firsts;
    const auto [least, most] = std::minmax_element(have.second, have.second + have.count);
    const Runs runs = runs_of(have, firsts, true, *least, *most);
    const Runs wanted_runs = runs_of(wanted, firsts, false, *least, *most);
    std::fill_n(rows, wanted.count, -1);
    for (std::size_t number = 0; number < runs.size(); ++number) {
        auto at = runs[number].begin();
        for (const Entry& entry : wanted_runs[number]) {
            while (at != runs[number].end() && at->second < entry.second) ++at;
            if (at != runs[number].end() && at->second == entry.second) rows[entry.row] = at->row;
        }
    }
}

}  // namespace

void first_rows(const Pairs& have, const Pairs& wanted, std::int32_t* rows) {
    if (have.count == 0 || wanted.count == 0) {
        std::fill_n(rows, wanted.count, -1);
    } else if (!by_table(have, wanted, rows)) {
        by_merging(have, wanted, rows);
    }
}

}  // namespace busfare
