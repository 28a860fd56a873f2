#pragma once

#include <cuda.h>

#include <cstddef>

namespace busfare::trial {

/// Record managed memory that the program allocates or frees.
void note_managed(CUdeviceptr memory, size_t bytes);
void forget_managed(CUdeviceptr memory);

/// The CPU may have touched any managed memory: later kernels prefetch it again.
void expect_host_access();

/// Prefetches the managed memory that the arguments of a kernel point to, in the kernel's stream.
void prefetch(CUfunction kernel, void** arguments, CUstream stream);

/// Stops all prefetching: the program places its managed memory itself.
void stop_prefetching();

}  // namespace busfare::trial
