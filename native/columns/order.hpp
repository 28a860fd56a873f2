// The order of rows by numbers that come in parts, most of them in order already.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace busfare {

struct Part {
    const std::int64_t* numbers;
    std::size_t count;
};

// Sets `order` to the rows (0: the first of the first part) in order of their numbers, like ones as they
// stand: parts that are in order are merged, others sorted by their digits. It has as many places as there
// are rows, below 2^32.
void order_of(const std::vector<Part>& parts, std::uint32_t* order);

}  // namespace busfare
