// Pairs of whole numbers, such as a process and a correlation, looked up among the pairs of another table.
#pragma once

#include <cstddef>
#include <cstdint>

namespace busfare {

struct Pairs {
    const std::int32_t* first;   // few different ones, in most traces
    const std::int64_t* second;  // nearly every number of a range, in most traces
    std::size_t count;           // below 2^31
};

// Sets rows[i] to the first row of `have` that equals pair i of `wanted`, or to -1. By a direct table of the
// seconds where they are dense, else by merging: pairs that are not in order are sorted first.
void first_rows(const Pairs& have, const Pairs& wanted, std::int32_t* rows);

}  // namespace busfare
