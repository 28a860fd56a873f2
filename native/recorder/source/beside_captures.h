#pragma once

#include <cuda.h>

namespace busfare::recorder {

/// While one lives, no capture, of whichever thread, forbids this thread a call or is ended by one.
class BesideCaptures {
  public:
    explicit BesideCaptures(decltype(&::cuThreadExchangeStreamCaptureMode) exchange)
        : exchange_(exchange), exchanged_(exchange(&mode_) == CUDA_SUCCESS) {}
    ~BesideCaptures() {
        if (exchanged_) exchange_(&mode_);
    }
    BesideCaptures(const BesideCaptures&) = delete;
    BesideCaptures& operator=(const BesideCaptures&) = delete;
    explicit operator bool() const { return exchanged_; }

  private:
    const decltype(&::cuThreadExchangeStreamCaptureMode) exchange_;
    CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
    const bool exchanged_;
};

}  // namespace busfare::recorder
