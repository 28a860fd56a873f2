#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "schema.h"

namespace busfare::recorder {

/// Columns of 64-bit values for one table, filled a row at a time and encoded to a chunk.
///
/// Memory is fixed: `kRows` rows, allocated at the first row. When `full()`, encode and `clear()`.
class Rows {
  public:
    static constexpr size_t kRows = 32768;

    explicit Rows(TableId table) : table_(table), columns_(columns_of(table)) {}

    /// Adds a row; `values.size()` must be the table's number of columns, and the table not full.
    void append(std::span<const uint64_t> values) {
        if (values_.empty()) values_.resize(columns_ * kRows);
        for (size_t column = 0; column < columns_; ++column)
            values_[column * kRows + count_] = values[column];
        ++count_;
    }

    TableId table() const { return table_; }
    size_t columns() const { return columns_; }
    size_t count() const { return count_; }
    bool full() const { return count_ == kRows; }
    void clear() { count_ = 0; }
    std::span<const uint64_t> column(size_t index) const { return {values_.data() + index * kRows, count_}; }

  private:
    TableId table_;
    size_t columns_;
    size_t count_ = 0;
    std::vector<uint64_t> values_;
};

/// One chunk's bytes, header and checksums included. `blob`, where not null, is one more column of raw bytes.
/// `chunk` is overwritten, and its memory reused from call to call.
void encode_chunk(const Rows& rows, uint32_t sequence, const std::string* blob,
                  std::vector<unsigned char>& chunk);

/// The 64 bytes at the start of a file.
struct FileHeader {
    uint64_t process = 0;
    uint64_t wall_clock_ns = 0;  ///< since the Unix epoch, at the same moment as `trace_clock_ns`
    uint64_t trace_clock_ns = 0;
};
std::vector<unsigned char> encode_file_header(const FileHeader& header);

}  // namespace busfare::recorder
