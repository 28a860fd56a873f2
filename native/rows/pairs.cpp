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

// By a hash table of rows of `have`, open addressing.
void by_hash(const Pairs& have, const Pairs& wanted, std::uint8_t* found) {
    std::vector<std::size_t> rows(std::bit_ceil(2 * have.count + 1), have.count);
    const std::size_t mask = rows.size() - 1;
    const auto place = [&](std::int64_t first, std::int64_t second) {
        std::size_t at = hash(first, second) & mask;
        while (rows[at] != have.count && (have.first[rows[at]] != first || have.second[rows[at]] != second)) {
            at = (at + 1) & mask;
        }
        return at;
    };
    for (std::size_t i = 0; i < have.count; ++i) rows[place(have.first[i], have.second[i])] = i;
    for (std::size_t i = 0; i < wanted.count; ++i) {
        found[i] = rows[place(wanted.first[i], wanted.second[i])] != have.count;
    }
}

}  // namespace

void occurs(const Pairs& have, const Pairs& wanted, std::uint8_t* found) {
    std::fill_n(found, wanted.count, std::uint8_t{0});
    if (have.count == 0 || wanted.count == 0) return;
    if (!by_table(have, wanted, found)) by_hash(have, wanted, found);
}

}  // namespace busfare
