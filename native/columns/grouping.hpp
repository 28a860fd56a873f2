// Rows that are alike in several columns, numbered: lanes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace busfare {

// A column of whole numbers of 1, 2, 4 or 8 bytes; only whether two are equal counts.
struct Key {
    const void* values;
    std::size_t width;
};

// Numbers the rows by their values in all `keys`, of `rows` rows each: sets the number of each row in
// `lane_of`, and gives the first row of each number, in order of appearance.
std::vector<std::int64_t> group(const std::vector<Key>& keys, std::size_t rows, std::uint32_t* lane_of);

// What gives rows writes them, in order, `into` memory for as many as are looked at, and says how many there
// are.

// The rows whose lane (or other number) is chosen. Throws std::out_of_range for a number of `numbers` or
// more.
std::size_t rows_of(const std::uint32_t* number_of, std::size_t rows, const std::uint8_t* chosen,
                    std::size_t numbers, std::uint32_t* into);

// Of the rows whose lane is chosen those of a wanted size. Lanes must be as many as `chosen`.
struct Sizes {
    std::int64_t least, most;
};
std::size_t rows_sized(const std::uint32_t* lane_of, const std::int64_t* sizes, std::size_t rows,
                       const std::uint8_t* chosen, Sizes wanted, std::uint32_t* into);

// Of some rows those that last as long as the one of them that comes at place `most` by length, or longer.
std::vector<std::uint32_t> longest(const std::uint32_t* rows, std::size_t count, const std::int64_t* starts,
                                   const std::int64_t* ends, std::size_t most);

// Sums over the rows of each lane.
struct Sums {
    explicit Sums(std::size_t lanes)
        : count(lanes), bytes(lanes), rated_bytes(lanes), ns(lanes), rated_ns(lanes) {}
    std::vector<std::int64_t> count, bytes;
    // Of rows whose size is known and that took time.
    std::vector<std::int64_t> rated_bytes;
    std::vector<double> ns, rated_ns;
};

// `bytes`: below zero where it is not known. Lanes must be less than `lanes`.
Sums sums(const std::uint32_t* lane_of, const std::int64_t* starts, const std::int64_t* ends,
          const std::int64_t* bytes, std::size_t rows, std::size_t lanes);

// Sums over some rows, `count` of them, which must be there, by lane. Throws std::out_of_range for a lane of
// `lanes` or more.
struct RowSums {
    explicit RowSums(std::size_t lanes) : count(lanes), bytes(lanes), ns(lanes), first(lanes, -1) {}
    std::vector<std::int64_t> count, bytes, ns;
    std::vector<std::int64_t> first;  // the place among `rows` of its first one; -1: it has none
};
RowSums sums_among(const std::uint32_t* rows, std::size_t count, const std::uint32_t* lane_of,
                   const std::int64_t* starts, const std::int64_t* ends, const std::int64_t* bytes,
                   std::size_t lanes);

// Of the rows in chosen lanes whose size is known, by decade of size (0: below 10): how many, and their
// seconds.
struct Decades {
    static constexpr std::size_t kCount = 19;
    std::vector<std::int64_t> count = std::vector<std::int64_t>(kCount);
    std::vector<double> seconds = std::vector<double>(kCount);
};
Decades decades(const std::uint32_t* lane_of, const std::uint8_t* chosen, const std::int64_t* sizes,
                const std::int64_t* starts, const std::int64_t* ends, std::size_t rows);

// Of the rows in chosen lanes, by a number that each row has (such as its name's): the first row (-1: none),
// how many, and how long they took. Throws std::out_of_range for a number of `numbers` or more.
struct Tally {
    explicit Tally(std::size_t numbers) : first_row(numbers, -1), count(numbers), ns(numbers) {}
    std::vector<std::int64_t> first_row, count;
    std::vector<double> ns;
};
Tally tally(const std::uint32_t* number_of, const std::uint32_t* lane_of, const std::uint8_t* chosen,
            const std::int64_t* starts, const std::int64_t* ends, std::size_t rows, std::size_t numbers);

}  // namespace busfare
