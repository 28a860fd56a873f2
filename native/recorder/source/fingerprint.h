#pragma once

#include <cstddef>
#include <cstdint>

namespace busfare::recorder {

/// A 64-bit hash of `bytes` at `address` of this process, never 0; 0 when any of them cannot be read. A bad
/// address is no crash: the memory is read through the kernel.
uint64_t fingerprint(const void* address, size_t bytes);

}  // namespace busfare::recorder
