#include "bracket_blocks.hpp"

#include "bracket_loop.hpp"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace busfare {
namespace {

#if defined(__SSE2__)
std::uint64_t bits(__m128i equal) {
    return static_cast<std::uint32_t>(_mm_movemask_epi8(equal));
}

BlockBits bits_of(const char* block) {
    BlockBits brackets{};
    for (int i = 0; i < 4; ++i) {
        const __m128i text = _mm_loadu_si128(reinterpret_cast<const __m128i*>(block + 16 * i));
        // Setting bit 5 turns '[' into '{' and ']' into '}'.
        const __m128i folded = _mm_or_si128(text, _mm_set1_epi8(0x20));
        brackets.quotes |= bits(_mm_cmpeq_epi8(text, _mm_set1_epi8('"'))) << (16 * i);
        brackets.backslashes |= bits(_mm_cmpeq_epi8(text, _mm_set1_epi8('\\'))) << (16 * i);
        brackets.opens |= bits(_mm_cmpeq_epi8(folded, _mm_set1_epi8('{'))) << (16 * i);
        brackets.closes |= bits(_mm_cmpeq_epi8(folded, _mm_set1_epi8('}'))) << (16 * i);
    }
    return brackets;
}

std::uint64_t parity(std::uint64_t quotes) {
    for (int shift = 1; shift < 64; shift *= 2) quotes ^= quotes << shift;
    return quotes;
}

bool skip_blocks_sse2(const char*& p, const char* end, std::uint64_t& depth, const char*& retry) {
    return skip_by([](const char* block) { return bits_of(block); },
                   [](std::uint64_t quotes) { return parity(quotes); }, p, end, depth, retry);
}
#else
bool no_blocks(const char*&, const char* end, std::uint64_t&, const char*& retry) {
    retry = end;
    return false;
}
#endif

SkipBlocks quickest() {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("pclmul") &&
        __builtin_cpu_supports("popcnt"))
        return skip_blocks_avx2;
#endif
#if defined(__SSE2__)
    return skip_blocks_sse2;
#else
    return no_blocks;
#endif
}

}  // namespace

const SkipBlocks skip_blocks = quickest();

}  // namespace busfare
