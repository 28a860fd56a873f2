#pragma once

#include <cuda.h>

#include <cstddef>

namespace busfare::trial {

constexpr size_t kLeastStaged = size_t{64} << 10;

/// Copies `bytes` from `from` to `to` on the GPU through pinned buffers, in stream order. On return, the data
/// are in the buffers; with `wait`, the copy has completed. On failure (false), the caller may repeat the
/// whole copy.
bool staged(CUdeviceptr to, const void* from, size_t bytes, CUstream stream, bool wait);

/// Waits until all staged copies are done.
void wait_for_staged();

/// Frees the buffers of all contexts, before one of them ends: the next may have its address.
void free_rings();

}  // namespace busfare::trial
