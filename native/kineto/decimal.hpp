// Numbers as traces write them, read exactly.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

namespace busfare {

inline constexpr std::int64_t kMissing = std::numeric_limits<std::int64_t>::min();

// `text` as an integer times 10^decimals, rounded to nearest: "12.5" with 3 decimals is 12500. kMissing if it
// is not a finite number or does not fit. Quotes around the number are allowed, as some writers put them
// there.
std::int64_t decimal(std::string_view text, int decimals);

}  // namespace busfare
