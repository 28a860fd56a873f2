#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <shared_mutex>

#include "launch_arguments.h"
#include "note.h"

namespace busfare::recorder {

/// Which pinned memory of the host kernels get through their arguments.
///
/// A pointer that lies in other memory, as in a table of pointers, is not seen.
class MappedArguments {
  public:
    /// What a call of the driver means here, by its name without a suffix.
    enum class Act : uint8_t { kNone, kPins, kRegisters, kFrees };
    static Act act_of(const char* name);

    /// Whether the driver tells what arguments kernels have: CUDA 12.4 and newer do.
    bool start() { return places_.find(); }

    /// From the beginning of a call that frees: its memory is pinned no more.
    void freed(const void* parameters);

    /// From the end of a call that pinned memory and succeeded.
    void pinned(Act act, const void* parameters);

    /// From a launch: into `one` the bytes of pinned memory from each pointer to the end of its buffer, each
    /// buffer once, into `two` how many buffers. False where there are none.
    bool reach(LaunchCall call, const void* parameters, Note& note) const;

  private:
    ArgumentPlaces places_;
    mutable std::shared_mutex mutex_;
    std::map<uint64_t, uint64_t> pinned_;  ///< bytes, by where they begin
    std::atomic<bool> any_{false};         ///< a launch costs nothing before something is pinned
};

}  // namespace busfare::recorder
