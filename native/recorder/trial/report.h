#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace busfare::trial {

/// What is counted, in the order of `kNames` in report.cpp. `kKept…` are pageable copies that stay as they
/// are, with their bytes behind them.
enum Count : size_t {
    kFirstCall,  ///< ns of CLOCK_MONOTONIC
    kLastCall,
    kPageableCopies,
    kPageableBytes,
    kChangedCopies,
    kChangedBytes,
    kPinnedRanges,
    kPinnedBytes,
    kPinningNs,
    kStagedCopies,
    kStagedBytes,
    kKeptSmall,
    kKeptFirstUse = kKeptSmall + 2,
    kKeptCapture = kKeptFirstUse + 2,
    kKeptVisible = kKeptCapture + 2,
    kKeptStack = kKeptVisible + 2,
    kKeptRefused = kKeptStack + 2,
    kKeptLimit = kKeptRefused + 2,
    kKeptBrief = kKeptLimit + 2,
    kCounts = kKeptBrief + 2,
};

/// The counters of this process, in a file that a killed program leaves, too: `BUSFARE_TRY_REPORT`.<pid>,
/// made when the program first calls CUDA. Rows of a name, 24 characters filled with zeros, and a number of
/// 64 bits.
std::atomic<uint64_t>& counted(Count what);

inline void count(Count what, uint64_t more = 1) {
    counted(what).fetch_add(more, std::memory_order_relaxed);
}

/// A copy of so many bytes, and how many there are of them.
inline void count_copy(Count copies, uint64_t bytes) {
    count(copies);
    count(static_cast<Count>(copies + 1), bytes);
}

uint64_t now_ns();

/// Notes the time of a call of the program.
void note_call();

/// In the child of a fork: its counters are its own.
void report_of_child();

}  // namespace busfare::trial
