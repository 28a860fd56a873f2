// Numbers as a database stores them: big-endian ones, and SQLite's of one to nine bytes.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace busfare::sqlite {

inline std::uint32_t be16(const std::uint8_t* p) {
    return static_cast<std::uint32_t>(p[0] << 8 | p[1]);
}

inline std::uint32_t be32(const std::uint8_t* p) {
    return be16(p) << 16 | be16(p + 2);
}

inline std::uint64_t be64(const std::uint8_t* p) {
    std::uint64_t value;
    std::memcpy(&value, p, sizeof value);
    if constexpr (std::endian::native == std::endian::little) value = __builtin_bswap64(value);
    return value;
}

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
