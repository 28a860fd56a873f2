#pragma once

#include <cstddef>
#include <cstdint>

namespace busfare::recorder {

/// Tables of a recording. Numbers are part of the file format (docs/recording-format.md): never reuse one.
enum class TableId : uint16_t {
    kStrings = 1,
    kFacts = 2,
    kKernels = 3,
    kCopies = 4,
    kSets = 5,
    kCalls = 6,
    kWaits = 7,
    kEvents = 8,
    kStreams = 9,
    kContexts = 10,
    kDevices = 11,
    kPcieLinks = 12,
    kNvlinks = 13,
    kManaged = 14,
    kMarkers = 15,
    kOverheads = 16,
    kAllocations = 17,
    kGraphLaunches = 18,
    kCopyAddresses = 19,
    kDemangled = 20,
    kLosses = 21,
    kEnd = 22,
    kWindows = 23,
    // 24, 25, 33 and 35 are of earlier versions.
    kMessages = 26,
    kCommunicators = 27,
    kStacks = 28,
    kCallStacks = 29,
    // 30 is `lines`, which the launcher writes.
};

/// How many columns the writer of this version fills, by table; column numbers run from 0 in the documented
/// order.
constexpr size_t columns_of(TableId table) {
    constexpr size_t columns[] = {0, 2, 2, 19, 19, 10, 7, 8, 6,  4, 4, 12, 7, 9, 8, 7, 5, 10,
                                  7, 7, 2, 3,  4,  2,  0, 0, 10, 5, 5, 2,  6, 0, 0, 0, 4};
    return columns[static_cast<size_t>(table)];
}

inline constexpr size_t kTableCount = 35;  ///< including the unused number 0

/// What a row of `kLosses` counts.
enum class Loss : uint64_t {
    kCuptiDropped = 1,
    kNoBuffer = 2,
    kNoteRingFull = 3,
    kUnknownRecord = 4,
    kStacksFull = 5,
};

/// Why a recording ended, in `kEnd`.
enum class EndReason : uint64_t { kProgramExit = 1, kDuration = 2 };

}  // namespace busfare::recorder
