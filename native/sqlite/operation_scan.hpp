// A table of GPU operations as times and lanes: rows that are alike in some fields, numbered while they are
// read.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "columns.hpp"
#include "fields.hpp"
#include "pair_marks.hpp"
#include "pieces.hpp"

namespace busfare::sqlite {

struct OperationsWanted {
    Timed timed;
    std::vector<std::uint32_t> keys;     // places of the fields that tell lanes apart, beside the process
    std::optional<std::uint32_t> size;   // place of the bytes
    std::int64_t largest = 0;            // size
    std::optional<std::uint32_t> name;   // place of the names' ids, where names are tallied
    std::shared_ptr<const Codes> names;  // `otherwise` is nobody's name
    std::vector<std::uint8_t> marks_of;  // by code: what is added to the marks of rows of that name
};

// Sums over the rows of a lane; `marks` are those of their pairs and names.
struct OperationLane {
    std::vector<std::int64_t> keys;  // the process, then the others; 0 where it is null
    std::uint32_t known = 0;         // a bit a key: whether it is not null
    std::uint8_t marks = 0;
    std::uint64_t first_row = 0, count = 0;
    // Rated: of rows that took time. Unsigned: sums of impossible times may wrap, but not overflow.
    std::uint64_t ns = 0, bytes = 0, rated_bytes = 0, rated_ns = 0;
};

// In order of their starts.
struct Operations {
    std::shared_ptr<Column> starts, ends, lane_of;  // of 64, 64 and 32 bits
    std::shared_ptr<Column> sizes;                  // none where they were not asked for
    std::vector<OperationLane> lanes;
    std::vector<std::int64_t> name_count, name_ns;  // by code
    std::int64_t last = 0;                          // the last end
};

// Reads the table whose tree starts at page `root`, and puts its rows in order of their starts. Throws
// Unreadable if it cannot be read so: something is not sound, or there are too many lanes.
Operations scan_operations(const Pager& pager, std::uint32_t root, const OperationsWanted& wanted,
                           const PairMarks& calls, const How& how);

}  // namespace busfare::sqlite
