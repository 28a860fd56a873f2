#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>

#include "copy_calls.h"
#include "cupti_library.h"
#include "handles.h"
#include "landed_copies.h"
#include "note.h"
#include "options.h"
#include "stacks.h"
#include "trace_clock.h"

namespace busfare::recorder {

/// Notes calls from the driver's callbacks: their times, addresses of copies, what waits wait for, event
/// records.
///
/// The runtime's calls make driver calls, whose callbacks come too and bear the number of the GPU's work,
/// while a callback or a record of any runtime call would slow them all, queries too.
class CallWatch {
  public:
    CallWatch(const CuptiLibrary& cupti, const Options& options, const TraceClock& clock,
              std::function<void()> wake_writer);

    /// Turns the callbacks of the calls that the wanted kinds need on or off.
    void subscribe(CUpti_SubscriberHandle subscriber, bool on) const;

    /// Off: calls that begin pass unnoted.
    void switch_to(bool on) { on_ = on; }

    /// From the callback of a driver call: false when this does not watch it.
    bool note(CUpti_CallbackId number, const CUpti_CallbackData& data);

    Stacks& stacks() { return stacks_; }

  private:
    enum class Act : uint8_t {
        kNone,
        kCall,
        kCopy,
        kStreamWait,   ///< the host for a stream
        kContextWait,  ///< the host for a context
        kEventWait,    ///< the host for an event
        kStreamWaitsEvent,
        kEventRecord,
        kStreamDestroy,
        kEventDestroy,
    };
    struct Plan {
        Act act = Act::kNone;
        bool call = false;
        bool per_thread = false;  ///< takes the null stream for the thread's own
        bool stack = false;       ///< where it is made is wanted: it copies, waits, allocates or frees
    };

    void enter(CUpti_CallbackId number, const Plan& plan, const CUpti_CallbackData& data);
    void leave(CUpti_CallbackId number, const Plan& plan, const CUpti_CallbackData& data);
    void push(Note& note, const Plan& plan, const Note* fingerprint = nullptr);
    void take_fingerprint(uint64_t address, uint64_t bytes, Note& print) const;
    void take_fingerprint_if_landed(const LandedCopies::Copy& copy, Note& print);
    Act act_of(const char* name) const;

    static constexpr CUpti_CallbackId kNumbers = 1024;

    const CuptiLibrary& cupti_;
    const TraceClock& clock_;
    const bool fingerprint_;
    const uint32_t kinds_;
    Notes notes_;
    LandedCopies landed_copies_;
    Stacks stacks_;
    StreamNumbers streams_;
    EventNumbers events_;
    std::atomic<bool> on_{false};
    std::array<Plan, kNumbers> plans_{};
};

}  // namespace busfare::recorder
