// SQLite's numbers of one to nine bytes.
#pragma once

#include <cstdint>

namespace busfare::sqlite {

// Reads a number that must end before `end`. Returns the byte after it, or nullptr if it does not.
inline const std::uint8_t* varint(const std::uint8_t* p, const std::uint8_t* end, std::uint64_t& value) {
    if (p < end && *p < 0x80) {
        value = *p;
        return p + 1;
    }
    value = 0;
    for (int i = 0; i < 8; ++i, ++p) {
        if (p >= end) return nullptr;
        value = value << 7 | (*p & 0x7f);
        if (*p < 0x80) return p + 1;
    }
    if (p >= end) return nullptr;
    value = value << 8 | *p;  // the ninth byte gives all of its bits
    return p + 1;
}

}  // namespace busfare::sqlite
