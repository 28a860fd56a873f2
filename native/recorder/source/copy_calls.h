#pragma once

#include <cstdint>

#include "note.h"

namespace busfare::recorder {

/// Which side of a copy lies in memory that the host can read when its bytes are the ones copied: the source
/// before the call, the destination after it, or once the stream has come past it.
enum class HostSide : uint8_t { kNone, kSource, kDestination, kDestinationLater };

/// Where the parameters of one driver call lie in its parameter structure.
struct CopyCall {
    uint16_t number;
    uint8_t destination;
    uint8_t source;
    uint8_t bytes;
    HostSide host;
    bool described;  ///< the first parameter points to a CUDA_MEMCPY2D instead
};

/// The copy call of this callback number, or null: linear, two-dimensional and peer copies are known.
const CopyCall* copy_call(uint32_t number);

/// Addresses and bytes of a call, into `first`, `second` and `third`; 0 for an address in an array.
void read_copy(const CopyCall& call, const void* parameters, Note& note);

}  // namespace busfare::recorder
