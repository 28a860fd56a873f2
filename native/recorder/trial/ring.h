#pragma once

#include <cuda.h>

#include <cstddef>

namespace busfare::trial {

constexpr size_t kLeastStaged = size_t{64} << 10;

/// Copies `bytes` from `from` to `to` on the GPU through pinned buffers, in stream order. Returns when the
/// data are in the buffers. If it returns false, the caller may repeat the whole copy.
bool staged(CUdeviceptr to, const void* from, size_t bytes, CUstream stream);

/// Waits for all staged copies to complete.
void wait_for_staged();

/// Frees the buffers of all contexts before one is destroyed: a new context may reuse its address.
void free_rings();

}  // namespace busfare::trial
