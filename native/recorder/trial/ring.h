#pragma once

#include <cuda.h>

#include <cstddef>

namespace busfare::trial {

constexpr size_t kLeastStaged = size_t{64} << 10;

/// Copies `bytes` from `from` to the GPU's `to` in the order of `stream`, by pinned buffers: the data are
/// taken when it returns. With `wait`, the copy is done then, too. Whether it did: what failed may be copied
/// again as a whole.
bool staged(CUdeviceptr to, const void* from, size_t bytes, CUstream stream, bool wait);

}  // namespace busfare::trial
