#pragma once

#include <cstddef>
#include <cstdint>

#include "report.h"

namespace busfare::trial {

constexpr size_t kLeastPinned = size_t{16} << 10;
/// Ranges from this size are pinned at their first copy, others at their second.
constexpr size_t kPinnedAtOnce = size_t{16} << 20;

/// A range of host memory that this library has pinned, in use by a copy: it stays pinned meanwhile.
class PinUse {
  public:
    /// Looks for `bytes` at `memory`, or pins them if `may_pin`; without success, `why` is what to count.
    PinUse(const void* memory, size_t bytes, bool may_pin);
    ~PinUse();
    PinUse(const PinUse&) = delete;
    PinUse& operator=(const PinUse&) = delete;

    explicit operator bool() const { return key_ != 0; }
    /// Whether only a part of the memory is pinned: the driver refuses copies of such.
    bool partly() const { return partly_; }
    Count why() const { return why_; }

  private:
    uintptr_t key_ = 0;
    bool partly_ = false;
    Count why_ = kKeptFirstUse;
};

/// Unpins what overlaps the memory; `of_heap`: which is a piece of the heap, whose pages others may share.
/// Cheap where nothing of the kind is pinned.
void release_pins(const void* memory, size_t bytes, bool of_heap = false);
void release_all_pins();

bool any_pins();

/// Unpins the memory, and never pins it again.
void never_pin(const void* memory, size_t bytes);

}  // namespace busfare::trial
