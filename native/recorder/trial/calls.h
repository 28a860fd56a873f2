#pragma once

#include <cuda.h>

#include <span>

namespace busfare::trial {

/// A wrapper of the driver call `symbol`, whose name includes the version, such as `_v2_ptsz`.
struct Shown {
    const char* symbol;
    void* function;
};
std::span<const Shown> calls();

/// Installs the exit and fork handlers at the first CUDA call.
void begin();

}  // namespace busfare::trial
