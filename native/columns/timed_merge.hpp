// Parts of a table of operations, each in order of time, as one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace busfare {

struct TimedPart {
    const std::int64_t* starts;
    const std::int64_t* ends;
    const std::uint32_t* lanes;
    const std::int64_t* sizes;  // nullptr: not known
    std::size_t count;
    // By the part's lanes: what each is called in the whole, and its marks.
    std::vector<std::uint32_t> lane_of;
    std::vector<std::uint8_t> marks_of;
};

// Where the whole goes: as many rows as all parts have, sizes -1 where they are not known; and the rows of
// parts with sizes.
struct TimedWhole {
    std::int64_t* starts;
    std::int64_t* ends;
    std::uint32_t* lanes;
    std::int64_t* sizes;
    std::uint32_t* sized;
};

// Merges parts, of like starts the first part's first, their times counted from `less`. Gives the rows of the
// whole whose marks have bit `mark`, for each of `marks`. Throws
// std::out_of_range for a lane that is not there.
std::vector<std::vector<std::uint32_t>> merge_timed(const std::vector<TimedPart>& parts, std::int64_t less,
                                                    const std::vector<std::uint8_t>& marks,
                                                    const TimedWhole& whole);

}  // namespace busfare
