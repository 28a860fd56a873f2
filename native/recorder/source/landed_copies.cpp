#include "landed_copies.h"

#include <dlfcn.h>

#include <algorithm>
#include <iterator>
#include <type_traits>

#include "beside_captures.h"
#include "own_calls.h"

namespace busfare::recorder {
namespace {

constexpr std::string_view kCalls[] = {"cuPointerGetAttribute", "cuDeviceGetAttribute",
                                       "cuThreadExchangeStreamCaptureMode", "cuStreamIsCapturing"};

}  // namespace

bool LandedCopies::calls(std::string_view name) {
    if (name.ends_with("_ptsz")) name.remove_suffix(5);
    return std::ranges::find(kCalls, name) != std::end(kCalls);
}

void LandedCopies::start() {
    void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    available_ = driver;
    const auto find = [&](const char* name, auto& function) {
        if (available_)
            function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(driver, name));
        available_ = available_ && function;
    };
    find("cuPointerGetAttribute", driver_.pointer_attribute);
    find("cuDeviceGetAttribute", driver_.device_attribute);
    find("cuThreadExchangeStreamCaptureMode", driver_.exchange_mode);
    find("cuStreamIsCapturing", driver_.is_capturing[0]);
    find("cuStreamIsCapturing_ptsz", driver_.is_capturing[1]);
}

bool LandedCopies::landed(const Copy& copy) {
    if (!available_ || copy.bytes == 0) return false;
    const RecorderCalls recorder_calls;
    const CaptureExemption exemption(driver_.exchange_mode);
    if (!exemption) return false;
    // Of the legacy stream this fails where a capture forbids its use, and leaves that capture as it is.
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    if (driver_.is_capturing[copy.per_thread](copy.stream, &status) != CUDA_SUCCESS ||
        status != CU_STREAM_CAPTURE_STATUS_NONE)
        return false;
    uint64_t type = 0;
    const bool pageable =
        driver_.pointer_attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CUdeviceptr{copy.destination}) ==
        CUDA_ERROR_INVALID_VALUE;
    return pageable && !gpu_reaches_pageable();
}

/// Calls may return early where the GPU writes pageable memory itself, as beside Grace.
bool LandedCopies::gpu_reaches_pageable() {
    std::call_once(attribute_read_, [this] {
        int reaches = 0;
        constexpr auto kReaches = CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES;
        gpu_reaches_pageable_ =
            driver_.device_attribute(&reaches, kReaches, CUdevice{0}) != CUDA_SUCCESS || reaches;
    });
    return gpu_reaches_pageable_;
}

}  // namespace busfare::recorder
