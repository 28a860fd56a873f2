#pragma once

#include <cuda.h>

#include <span>

namespace busfare::trial {

/// A wrapper of a driver call: the symbol, and the name for `cuGetProcAddress`.
struct Shown {
    const char* symbol;
    const char* base;
    void* function;
};
std::span<const Shown> calls();

/// Installs the exit and fork handlers at the first CUDA call.
void begin();

}  // namespace busfare::trial
