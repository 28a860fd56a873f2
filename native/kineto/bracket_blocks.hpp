// Brackets outside of strings, sought by blocks of 64 bytes.
#pragma once

#include <cstdint>

namespace busfare {

// Goes on from `p`, which is outside of any string, by blocks for as long as they hold no backslash, and
// keeps `depth`. True: the outermost bracket is closed, and `p` is after it. False: `p` is where to go on
// byte by byte, again outside of any string, up to `retry` at least.
using SkipBlocks = bool (*)(const char*& p, const char* end, std::uint64_t& depth, const char*& retry);

// By what this processor can do.
extern const SkipBlocks skip_blocks;

#if defined(__x86_64__)
// With AVX2, and bit counts and products without carry.
bool skip_blocks_avx2(const char*& p, const char* end, std::uint64_t& depth, const char*& retry);
#endif

}  // namespace busfare
