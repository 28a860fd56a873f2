#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "report.h"

namespace busfare::trial {

constexpr size_t kLeastPinned = size_t{16} << 10;
/// Ranges of at least this size are pinned at their first copy, smaller ones at their second.
constexpr size_t kPinnedAtOnce = size_t{16} << 20;

/// Start and end addresses of page ranges.
using Gaps = std::vector<std::pair<uintptr_t, uintptr_t>>;

/// Pinned host memory that a copy uses. It stays pinned as long as this object exists.
class PinUse {
  public:
    /// Finds the pinned ranges of `memory`; if `may_pin`, pins the rest. On failure, `why` is the reason.
    PinUse(const void* memory, size_t bytes, bool may_pin);
    ~PinUse();
    PinUse(const PinUse&) = delete;
    PinUse& operator=(const PinUse&) = delete;

    explicit operator bool() const { return end_ != 0; }
    /// Addresses at which one pinned range ends and the next begins. The driver rejects copies across them.
    const std::vector<uintptr_t>& boundaries() const { return boundaries_; }
    /// Whether only part of the memory is pinned. The driver rejects such copies.
    bool partly() const { return partly_; }
    Count why() const { return why_; }

  private:
    /// Pins the unpinned parts of memory that a copy uses, if that is worthwhile.
    bool pin_gaps(const Gaps& gaps, uintptr_t first, uintptr_t last);

    uintptr_t begin_ = 0, end_ = 0;
    std::vector<uintptr_t> boundaries_;
    bool partly_ = false;
    Count why_ = kKeptFirstUse;
};

/// Unpins all ranges that overlap the memory; cheap if there are none. `of_heap`: the memory is a heap block,
/// which may share pages with other blocks.
void release_pins(const void* memory, size_t bytes, bool of_heap = false);
void release_all_pins();

/// Disables pinning and unpins everything: memory in use, when its copies end, which may wait for the caller.
void stop_pinning();
bool any_pins();
/// Whether pages of the memory may be pinned. `of_heap`: only if copies may have used this heap block.
bool may_be_pinned(const void* memory, size_t bytes, bool of_heap = false);

/// Unpins the memory and never pins it again.
void never_pin(const void* memory, size_t bytes);

/// Whether the memory overlaps the stack of a thread other than the main thread.
bool of_thread(uintptr_t begin, uintptr_t end);

}  // namespace busfare::trial
