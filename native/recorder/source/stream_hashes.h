#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string_view>

#include "note.h"
#include "trace_clock.h"

namespace busfare::recorder {

/// Hashes what asynchronous copies bring to the host, once it is there.
///
/// Pinned memory is hashed by a host function behind the copy in its stream, which holds the stream up. A
/// copy to pageable memory is done when its call returns: the caller hashes that.
class StreamHashes {
  public:
    enum class When : uint8_t { kNever, kNow, kInStream };

    struct Copy {
        CUstream stream;
        bool per_thread;  ///< the call takes the null stream for the thread's own
        uint32_t correlation;
        uint64_t destination;
        uint64_t bytes;
    };

    StreamHashes(const TraceClock& clock, const Notes& notes) : clock_(clock), notes_(notes) {}

    /// Finds the driver's functions; without them nothing is hashed.
    void start();

    /// Off, for good: what waits in streams then is not hashed later either.
    void turn(bool on);

    /// From the end of a copy's call that succeeded: when its destination is hashed. `kNever` where a stream
    /// is captured, for managed memory, and wherever the driver does not say what it needs to.
    When ask(const Copy& copy);

    /// Whether this makes driver calls of that name.
    static bool calls(std::string_view name);

  private:
    struct Job {
        StreamHashes* hashes;
        uint64_t window;
        Copy copy;
    };
    class Waiting;
    struct Driver {
        decltype(&::cuPointerGetAttribute) pointer_attribute = nullptr;
        decltype(&::cuDeviceGetAttribute) device_attribute = nullptr;
        decltype(&::cuThreadExchangeStreamCaptureMode) exchange_mode = nullptr;
        // The second takes the null stream for the thread's own.
        decltype(&::cuStreamIsCapturing) is_capturing[2] = {};
        decltype(&::cuLaunchHostFunc) launch[2] = {};
    };

    When place_of(uint64_t destination);
    bool launch(const Copy& copy);
    void hash(const Job& job);
    static void run(void* number);
    static Waiting& waiting();

    const TraceClock& clock_;
    const Notes& notes_;
    Driver driver_;
    bool known_ = false;  ///< all functions are
    std::once_flag asked_;
    bool gpu_reaches_pageable_ = false;

    std::mutex mutex_;  ///< held while a hash is noted, so that none comes after its window
    uint64_t windows_ = 0;
    std::atomic<uint64_t> window_{0};  ///< number of the one that is on; 0: none
};

}  // namespace busfare::recorder
