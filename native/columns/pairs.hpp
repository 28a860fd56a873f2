// Which pairs of whole numbers, such as a process and a correlation, occur among others.
#pragma once

#include <cstddef>
#include <cstdint>

namespace busfare {

struct Pairs {
    const std::int64_t* first;   // few different ones, in most traces
    const std::int64_t* second;  // nearly every number of a range, in most traces
    std::size_t count;
};

// Sets found[i] to whether pair i of `wanted` occurs in `have`.
void occurs(const Pairs& have, const Pairs& wanted, std::uint8_t* found);

// Sets found[i] to the first row of `have` that is pair i of `wanted`, or to -1.
void first_rows(const Pairs& have, const Pairs& wanted, std::int64_t* found);

}  // namespace busfare
