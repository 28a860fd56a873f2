// Compiled for processors with AVX2: nothing in here may be called on others.
#include "bracket_blocks.hpp"

#if defined(__x86_64__)
#include <immintrin.h>

#include "bracket_loop.hpp"

namespace busfare {
namespace {

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

std::uint64_t parity(std::uint64_t quotes) {
    const __m128i product = _mm_clmulepi64_si128(_mm_cvtsi64_si128(static_cast<long long>(quotes)),
                                                 _mm_set1_epi8(static_cast<char>(0xFF)), 0);
    return static_cast<std::uint64_t>(_mm_cvtsi128_si64(product));
}

}  // namespace

bool skip_blocks_avx2(const char*& p, const char* end, std::uint64_t& depth, const char*& retry) {
    return skip_by([](const char* block) { return bits_of(block); },
                   [](std::uint64_t quotes) { return parity(quotes); }, p, end, depth, retry);
}

}  // namespace busfare
#endif
