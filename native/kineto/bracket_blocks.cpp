#include "bracket_blocks.hpp"

namespace busfare {
namespace {

bool no_blocks(const char*&, const char* end, std::uint64_t&, const char*& retry) {
    retry = end;
    return false;
}

SkipBlocks quickest() {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("pclmul") &&
        __builtin_cpu_supports("popcnt"))
        return skip_blocks_avx2;
#endif
    return no_blocks;
}

}  // namespace

const SkipBlocks skip_blocks = quickest();

}  // namespace busfare
