#pragma once

#include <cstdint>
#include <string>

namespace busfare::recorder {

/// What to record, as bits of `Options::kinds`; the names users give are in options.cpp.
enum Kind : uint32_t {
    kKernels = 1u << 0,
    kCopies = 1u << 1,
    kSets = 1u << 2,
    kCalls = 1u << 3,       ///< calls that submit, wait, allocate or free
    kAllCalls = 1u << 4,    ///< every runtime and driver call
    kWaits = 1u << 5,       ///< synchronisation records
    kEvents = 1u << 6,      ///< event records
    kMemory = 1u << 7,      ///< allocations and frees
    kManaged = 1u << 8,     ///< migrations and faults of managed memory
    kMarkers = 1u << 9,     ///< NVTX
    kOverheads = 1u << 10,  ///< time that CUPTI and the driver spent on themselves
    kGraphs = 1u << 11,     ///< one record a graph launch, in place of its nodes
    kAddresses = 1u << 12,  ///< source and destination of each copy
    kMessages = 1u << 13,   ///< calls of MPI and NCCL
    kDefault = kKernels | kCopies | kSets | kCalls | kWaits | kEvents | kMemory | kManaged | kMarkers |
        kOverheads | kAddresses | kMessages,
    kByCallbacks = kCalls | kAllCalls | kWaits | kEvents,  ///< unless CUPTI's own records are asked for
};

/// Whose calls are recorded, with the waits and event records among them.
enum class Calls {
    kDriver,   ///< those of the driver, also where the runtime makes them, by callbacks
    kProgram,  ///< those that the program makes, of the runtime and of the driver, by CUPTI's own records
};

enum class Capture { kWhole, kProfilerCalls, kNvtxRange };

/// Everything that the launcher asks for, from the environment (`BUSFARE_RECORD_*`).
struct Options {
    std::string output;  ///< file name pattern; empty: do not record
    double flush_seconds = 1.0;
    double delay_seconds = 0.0;
    double duration_seconds = 0.0;  ///< 0: to the end
    Capture capture = Capture::kWhole;
    std::string nvtx_range;
    uint32_t kinds = kDefault;
    Calls calls = Calls::kDriver;
    bool fingerprint = false;
    bool stacks = false;
    std::string cupti;    ///< colon-separated libraries to try after those that the process can find itself
    std::string command;  ///< the command line, for the recording's facts
    std::string run;      ///< by which the launcher knows its recordings again
    size_t buffer_bytes = size_t{2} << 20;
    size_t buffer_limit = 128;  ///< buffers; the memory bound is `buffer_bytes * buffer_limit`
    bool trust_cupti = false;   ///< accept a CUPTI newer than the layouts that were checked

    /// The kinds that callbacks are to find, and those that are left to CUPTI.
    uint32_t watched_kinds() const {
        return calls == Calls::kDriver ? kinds & (kByCallbacks | kAddresses) : kinds & kAddresses;
    }
    uint32_t cupti_kinds() const { return calls == Calls::kDriver ? kinds & ~kByCallbacks : kinds; }
};

/// Reads the environment. Unknown words in `BUSFARE_RECORD_KINDS` and `_CALLS` are said on standard error and
/// skipped.
Options options_from_environment();

}  // namespace busfare::recorder
