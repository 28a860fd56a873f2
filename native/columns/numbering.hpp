// Rows numbered by what several columns of whole numbers hold: like rows have the same number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace busfare {

struct WholeNumbers {
    const void* values;
    std::size_t bytes;  // of a number: 1, 2, 4 or 8
    bool is_signed;
};

// Sets number[i] for each of `rows` rows, counted in order of appearance, and `first` to the first row of
// each number. False, and nothing done, where the columns' ranges allow more than `most` different rows.
bool number_rows(std::span<const WholeNumbers> columns, std::size_t rows, std::uint64_t most,
                 std::uint32_t* number, std::vector<std::int64_t>& first);

// Sets before[i] to the row before i with the same number, -1 for none. Numbers are below `count`.
void previous_rows(std::span<const std::uint32_t> number, std::size_t count, std::int32_t* before);

}  // namespace busfare
