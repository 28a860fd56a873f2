#pragma once

#include <cuda.h>

#include <cstddef>

namespace busfare::trial {

/// Notes managed memory that the program allocates, or frees.
void note_managed(CUdeviceptr memory, size_t bytes);
void forget_managed(CUdeviceptr memory);

/// From now on, the CPU may have touched any managed memory: what kernels use is prefetched again.
void expect_host_access();

/// Prefetches the managed memory that arguments of a kernel point to, in its stream, before it is launched.
void prefetch(CUfunction kernel, void** arguments, CUstream stream);

/// Prefetches nothing more: the program places its managed memory itself.
void stop_prefetching();

}  // namespace busfare::trial
