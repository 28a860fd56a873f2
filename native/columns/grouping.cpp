#include "grouping.hpp"

#include <algorithm>
#include <bit>
#include <exception>
#include <functional>
#include <limits>
#include <stdexcept>
#include <thread>

namespace busfare {

namespace {

constexpr std::size_t kBlock = 1024;  // rows whose hashes are made together, a column at a time
constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

template <typename T>
void mix(const void* values, std::size_t first, std::size_t count, std::uint64_t* hashes) {
    const T* at = static_cast<const T*>(values) + first;
    for (std::size_t i = 0; i < count; ++i) {
        const std::uint64_t h = (hashes[i] ^ static_cast<std::uint64_t>(at[i])) * 0x9e3779b97f4a7c15U;
        hashes[i] = h ^ h >> 32;
    }
}

void mix(const Key& key, std::size_t first, std::size_t count, std::uint64_t* hashes) {
    switch (key.width) {
        case 1:
            return mix<std::uint8_t>(key.values, first, count, hashes);
        case 2:
            return mix<std::uint16_t>(key.values, first, count, hashes);
        case 4:
            return mix<std::uint32_t>(key.values, first, count, hashes);
        case 8:
            return mix<std::uint64_t>(key.values, first, count, hashes);
        default:
            throw std::invalid_argument("keys are whole numbers");
    }
}

template <typename T>
bool same(const void* values, std::size_t a, std::size_t b) {
    const T* at = static_cast<const T*>(values);
    return at[a] == at[b];
}

bool same(const std::vector<Key>& keys, std::size_t a, std::size_t b) {
    return std::ranges::all_of(keys, [=](const Key& key) {
        switch (key.width) {
            case 1:
                return same<std::uint8_t>(key.values, a, b);
            case 2:
                return same<std::uint16_t>(key.values, a, b);
            case 4:
                return same<std::uint32_t>(key.values, a, b);
            default:
                return same<std::uint64_t>(key.values, a, b);
        }
    });
}

// Lanes by the hash of their rows, open addressing.
class Table {
  public:
    Table(const std::vector<Key>& keys, std::vector<std::int64_t>& first_rows)
        : keys_(keys), first_rows_(first_rows), slots_(64, kNone) {}

    std::uint32_t lane(std::uint64_t hash, std::size_t row) {
        std::size_t at = hash & (slots_.size() - 1);
        for (; slots_[at] != kNone; at = (at + 1) & (slots_.size() - 1)) {
            const std::uint32_t lane = slots_[at];
            if (hashes_[lane] == hash && same(keys_, row, static_cast<std::size_t>(first_rows_[lane])))
                return lane;
        }
        const auto lane = static_cast<std::uint32_t>(first_rows_.size());
        slots_[at] = lane;
        hashes_.push_back(hash);
        first_rows_.push_back(static_cast<std::int64_t>(row));
        if (2 * first_rows_.size() > slots_.size()) grow();
        return lane;
    }

    std::uint64_t hash(std::uint32_t lane) const { return hashes_[lane]; }

  private:
    void grow() {
        slots_.assign(2 * slots_.size(), kNone);
        for (std::uint32_t lane = 0; lane < hashes_.size(); ++lane) {
            std::size_t at = hashes_[lane] & (slots_.size() - 1);
            while (slots_[at] != kNone) at = (at + 1) & (slots_.size() - 1);
            slots_[at] = lane;
        }
    }

