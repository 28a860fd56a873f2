#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "report.h"

namespace busfare::trial {

constexpr size_t kLeastPinned = size_t{16} << 10;
/// Ranges of this size and more are pinned at their first copy, others at their second.
constexpr size_t kPinnedAtOnce = size_t{16} << 20;

/// Begins and ends of pages.
using Gaps = std::vector<std::pair<uintptr_t, uintptr_t>>;

/// Pinned host memory in use by a copy; it stays pinned while this object lives.
class PinUse {
  public:
    /// Finds the pinned ranges of `memory`, or pins it if `may_pin`. On failure, `why` is the counter.
    PinUse(const void* memory, size_t bytes, bool may_pin);
    ~PinUse();
    PinUse(const PinUse&) = delete;
    PinUse& operator=(const PinUse&) = delete;

    explicit operator bool() const { return end_ != 0; }
    /// Where one pinned range of the memory ends and the next begins: the driver refuses copies across them.
    const std::vector<uintptr_t>& borders() const { return borders_; }
    /// Whether only a part of the memory is pinned: the driver refuses such copies.
    bool partly() const { return partly_; }
    Count why() const { return why_; }

  private:
    /// Pins the gaps in memory that a copy uses, if that is worth it.
    bool pin_gaps(const Gaps& gaps, uintptr_t first, uintptr_t last);

    uintptr_t begin_ = 0, end_ = 0;
    std::vector<uintptr_t> borders_;
    bool partly_ = false;
    Count why_ = kKeptFirstUse;
};

/// Unpins ranges that overlap the memory. `of_heap`: a heap block, which may share pages with other blocks.
/// Cheap if nothing is pinned there.
void release_pins(const void* memory, size_t bytes, bool of_heap = false);
void release_all_pins();

/// Unpins everything, and pins nothing more.
void stop_pinning();
bool any_pins();

/// Unpins the memory, and never pins it again.
void never_pin(const void* memory, size_t bytes);

}  // namespace busfare::trial
