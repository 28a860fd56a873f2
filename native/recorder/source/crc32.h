#pragma once

#include <cstddef>
#include <cstdint>

namespace busfare::recorder {

/// The CRC-32 of zlib, PNG and Ethernet (polynomial 0xEDB88320), so that any reader has it at hand.
uint32_t crc32(const void* data, size_t bytes, uint32_t before = 0);

}  // namespace busfare::recorder
