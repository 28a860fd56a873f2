#pragma once

#include <cuda.h>

namespace busfare::recorder {

/// While one lives, no capture, of whichever thread, forbids this thread a call or is ended by one.
class CaptureExemption {
  public:
    explicit CaptureExemption(decltype(&::cuThreadExchangeStreamCaptureMode) exchange)
        : exchange_(exchange), exchanged_(exchange(&mode_) == CUDA_SUCCESS) {}
    ~CaptureExemption() {
        if (exchanged_) exchange_(&mode_);
    }
    CaptureExemption(const CaptureExemption&) = delete;
    CaptureExemption& operator=(const CaptureExemption&) = delete;
    explicit operator bool() const { return exchanged_; }

  private:
    const decltype(&::cuThreadExchangeStreamCaptureMode) exchange_;
    CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
    const bool exchanged_;
};

}  // namespace busfare::recorder
