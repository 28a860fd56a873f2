#pragma once

#include <cuda.h>

#include <cstdint>
#include <mutex>
#include <string_view>

namespace busfare::recorder {

/// Whether the bytes of an asynchronous copy to the host are there when its call returns.
///
/// The driver stages a copy to pageable memory before its call returns.
class LandedCopies {
  public:
    struct Copy {
        CUstream stream;
        bool per_thread;  ///< the call takes the null stream for the thread's own
        uint64_t destination;
        uint64_t bytes;
    };

    /// Finds the driver's functions; without them no copy has landed.
    void start();

    /// From the end of a copy's call that succeeded. False where the stream is captured, and wherever the
    /// driver does not say what this needs.
    bool landed(const Copy& copy);

    /// Whether this makes driver calls of that name.
    static bool calls(std::string_view name);

  private:
    struct Driver {
        decltype(&::cuPointerGetAttribute) pointer_attribute = nullptr;
        decltype(&::cuDeviceGetAttribute) device_attribute = nullptr;
        decltype(&::cuThreadExchangeStreamCaptureMode) exchange_mode = nullptr;
        // The second takes the null stream for the thread's own.
        decltype(&::cuStreamIsCapturing) is_capturing[2] = {};
    };

    bool gpu_reaches_pageable();

    Driver driver_;
    bool available_ = false;  ///< all functions are
    std::once_flag attribute_read_;
    bool gpu_reaches_pageable_ = false;
};

}  // namespace busfare::recorder
