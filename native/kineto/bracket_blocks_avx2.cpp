// Compiled for processors with AVX2: nothing in here may be called on others.
#include "bracket_blocks.hpp"

#if defined(__x86_64__)
#include <immintrin.h>

namespace busfare {
namespace {

// A bit a byte of a block.
struct BlockBits {
    std::uint64_t quotes, backslashes, opens, closes;
};

std::uint64_t bits(__m256i low, __m256i high) {
    return static_cast<std::uint32_t>(_mm256_movemask_epi8(low)) |
           static_cast<std::uint64_t>(static_cast<std::uint32_t>(_mm256_movemask_epi8(high))) << 32;
}

BlockBits bits_of(const char* block) {
    const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block));
    const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + 32));
    const auto where = [&](char c) {
        const __m256i sought = _mm256_set1_epi8(c);
        return bits(_mm256_cmpeq_epi8(low, sought), _mm256_cmpeq_epi8(high, sought));
    };
    // Setting bit 5 turns '[' into '{' and ']' into '}'.
    const __m256i bit = _mm256_set1_epi8(0x20);
    const __m256i low_folded = _mm256_or_si256(low, bit), high_folded = _mm256_or_si256(high, bit);
    const auto folded = [&](char c) {
        const __m256i sought = _mm256_set1_epi8(c);
        return bits(_mm256_cmpeq_epi8(low_folded, sought), _mm256_cmpeq_epi8(high_folded, sought));
    };
    return {where('"'), where('\\'), folded('{'), folded('}')};
}

// Each bit is the parity of the bits up to it.
std::uint64_t parity(std::uint64_t quotes) {
    const __m128i product = _mm_clmulepi64_si128(_mm_cvtsi64_si128(static_cast<long long>(quotes)),
                                                 _mm_set1_epi8(static_cast<char>(0xFF)), 0);
    return static_cast<std::uint64_t>(_mm_cvtsi128_si64(product));
}

}  // namespace

bool skip_blocks_avx2(const char*& p, const char* end, std::uint64_t& depth, const char*& retry) {
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
#endif
