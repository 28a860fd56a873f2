// Records: a header of types, then the values.
#pragma once

#include <cstdint>
#include <vector>

#include "columns.hpp"

namespace busfare::sqlite {

// A value within a record: its serial type, and its first byte.
struct Field {
    std::uint64_t type;
    std::uint64_t at;
};

// Which fields of a record are wanted, in the order in which they stand there.
class Shape {
  public:
    explicit Shape(std::vector<Wanted> wanted);

    const std::vector<Wanted>& wanted() const { return wanted_; }
    // How many fields stand in the record (others are the row's id).
    std::size_t stored() const { return stored_; }
    // Fields up to the last wanted one.
    std::uint32_t header() const { return header_; }

    // Finds the first stored() fields of `wanted` in a record of `size` bytes of which `there` are at hand.
    // Gives the end of the last one found; or 0 if the header itself ends beyond `there`. Throws Unreadable,
    // naming `page`.
    std::uint64_t locate(const std::uint8_t* record, std::uint64_t there, std::uint64_t size, Field* fields,
                         std::uint64_t page) const;

  private:
    std::uint64_t locate_any(const std::uint8_t* types, const std::uint8_t* end, std::uint64_t begin,
                             std::uint64_t size, Field* fields, std::uint64_t page) const;

    std::vector<Wanted> wanted_;
    std::vector<std::uint32_t> skipped_;  // fields between a wanted one and the one before
    std::size_t stored_ = 0;
    std::uint32_t header_ = 0;
};

// Bytes of a value of this serial type.
std::uint64_t length_of(std::uint64_t type);

// How the eight bytes where a whole number of a type starts become its value: (bytes >> shift & mask) |
// constant.
struct IntegerRule {
    std::int64_t mask, constant;
    std::uint8_t shift, valid;
};
// By serial type; kOther stands for all from there on. Whatever is no whole number is null.
constexpr std::uint64_t kVariable = 12;
extern const IntegerRule kIntegerRules[kVariable + 1];

}  // namespace busfare::sqlite
