#pragma once

#include <cuda.h>

#include <span>

namespace busfare::trial {

/// A call of the driver that this library shows in its place: its symbol, and its name for
/// `cuGetProcAddress`.
struct Shown {
    const char* symbol;
    const char* base;
    void* function;
};
std::span<const Shown> calls();

/// Once, when the program calls CUDA.
void begin();

}  // namespace busfare::trial
