#pragma once

#include <cupti.h>
#include <cupti_profiler_host.h>
#include <cupti_range_profiler.h>
#include <cupti_target.h>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "cupti_library.h"

namespace busfare::recorder {

/// Hardware counters of one launch at a time, by CUPTI's range profiler. Used by one thread at a time.
///
/// Takes of `kMetrics` as many, in that order, as the GPU has and counts in `passes` runs of a kernel: with
/// one pass nothing is run again, and no memory saved and restored.
class RangeProfiler {
  public:
    RangeProfiler(const CuptiLibrary& cupti, size_t passes, bool talk);

    /// Before the launch, in `context`, which is current. False when CUPTI refuses; `error()` says why.
    bool begin(CUcontext context);

    /// After it, also where `begin` failed. Waits for the kernel; a value for each of `metrics()`, or false.
    /// Other kernels that ran meanwhile make it false with an empty `error()`.
    bool end(std::vector<double>& values);

    const std::vector<const char*>& metrics() const { return plan_->metrics; }
    size_t passes() const { return plan_->passes; }
    const std::string& error() const { return error_; }

    /// After an error: from now on the range is this code's own around the launch, in one pass. False when it
    /// was.
    bool change_ranges();

  private:
    /// What is counted on a device.
    struct Plan {
        std::vector<const char*> metrics;
        size_t passes = 0;
        CUpti_Profiler_Host_Object* host = nullptr;
        std::vector<uint8_t> config;
    };

    bool step(const char* name, CUptiResult result);
    bool initialize();
    bool make_plan(CUcontext context);
    bool configure(const std::string& chip, const std::vector<const char*>& metrics, Plan& plan);
    void forget(CUpti_Profiler_Host_Object* host);
    bool start(CUcontext context);
    bool read(std::vector<double>& values);
    void synchronize();

    const CuptiLibrary& cupti_;
    size_t most_passes_;
    const bool talk_;
    bool initialized_ = false;
    bool user_ranges_ = false;  ///< else CUPTI makes one of each kernel
    std::string error_;
    std::unordered_map<uint32_t, Plan> plans_;  ///< by device
    Plan* plan_ = nullptr;
    CUpti_RangeProfiler_Object* object_ = nullptr;
    bool started_ = false;
    std::vector<uint8_t> counted_;
    decltype(&::cuCtxSynchronize) synchronize_ = nullptr;

    decltype(&::cuptiProfilerInitialize) initialize_ = nullptr;
    decltype(&::cuptiGetDeviceId) device_ = nullptr;
    decltype(&::cuptiDeviceGetChipName) chip_name_ = nullptr;
    decltype(&::cuptiProfilerHostInitialize) host_initialize_ = nullptr;
    decltype(&::cuptiProfilerHostDeinitialize) host_deinitialize_ = nullptr;
    decltype(&::cuptiProfilerHostConfigAddMetrics) add_metrics_ = nullptr;
    decltype(&::cuptiProfilerHostGetConfigImageSize) config_size_ = nullptr;
    decltype(&::cuptiProfilerHostGetConfigImage) config_image_ = nullptr;
    decltype(&::cuptiProfilerHostGetNumOfPasses) number_of_passes_ = nullptr;
    decltype(&::cuptiProfilerHostEvaluateToGpuValues) evaluate_ = nullptr;
    decltype(&::cuptiRangeProfilerEnable) enable_ = nullptr;
    decltype(&::cuptiRangeProfilerDisable) disable_ = nullptr;
    decltype(&::cuptiRangeProfilerGetCounterDataSize) counted_size_ = nullptr;
    decltype(&::cuptiRangeProfilerCounterDataImageInitialize) clear_counted_ = nullptr;
    decltype(&::cuptiRangeProfilerSetConfig) set_config_ = nullptr;
    decltype(&::cuptiRangeProfilerStart) start_ = nullptr;
    decltype(&::cuptiRangeProfilerStop) stop_ = nullptr;
    decltype(&::cuptiRangeProfilerPushRange) push_ = nullptr;
    decltype(&::cuptiRangeProfilerPopRange) pop_ = nullptr;
    decltype(&::cuptiRangeProfilerDecodeData) decode_ = nullptr;
    decltype(&::cuptiRangeProfilerGetCounterDataInfo) counted_info_ = nullptr;
};

}  // namespace busfare::recorder
