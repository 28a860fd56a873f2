#include "text.hpp"

#include <cstdint>
#include <cstring>

namespace busfare::sqlite {

namespace {

bool in(std::uint8_t byte, int least, int most) {
    return byte >= least && byte <= most;
}

// The length of the character at `p`; if it is none, minus the length of what one U+FFFD replaces.
int character(const std::uint8_t* p, const std::uint8_t* end) {
    const std::uint8_t first = *p;
    if (first < 0x80) return 1;
    if (!in(first, 0xc2, 0xf4)) return -1;
    const int length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    // The second byte is bound more tightly where a character would be overlong, a surrogate or beyond
    // U+10FFFF.
    const int least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    const int most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    if (end - p < 2 || !in(p[1], least, most)) return -1;
    for (int i = 2; i < length; ++i) {
        if (end - p <= i || !in(p[i], 0x80, 0xbf)) return -i;
    }
    return length;
}

}  // namespace

bool is_utf8(std::string_view text) {
    const auto* p = reinterpret_cast<const std::uint8_t*>(text.data());
    const auto* end = p + text.size();
    while (p < end) {
        std::uint64_t eight;
        if (end - p >= 8 && (std::memcpy(&eight, p, 8), (eight & 0x8080808080808080U) == 0)) {
            p += 8;
            continue;
        }
        const int length = character(p, end);
        if (length < 0) return false;
        p += length;
    }
    return true;
}

std::string replaced(std::string_view text) {
    std::string out;
    const auto* p = reinterpret_cast<const std::uint8_t*>(text.data());
    const auto* end = p + text.size();
    while (p < end) {
        const int length = character(p, end);
        if (length < 0) {
            out += "\xef\xbf\xbd";
            p -= length;
        } else {
            out.append(reinterpret_cast<const char*>(p), static_cast<std::size_t>(length));
            p += length;
        }
    }
    return out;
}

}  // namespace busfare::sqlite
