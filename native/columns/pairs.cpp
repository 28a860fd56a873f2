#include "pairs.hpp"

#include <algorithm>
#include <unordered_map>
#include <vector>

namespace busfare {

namespace {

constexpr std::size_t kMostFirsts = 64;
// A direct table may be this many times longer than the pairs, and this long in any case.
constexpr std::uint64_t kSparse = 8, kSmall = 1 << 20;

// Numbers the different firsts; pairs come in runs of one.
class Firsts {
  public:
    // The number of `value`, or seen() if it is none of them.
    std::size_t find(std::int64_t value) {
        if (last_ < values_.size() && values_[last_] == value) return last_;
        const auto at = number_of_.find(value);
        if (at == number_of_.end()) return values_.size();
        return last_ = at->second;
    }
    std::size_t add(std::int64_t value) {
        const std::size_t number = find(value);
        if (number == values_.size()) {
            number_of_.emplace(value, number);
            values_.push_back(value);
        }
        return number;
    }
    std::size_t seen() const { return values_.size(); }

  private:
    std::vector<std::int64_t> values_;
    std::unordered_map<std::int64_t, std::size_t> number_of_;
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

// The rows of `have` by their first, in order of their seconds: merged with what is looked up, where that comes in
// nearly the same order.
class Runs {
  public:
    explicit Runs(const Pairs& have) {
        for (std::size_t i = 0; i < have.count; ++i) {
            const std::size_t number = firsts_.add(have.first[i]);
            if (number == runs_.size()) runs_.emplace_back();
            Run& run = runs_[number];
            run.sorted &= run.entries.empty() || run.entries.back().second <= have.second[i];
            run.entries.push_back({have.second[i], i});
        }
        for (Run& run : runs_) {
            if (!run.sorted) std::ranges::stable_sort(run.entries, {}, &Entry::second);
        }
    }

    // The first row of such a pair; `none` if there is none.
    std::size_t find(std::int64_t first, std::int64_t second, std::size_t none) {
        const std::size_t number = firsts_.find(first);
        if (number == runs_.size()) return none;
        Run& run = runs_[number];
        // A look at ever more places, up or down from where the last one stood.
        const auto below = [&](std::size_t at) { return run.entries[at].second < second; };
        std::size_t low = 0, high = run.entries.size();
        std::size_t step = 1;
        if (run.last < high && below(run.last)) {
            for (low = run.last + 1; low + step < high; low += step, step *= 2) {
                if (!below(low + step - 1)) {
                    high = low + step - 1;
                    break;
                }
            }
        } else {
            high = run.last;
            for (; step <= high; high -= step, step *= 2) {
                if (below(high - step)) {
                    low = high - step + 1;
                    break;
                }
            }
        }
        while (low < high) {
            const std::size_t middle = low + (high - low) / 2;
            if (below(middle)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        run.last = low;
        return low < run.entries.size() && run.entries[low].second == second ? run.entries[low].row : none;
    }

  private:
    struct Entry {
        std::int64_t second;
        std::size_t row;
    };
    struct Run {
        std::vector<Entry> entries;
        std::size_t last = 0;
        bool sorted = true;
    };
    Firsts firsts_;
    std::vector<Run> runs_;
};

}  // namespace

void occurs(const Pairs& have, const Pairs& wanted, std::uint8_t* found) {
    std::fill_n(found, wanted.count, std::uint8_t{0});
    if (have.count == 0 || wanted.count == 0 || by_table(have, wanted, found)) return;
    Runs runs(have);
    for (std::size_t i = 0; i < wanted.count; ++i) {
        found[i] = runs.find(wanted.first[i], wanted.second[i], have.count) != have.count;
    }
}

void first_rows(const Pairs& have, const Pairs& wanted, std::int64_t* found) {
    Runs runs(have);
    for (std::size_t i = 0; i < wanted.count; ++i) {
        const std::size_t row = runs.find(wanted.first[i], wanted.second[i], have.count);
        found[i] = row == have.count ? -1 : static_cast<std::int64_t>(row);
    }
}

}  // namespace busfare
