// Unions of intervals of time, in one pass over intervals in order of their starts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace busfare {

struct Intervals {
    std::vector<std::int64_t> starts, ends;
};

// The union of those of `rows` intervals whose lane is chosen. Intervals that touch become one. Gives false
// if they are not in order of their starts.
bool unite(const std::int64_t* starts, const std::int64_t* ends, const std::uint32_t* lane_of,
           const std::uint8_t* chosen, std::size_t rows, Intervals& united);

// Of each of `sets` unions, the `most` longest gaps between its intervals, longest first, of those as long
// the earlier ones. A lane is in the union set_of[lane]; in none if that is `sets` or more. Gives false if
// the intervals are not in order of their starts.
bool longest_gaps(const std::int64_t* starts, const std::int64_t* ends, const std::uint32_t* lane_of,
                  const std::uint32_t* set_of, std::size_t rows, std::size_t sets, std::size_t most,
                  std::vector<Intervals>& gaps);

// Nanoseconds that lie in both of two unions.
std::int64_t shared(const std::int64_t* a_starts, const std::int64_t* a_ends, std::size_t a,
                    const std::int64_t* b_starts, const std::int64_t* b_ends, std::size_t b);

}  // namespace busfare
