#pragma once

#include <cuda.h>

#include <cstddef>

namespace busfare::trial {

/// Records managed memory that the program allocates or frees.
void note_managed(CUdeviceptr memory, size_t bytes);
void forget_managed(CUdeviceptr memory);

/// After this call, kernels prefetch managed memory again: the CPU may have touched it.
void expect_host_access();

/// Prefetches the managed memory that the arguments of a kernel point to, in the kernel's stream.
void prefetch(CUfunction kernel, void** arguments, CUstream stream);

/// Disables prefetching: the program places its managed memory itself.
void stop_prefetching();

}  // namespace busfare::trial