    const std::vector<Key>& keys_;
    std::vector<std::int64_t>& first_rows_;
    std::vector<std::uint32_t> slots_;
    std::vector<std::uint64_t> hashes_;
};

// A direct table of numbers may be this long.
constexpr std::uint32_t kMostDirect = 1 << 22;

// One column of small numbers, by a direct table. False, and nothing done, if it is none.
bool group_directly(const std::vector<Key>& keys, std::size_t rows, std::uint32_t* lane_of,
                    std::vector<std::int64_t>& first_rows) {
    if (keys.size() != 1 || keys[0].width != 4) return false;
    const auto* numbers = static_cast<const std::uint32_t*>(keys[0].values);
    std::uint32_t most = 0;
    for (std::size_t i = 0; i < rows; ++i) most = std::max(most, numbers[i]);
    if (most >= kMostDirect) return false;
    std::vector<std::uint32_t> lanes(std::size_t{most} + 1, kNone);
    for (std::size_t i = 0; i < rows; ++i) {
        std::uint32_t& lane = lanes[numbers[i]];
        if (lane == kNone) {
            lane = static_cast<std::uint32_t>(first_rows.size());
            first_rows.push_back(static_cast<std::int64_t>(i));
        }
        lane_of[i] = lane;
    }
    return true;
}

// From here on a second thread is worth its start.
constexpr std::size_t kForTwo = 1 << 18;

// Numbers the rows from `begin` to `end`, which are alike by `table`.
void number(const std::vector<Key>& keys, std::size_t begin, std::size_t end, Table& table,
            std::uint32_t* lane_of) {
    std::uint64_t hashes[kBlock];
    for (std::size_t first = begin; first < end; first += kBlock) {
        const std::size_t count = std::min(kBlock, end - first);
        std::fill_n(hashes, count, 0x243f6a8885a308d3U);
        for (const Key& key : keys) mix(key, first, count, hashes);
        for (std::size_t i = 0; i < count; ++i) lane_of[first + i] = table.lane(hashes[i], first + i);
    }
}

}  // namespace

std::vector<std::int64_t> group(const std::vector<Key>& keys, std::size_t rows, std::uint32_t* lane_of) {
    if (rows >= kNone) throw std::invalid_argument("more rows than lanes can be numbered");
    std::vector<std::int64_t> first_rows;
    if (group_directly(keys, rows, lane_of, first_rows)) return first_rows;
    Table table(keys, first_rows);
    if (rows < kForTwo) {
        number(keys, 0, rows, table, lane_of);
        return first_rows;
    }
    // The second half meanwhile, and then its lanes by those of the first.
    const std::size_t half = rows / 2;
    std::vector<std::int64_t> others;
    Table other(keys, others);
    std::exception_ptr failed;
    {
        const std::jthread beside([&] {
            try {
                number(keys, half, rows, other, lane_of);
            } catch (...) {
                failed = std::current_exception();
            }
        });
        number(keys, 0, half, table, lane_of);
    }
    if (failed) std::rethrow_exception(failed);
    std::vector<std::uint32_t> lane_for(others.size());
    for (std::uint32_t lane = 0; lane < others.size(); ++lane) {
        lane_for[lane] = table.lane(other.hash(lane), static_cast<std::size_t>(others[lane]));
    }
    for (std::size_t i = half; i < rows; ++i) lane_of[i] = lane_for[lane_of[i]];
    return first_rows;
}

// By no branch, for which rows are chosen cannot be foretold: each is written, and most are written over.

std::size_t rows_of(const std::uint32_t* number_of, std::size_t rows, const std::uint8_t* chosen,
                    std::size_t numbers, std::uint32_t* into) {
    if (rows >= kNone) throw std::invalid_argument("more rows than can be numbered");
    std::size_t at = 0;
    for (std::size_t i = 0; i < rows; ++i) {
        if (number_of[i] >= numbers) throw std::out_of_range("a number that is not there");
        into[at] = static_cast<std::uint32_t>(i);
        at += chosen[number_of[i]] != 0;
    }
    return at;
}

std::size_t rows_sized(const std::uint32_t* lane_of, const std::int64_t* sizes, std::size_t rows,
                       const std::uint8_t* chosen, Sizes wanted, std::uint32_t* into) {
    if (rows >= kNone) throw std::invalid_argument("more rows than can be numbered");
    std::size_t at = 0;
    for (std::size_t i = 0; i < rows; ++i) {
        into[at] = static_cast<std::uint32_t>(i);
        at += (chosen[lane_of[i]] != 0) & (sizes[i] >= wanted.least) & (sizes[i] <= wanted.most);
    }
    return at;
}

std::vector<std::uint32_t> longest(const std::uint32_t* rows, std::size_t count, const std::int64_t* starts,
                                   const std::int64_t* ends, std::size_t most) {
    std::vector<std::int64_t> lengths;  // the greatest so far, the least of them in front
    std::vector<std::pair<std::uint32_t, std::int64_t>> kept;  // those that were among them once
    for (std::size_t i = 0; i < count && most > 0; ++i) {
        const std::int64_t length = ends[rows[i]] - starts[rows[i]];
        if (lengths.size() == most && length < lengths.front()) continue;
        kept.emplace_back(rows[i], length);
        if (lengths.size() < most) {
            lengths.push_back(length);
            std::ranges::push_heap(lengths, std::greater{});
        } else if (length > lengths.front()) {
            std::ranges::pop_heap(lengths, std::greater{});
            lengths.back() = length;
            std::ranges::push_heap(lengths, std::greater{});
        }
    }
    std::vector<std::uint32_t> found;
    for (const auto& [row, length] : kept) {
        if (length >= lengths.front()) found.push_back(row);
    }
    return found;
}

RowSums sums_among(const std::uint32_t* rows, std::size_t count, const std::uint32_t* lane_of,
                   const std::int64_t* starts, const std::int64_t* ends, const std::int64_t* bytes,
                   std::size_t lanes) {
    RowSums made(lanes);
    // As unsigned: sums of impossible sizes may wrap, but not overflow.
    const auto add = [](std::int64_t& sum, std::uint64_t more) {
        sum = static_cast<std::int64_t>(static_cast<std::uint64_t>(sum) + more);
    };
    for (std::size_t i = 0; i < count; ++i) {
        const std::uint32_t row = rows[i], lane = lane_of[row];
        if (lane >= lanes) throw std::out_of_range("a number that is not there");
        if (made.count[lane]++ == 0) made.first[lane] = static_cast<std::int64_t>(i);
        add(made.bytes[lane], static_cast<std::uint64_t>(std::max<std::int64_t>(bytes[row], 0)));
        add(made.ns[lane], static_cast<std::uint64_t>(ends[row]) - static_cast<std::uint64_t>(starts[row]));
    }
    return made;
}

Sums sums(const std::uint32_t* lane_of, const std::int64_t* starts, const std::int64_t* ends,
          const std::int64_t* bytes, std::size_t rows, std::size_t lanes) {
    Sums made(lanes);
    for (std::size_t i = 0; i < rows; ++i) {
        const std::uint32_t lane = lane_of[i];
        const std::int64_t ns = ends[i] - starts[i];
        ++made.count[lane];
        made.ns[lane] += static_cast<double>(ns);
        if (bytes[i] < 0) continue;
        // As unsigned: sums of impossible sizes may wrap, but not overflow.
        const auto size = static_cast<std::uint64_t>(bytes[i]);
        made.bytes[lane] = static_cast<std::int64_t>(static_cast<std::uint64_t>(made.bytes[lane]) + size);
        if (ns <= 0) continue;
        made.rated_ns[lane] += static_cast<double>(ns);
        made.rated_bytes[lane] =
            static_cast<std::int64_t>(static_cast<std::uint64_t>(made.rated_bytes[lane]) + size);
    }
    return made;
}

Decades decades(const std::uint32_t* lane_of, const std::uint8_t* chosen, const std::int64_t* sizes,
                const std::int64_t* starts, const std::int64_t* ends, std::size_t rows) {
    // By the bits of a size: the decade of the greatest one with so many, and where that decade begins.
    std::uint8_t decade_of[64];
    std::int64_t begins[64];
    std::int64_t begin = 0, next = 10;
    for (std::size_t bits = 0, decade = 0; bits < 64; ++bits) {
        const std::uint64_t greatest = (std::uint64_t{1} << bits) - 1;
        if (decade + 1 < Decades::kCount && greatest >= static_cast<std::uint64_t>(next)) {
            begin = next;
            if (++decade + 1 < Decades::kCount) next *= 10;
        }
        decade_of[bits] = static_cast<std::uint8_t>(decade);
        begins[bits] = begin;
    }
    Decades made;
    for (std::size_t i = 0; i < rows; ++i) {
        if (!chosen[lane_of[i]] || sizes[i] < 0) continue;
        const auto bits = static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(sizes[i])));
        const std::size_t decade = decade_of[bits] - std::size_t{sizes[i] < begins[bits]};
        ++made.count[decade];
        made.seconds[decade] += static_cast<double>(ends[i] - starts[i]) * 1e-9;
    }
    return made;
}

Tally tally(const std::uint32_t* number_of, const std::uint32_t* lane_of, const std::uint8_t* chosen,
            const std::int64_t* starts, const std::int64_t* ends, std::size_t rows, std::size_t numbers) {
    Tally made(numbers);
    for (std::size_t i = 0; i < rows; ++i) {
        if (!chosen[lane_of[i]]) continue;
        const std::uint32_t number = number_of[i];
        if (number >= numbers) throw std::out_of_range("a number that is not there");
        if (made.count[number]++ == 0) made.first_row[number] = static_cast<std::int64_t>(i);
        made.ns[number] += static_cast<double>(ends[i] - starts[i]);
    }
    return made;
}

}  // namespace busfare
