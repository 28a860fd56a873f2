#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>

#include "cupti_library.h"
#include "options.h"

namespace busfare::recorder {

/// What a copy call was asked to do, which activity records do not say.
struct CopyAddresses {
    uint64_t correlation;
    uint64_t source;
    uint64_t destination;
    uint64_t bytes;
    uint64_t fingerprint;  ///< of the bytes copied; 0: not taken
    uint64_t fingerprint_start;
    uint64_t fingerprint_duration;  ///< ns that taking it held the program up
};

/// Notes the addresses of copies, from the callbacks of copy calls, one lock-free ring a thread.
///
/// The program's threads only fill rings; `drain` empties them, on the writer thread. A full ring loses rows,
/// counted, and never waits.
class CopyWatch {
  public:
    CopyWatch(const CuptiLibrary& cupti, bool fingerprint, std::function<void()> wake_writer)
        : cupti_(cupti), fingerprint_(fingerprint), wake_writer_(std::move(wake_writer)) {}

    /// Turns on the callbacks of the copy calls of these domains whose parameters are known.
    void subscribe(CUpti_SubscriberHandle subscriber, CallDomains domains) const;

    /// Off: copies pass unnoted.
    void turn(bool on) { on_ = on; }

    /// From the callback: true when the call is a copy that this watches.
    bool note(CUpti_CallbackDomain domain, CUpti_CallbackId call, const CUpti_CallbackData& data);

    /// Hands over all rows noted so far; returns how many were lost since the last time.
    static uint64_t drain(const std::function<void(const CopyAddresses&)>& take);

  private:
    void take_fingerprint(CopyAddresses& row, uint64_t address) const;

    const CuptiLibrary& cupti_;
    std::atomic<bool> on_{false};
    const bool fingerprint_;
    const std::function<void()> wake_writer_;
};

}  // namespace busfare::recorder
