// Big-endian numbers, as everything in a database is stored.
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

}  // namespace busfare::sqlite
