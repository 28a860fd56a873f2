#pragma once

#include <cstdint>
#include <string>

#include "cupti_library.h"
#include "options.h"

namespace busfare::recorder {

/// Turns the activity of CUPTI on and off that the wanted kinds need.
class Kinds {
  public:
    Kinds(const CuptiLibrary& cupti, uint32_t wanted) : cupti_(cupti), wanted_(wanted) {}

    /// What must be known from the start, also when recording begins later: devices, contexts, streams,
    /// links, allocations. False, with a reason, when CUPTI refuses the first of them.
    bool enable_setting(std::string* why) const;

    /// Calls: from the start to the end, whatever the window (see Windows).
    void enable_calls(bool on) const;

    /// Operations and waits: what `--delay`, `--nvtx` and profiler calls turn on and off.
    void enable_operations(bool on) const;

    /// Counters of managed memory. They cost a thread and a buffer in the driver, so only programs that use
    /// managed memory get them.
    void enable_managed() const;

  private:
    const CuptiLibrary& cupti_;
    const uint32_t wanted_;
};

/// Whether a call is one that submits, waits, allocates or frees; the rest are queries that cost little and
/// would only fill the recording. `name` is CUPTI's, such as `cudaMemcpyAsync_v3020`.
bool is_call_of_interest(const char* name);

}  // namespace busfare::recorder
