#include "record.hpp"

#include <algorithm>
#include <array>

#include "numbers.hpp"
#include "unreadable.hpp"

namespace busfare::sqlite {

namespace {

constexpr std::uint32_t kMostColumns = 32767;  // SQLite's own limit

constexpr std::uint8_t kFixed[kVariable] = {0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0};

constexpr std::array<std::uint8_t, 128> kLengths = [] {
    std::array<std::uint8_t, 128> lengths{};
    for (std::size_t type = 0; type < 128; ++type) {
        lengths[type] = type < kVariable ? kFixed[type] : static_cast<std::uint8_t>((type - kVariable) / 2);
    }
    return lengths;
}();

}  // namespace

const IntegerRule kIntegerRules[kVariable + 1] = {
    {0, 0, 0, 0},   {-1, 0, 56, 1}, {-1, 0, 48, 1}, {-1, 0, 40, 1}, {-1, 0, 32, 1},
    {-1, 0, 16, 1}, {-1, 0, 0, 1},  {0, 0, 0, 0},   {0, 0, 0, 1},   {0, 1, 0, 1},
    {0, 0, 0, 0},   {0, 0, 0, 0},   {0, 0, 0, 0},
};

std::uint64_t length_of(std::uint64_t type) {
    return type < kVariable ? kFixed[type] : (type - kVariable) / 2;
}

Shape::Shape(std::vector<Wanted> wanted) : wanted_(std::move(wanted)) {
    for (const Wanted& column : wanted_) {
        if (column.is_rowid) continue;
        if (column.index < header_ || column.index > kMostColumns) throw Unreadable("columns out of order");
        skipped_.push_back(column.index - header_);
        header_ = column.index + 1;
        ++stored_;
    }
}

std::uint64_t Shape::locate(const std::uint8_t* record, std::uint64_t there, std::uint64_t size,
                            Field* fields, std::uint64_t page) const {
    std::uint64_t length = 0;
    const std::uint8_t* types = varint(record, record + there, length);
    if (types == nullptr || length > size || length < static_cast<std::uint64_t>(types - record)) {
        damaged(page, "a record's header has an impossible length");
    }
    if (length > there) return 0;
    const std::uint8_t* end = record + length;
    // Types of one byte each, and all that are asked for: then nothing need be checked one by one.
    if (end - types >= static_cast<std::ptrdiff_t>(header_)) {
        const std::uint8_t* p = types;
        std::uint64_t at = length;
        std::uint8_t high = 0;
        for (std::size_t k = 0; k < stored_; ++k) {
            for (const std::uint8_t* next = p + skipped_[k]; p < next; ++p) {
                high |= *p;
                at += kLengths[*p & 0x7f];
            }
            high |= *p;
            fields[k] = {*p, at};
            at += kLengths[*p & 0x7f];
            ++p;
        }
        if (high < 0x80) {
            if (at > size || (p == end && at != size)) damaged(page, "a record's values end beyond it");
            return at;
        }
    }
    return locate_any(types, end, length, size, fields, page);
}

std::uint64_t Shape::locate_any(const std::uint8_t* types, const std::uint8_t* end, std::uint64_t at,
                                std::uint64_t size, Field* fields, std::uint64_t page) const {
    for (std::size_t k = 0; k < stored_; ++k) {
        bool lacking = false;  // the record is older than the column
        for (std::uint32_t left = skipped_[k] + 1; left > 0; --left) {
            fields[k] = {0, at};
            lacking = types == end;
            if (lacking) break;
            types = varint(types, end, fields[k].type);
            if (types == nullptr) damaged(page, "a record's header ends within a number");
            at += length_of(fields[k].type);
            if (at > size) damaged(page, "a record's values end beyond it");
        }
        if (lacking && wanted_[k].has_default) {
            throw Unreadable("a column with a default that older rows lack");
        }
    }
    if (types == end && at != size) damaged(page, "a record is longer than its values");
    return at;
}

}  // namespace busfare::sqlite
