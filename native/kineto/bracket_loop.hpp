// The loop over blocks, whatever finds the characters in one.
#pragma once

#include <cstdint>

namespace busfare {

// A bit a byte of a block.
struct BlockBits {
    std::uint64_t quotes, backslashes, opens, closes;
};

// `bits_of(block)` finds the characters; `parity(quotes)` makes each bit the parity of the bits up to it.
template <typename BitsOf, typename Parity>
inline bool skip_by(BitsOf bits_of, Parity parity, const char*& p, const char* end, std::uint64_t& depth,
                    const char*& retry) {
    const char* resume = p;              // the last block boundary outside of strings
    std::uint64_t resume_depth = depth;  // and the depth there
    std::uint64_t inside = 0;            // all ones while a block begins inside a string
    const char* block = p;
    for (; end - block >= 64; block += 64) {
        const BlockBits bits = bits_of(block);
        if (bits.backslashes != 0) break;
        const std::uint64_t strings = parity(bits.quotes) ^ inside;
        inside = std::uint64_t{0} - (strings >> 63);
        std::uint64_t opens = bits.opens & ~strings;
        const std::uint64_t closes = bits.closes & ~strings;
        if (static_cast<std::uint64_t>(__builtin_popcountll(closes)) >= depth) {
            for (std::uint64_t left = opens | closes; left != 0; left &= left - 1) {
                const std::uint64_t bit = left & (0 - left);
                depth += (opens & bit) != 0 ? 1 : -1;
                if (depth == 0) {
                    p = block + __builtin_ctzll(bit) + 1;
                    return true;
                }
            }
        } else {
            depth += static_cast<std::uint64_t>(__builtin_popcountll(opens)) -
                     static_cast<std::uint64_t>(__builtin_popcountll(closes));
        }
        if (inside == 0) {
            resume = block + 64;
            resume_depth = depth;
        }
    }
    p = resume;
    depth = resume_depth;
    retry = end - block >= 64 ? block + 64 : end;
    return false;
}

}  // namespace busfare
