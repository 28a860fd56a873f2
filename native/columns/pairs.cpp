#include "pairs.hpp"

#include <algorithm>
#include <bit>
#include <vector>

namespace busfare {

namespace {

constexpr std::size_t kMostFirsts = 64;
// A direct table may be this many times longer than the pairs, and this long in any case.
constexpr std::uint64_t kSparse = 8, kSmall = 1 << 20;

// Numbers the few different firsts; pairs come in runs of one.
class Firsts {
  public:
    // The number of `value`, or seen() if it is none of them.
    std::size_t find(std::int64_t value) {
        if (last_ < values_.size() && values_[last_] == value) return last_;
        return last_ = static_cast<std::size_t>(std::ranges::find(values_, value) - values_.begin());
    }
    std::size_t add(std::int64_t value) {
        const std::size_t number = find(value);
        if (number == values_.size()) values_.push_back(value);
        return number;
    }
    std::size_t seen() const { return values_.size(); }

  private:
    std::vector<std::int64_t> values_;
    std::size_t last_ = 0;
};

// By a table with a place for each first and each second. False, and nothing done, if that would be too
// large.
bool by_table(const Pairs& have, const Pairs& wanted, std::uint8_t* found) {
    const auto [least, most] = std::minmax_element(have.second, have.second + have.count);
    const std::uint64_t span = static_cast<std::uint64_t>(*most) - static_cast<std::uint64_t>(*least) + 1;
    const std::uint64_t limit = kSparse * (have.count + wanted.count) + kSmall;
    if (span == 0 || span > limit) return false;
    const auto base = static_cast<std::uint64_t>(*least);
    Firsts firsts;
    std::vector<std::uint8_t> table;
    for (std::size_t i = 0; i < have.count; ++i) {
        const std::size_t number = firsts.add(have.first[i]);
        if ((number + 1) * span > table.size()) {
            if (number == kMostFirsts || (number + 1) * span > limit) return false;
            table.resize((number + 1) * span);
        }
        table[number * span + (static_cast<std::uint64_t>(have.second[i]) - base)] = 1;
    }
    for (std::size_t i = 0; i < wanted.count; ++i) {
        const std::uint64_t at = static_cast<std::uint64_t>(wanted.second[i]) - base;
        const std::size_t number = at < span ? firsts.find(wanted.first[i]) : firsts.seen();
        found[i] = number < firsts.seen() && table[number * span + at];
    }
    return true;
}

std::uint64_t hash(std::int64_t first, std::int64_t second) {
    std::uint64_t h = static_cast<std::uint64_t>(first) * 0x9e3779b97f4a7c15U;
    h = (h ^ h >> 32 ^ static_cast<std::uint64_t>(second)) * 0xbf58476d1ce4e5b9U;
    return h ^ h >> 29;
}

// A hash table of rows of `have`, open addressing; of like ones the first.
class Rows {
  public:
    explicit Rows(const Pairs& have) : have_(have), rows_(std::bit_ceil(2 * have.count + 1), have.count) {
        for (std::size_t i = 0; i < have.count; ++i) {
            std::size_t& row = rows_[place(have.first[i], have.second[i])];
            if (row == have.count) row = i;
        }
    }
    // have.count if there is none.
    std::size_t find(std::int64_t first, std::int64_t second) const { return rows_[place(first, second)]; }

  private:
    std::size_t place(std::int64_t first, std::int64_t second) const {
        std::size_t at = hash(first, second) & (rows_.size() - 1);
        while (rows_[at] != have_.count &&
               (have_.first[rows_[at]] != first || have_.second[rows_[at]] != second)) {
            at = (at + 1) & (rows_.size() - 1);
        }
        return at;
    }

    const Pairs& have_;
    std::vector<std::size_t> rows_;
};

}  // namespace

void occurs(const Pairs& have, const Pairs& wanted, std::uint8_t* found) {
    std::fill_n(found, wanted.count, std::uint8_t{0});
    if (have.count == 0 || wanted.count == 0 || by_table(have, wanted, found)) return;
    const Rows rows(have);
    for (std::size_t i = 0; i < wanted.count; ++i) {
        found[i] = rows.find(wanted.first[i], wanted.second[i]) != have.count;
    }
}

void first_rows(const Pairs& have, const Pairs& wanted, std::int64_t* found) {
    const Rows rows(have);
    for (std::size_t i = 0; i < wanted.count; ++i) {
        const std::size_t row = rows.find(wanted.first[i], wanted.second[i]);
        found[i] = row == have.count ? -1 : static_cast<std::int64_t>(row);
    }
}

}  // namespace busfare
