#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "chunk.h"
#include "recording_file.h"
#include "schema.h"

namespace busfare::recorder {

/// Rows of every table on their way to the file, and the strings they name. Used by the writer thread alone.
///
/// Memory is bounded: each table holds `Rows::kRows` rows at most, and the strings known are forgotten when
/// they pass `kStringBytes` (a string met again then gets a second number).
class Journal {
  public:
    static constexpr size_t kStringBytes = size_t{32} << 20;

    Journal();

    /// Creates the file and writes its header. False when that cannot be done; `error()` says why.
    bool open(const std::string& pattern, const FileHeader& header);

    void append(TableId table, std::initializer_list<uint64_t> values) {
        append(table, std::span<const uint64_t>(values.begin(), values.size()));
    }
    void append(TableId table, std::span<const uint64_t> values);

    /// The number of `text` in the strings table; 0 for null and empty. `pointer` is remembered, so that a
    /// string that CUPTI shows again at the same address costs one comparison.
    uint64_t string(const char* pointer);
    uint64_t string(std::string_view text);

    /// `string` for the name of a kernel, whose demangled form is written too.
    uint64_t kernel_name(const char* mangled);

    void fact(std::string_view key, std::string_view value);

    /// Writes all rows held. False once the file has failed.
    bool flush();

    /// Flushes, writes the end mark, closes.
    void finish(EndReason reason, uint64_t trace_clock_ns);

    bool failed() const { return failed_; }
    const std::string& error() const { return file_.error(); }
    const std::string& path() const { return file_.path(); }

  private:
    struct Interned {
        uint64_t number;
        const std::string* text;
    };

    Rows& rows(TableId table) { return *tables_[static_cast<size_t>(table)]; }
    void write(TableId table);
    void forget_strings();

    RecordingFile file_;
    bool failed_ = false;
    uint32_t sequence_ = 0;
    uint64_t rows_written_ = 0;
    std::array<std::unique_ptr<Rows>, kTableCount> tables_;
    std::string new_text_;  ///< the bytes of the strings that wait in the strings table
    std::vector<unsigned char> chunk_;
    std::unordered_map<std::string, uint64_t> numbers_;
    std::unordered_map<const char*, Interned> pointers_;
    std::unordered_map<uint64_t, bool> demangled_;
    size_t string_bytes_ = 0;
    uint64_t next_string_ = 1;
};

}  // namespace busfare::recorder
