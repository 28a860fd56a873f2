#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace busfare::trial {

/// Counters, in the order of `kNames` in report.cpp. `kKept…`: number of pageable copies left unchanged, each
/// followed by the number of their bytes.
enum Count : size_t {
    kFirstCall,  ///< ns of CLOCK_MONOTONIC
    kFirstWork,  ///< likewise, of the first copy or kernel
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

/// A counter of this process, in the mapped file `BUSFARE_TRY_REPORT`.<pid>.<ns>, which remains if the
/// program is killed or executes another. The first CUDA call creates the file. Each row is a name (24
/// characters, zero-padded) and a 64-bit number.
std::atomic<uint64_t>& counted(Count what);

inline void count(Count what, uint64_t more = 1) {
    counted(what).fetch_add(more, std::memory_order_relaxed);
}

/// Counts a copy and its bytes.
inline void count_copy(Count copies, uint64_t bytes) {
    count(copies);
    count(static_cast<Count>(copies + 1), bytes);
}

uint64_t now_ns();

/// Records the time of a CUDA call of the program. `first`: the counter for the first such call.
void note_call(Count first = kFirstCall);

/// Gives a forked child its own counters.
void report_of_child();

}  // namespace busfare::trial
