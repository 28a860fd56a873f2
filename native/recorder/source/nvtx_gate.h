#pragma once

#include <atomic>
#include <string>

#include "cupti_library.h"

namespace busfare::recorder {

/// Tells when the program is inside an NVTX range of a given name (`--nvtx RANGE`), on any thread, in any
/// domain.
class NvtxGate {
  public:
    explicit NvtxGate(std::string range) : range_(std::move(range)) {}

    void subscribe(const CuptiLibrary& cupti, CUpti_SubscriberHandle subscriber) const;

    enum class Change { kNone, kOpened, kClosed };

    /// From the callback: whether the first such range has opened, or the last one closed.
    Change note(CUpti_CallbackId call, const void* callback_data);

  private:
    const std::string range_;
    std::atomic<int> open_{0};
};

}  // namespace busfare::recorder
