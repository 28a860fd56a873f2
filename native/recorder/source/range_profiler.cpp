#include "range_profiler.h"

#include <dlfcn.h>

#include <string_view>
#include <utility>

#include "message.h"
#include "trace_clock.h"

namespace busfare::recorder {
namespace {

/// In order of worth; docs/recorder.md says what one pass holds. Counters of the hardware alone: those named
/// `sass` would have the kernel's code changed.
constexpr const char* kMetrics[] = {
    "gpu__time_duration.sum",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "lts__t_bytes.sum",
    "sm__cycles_elapsed.max",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "sm__pipe_tensor_cycles_active.sum",
    "sm__inst_executed_pipe_fma.sum",
    "sm__inst_executed_pipe_fp64.sum",
    "sm__inst_executed_pipe_fma_type_fp16.sum",
    "sm__pipe_fp64_cycles_active.sum",
    "sm__inst_executed_pipe_fp16.sum",
    "sm__cycles_active.sum",
    "l1tex__t_bytes.sum",
};

// Structures that grew since are handed over as they were in CUDA 12.8, which every later CUPTI takes.
constexpr size_t kHostBytes = CUPTI_PROFILER_STRUCT_SIZE(CUpti_Profiler_Host_Initialize_Params, pHostObject);
constexpr size_t kEnableBytes =
    CUPTI_PROFILER_STRUCT_SIZE(CUpti_RangeProfiler_Enable_Params, pRangeProfilerObject);

template <typename Parameters>
Parameters sized(size_t bytes) {
    Parameters parameters{};
    parameters.structSize = bytes;
    return parameters;
}

}  // namespace

#define BUSFARE_SIZED(type) sized<type>(type##_STRUCT_SIZE)

RangeProfiler::RangeProfiler(const CuptiLibrary& cupti, size_t passes, bool talk)
    : cupti_(cupti), most_passes_(passes), talk_(talk) {}

bool RangeProfiler::step(const char* name, CUptiResult result) {
    const char* text = "";
    if (result != CUPTI_SUCCESS || talk_) cupti_.result_string(result, &text);
    if (talk_) {
        static uint64_t before = TraceClock::system_ns();
        const uint64_t now = TraceClock::system_ns();
        sayf("counters: %s: %d %s, %.3f ms", name, result, text, static_cast<double>(now - before) * 1e-6);
        before = TraceClock::system_ns();
    }
    if (result == CUPTI_SUCCESS) return true;
    if (!error_.empty()) return false;  // the first error is the cause
    if (result == CUPTI_ERROR_INSUFFICIENT_PRIVILEGES ||
        result == CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES) {
        error_ =
            "the driver lets this user read none; run as root or with CAP_SYS_ADMIN, or load the module "
            "nvidia "
            "with NVreg_RestrictProfilingToAdminUsers=0";
    } else if (result == CUPTI_ERROR_NOT_INITIALIZED && std::string_view(name).ends_with("Initialize")) {
        error_ = "libnvperf_host.so or libnvperf_target.so, which belong beside CUPTI, cannot be loaded";
    } else if (result == CUPTI_ERROR_OLD_PROFILER_API_INITIALIZED) {
        error_ = "this process uses CUPTI's legacy event API, or its records of PCIe links";
    } else {
        error_ = std::string(name) + ": " + text;
    }
    return false;
}

bool RangeProfiler::initialize() {
    if (initialized_) return true;
    const char* missing = nullptr;
    const auto find = [&](const char* name, auto& function) {
        function =
            reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(cupti_.handle, name));
        if (!function) missing = name;
    };
    find("cuptiProfilerInitialize", initialize_);
    find("cuptiGetDeviceId", device_);
    find("cuptiDeviceGetChipName", chip_name_);
    find("cuptiProfilerHostInitialize", host_initialize_);
    find("cuptiProfilerHostDeinitialize", host_deinitialize_);
    find("cuptiProfilerHostConfigAddMetrics", add_metrics_);
    find("cuptiProfilerHostGetConfigImageSize", config_size_);
    find("cuptiProfilerHostGetConfigImage", config_image_);
    find("cuptiProfilerHostGetNumOfPasses", number_of_passes_);
    find("cuptiProfilerHostEvaluateToGpuValues", evaluate_);
    find("cuptiRangeProfilerEnable", enable_);
    find("cuptiRangeProfilerDisable", disable_);
    find("cuptiRangeProfilerGetCounterDataSize", counted_size_);
    find("cuptiRangeProfilerCounterDataImageInitialize", clear_counted_);
    find("cuptiRangeProfilerSetConfig", set_config_);
    find("cuptiRangeProfilerStart", start_);
    find("cuptiRangeProfilerStop", stop_);
    find("cuptiRangeProfilerPushRange", push_);
    find("cuptiRangeProfilerPopRange", pop_);
    find("cuptiRangeProfilerDecodeData", decode_);
    find("cuptiRangeProfilerGetCounterDataInfo", counted_info_);
    if (missing) {
        error_ = cupti_.path + " lacks " + missing + "; CUPTI of CUDA 12.8 or newer is needed";
        return false;
    }
    if (talk_) {
        Dl_info place{};
        ::dladdr(reinterpret_cast<void*>(initialize_), &place);
        sayf("counters: %s, version %u", place.dli_fname, cupti_.version);
    }
    if (void* driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD)) {
        synchronize_ = reinterpret_cast<decltype(synchronize_)>(::dlsym(driver, "cuCtxSynchronize"));
    }
    auto parameters = BUSFARE_SIZED(CUpti_Profiler_Initialize_Params);
    initialized_ = step("cuptiProfilerInitialize", initialize_(&parameters));
    return initialized_;
}

bool RangeProfiler::configure(const std::string& chip, const std::vector<const char*>& metrics, Plan& plan) {
    auto host = sized<CUpti_Profiler_Host_Initialize_Params>(kHostBytes);
    host.profilerType = CUPTI_PROFILER_TYPE_RANGE_PROFILER;
    host.pChipName = chip.c_str();
    if (const CUptiResult result = host_initialize_(&host); result != CUPTI_SUCCESS)
        return step("cuptiProfilerHostInitialize", result);
    plan.host = host.pHostObject;
    plan.metrics = metrics;
    auto add = BUSFARE_SIZED(CUpti_Profiler_Host_ConfigAddMetrics_Params);
    add.pHostObject = plan.host;
    add.ppMetricNames = plan.metrics.data();
    add.numMetrics = plan.metrics.size();
    auto size = BUSFARE_SIZED(CUpti_Profiler_Host_GetConfigImageSize_Params);
    size.pHostObject = plan.host;
    auto image = BUSFARE_SIZED(CUpti_Profiler_Host_GetConfigImage_Params);
    image.pHostObject = plan.host;
    auto passes = BUSFARE_SIZED(CUpti_Profiler_Host_GetNumOfPasses_Params);
    // A metric that the GPU lacks is no error.
    if (add_metrics_(&add) == CUPTI_SUCCESS && config_size_(&size) == CUPTI_SUCCESS) {
        plan.config.resize(size.configImageSize);
        image.configImageSize = passes.configImageSize = plan.config.size();
        image.pConfigImage = passes.pConfigImage = plan.config.data();
        if (config_image_(&image) == CUPTI_SUCCESS && number_of_passes_(&passes) == CUPTI_SUCCESS)
            plan.passes = passes.numOfPasses;
    }
    return true;
}

void RangeProfiler::forget(CUpti_Profiler_Host_Object* host) {
    auto parameters = BUSFARE_SIZED(CUpti_Profiler_Host_Deinitialize_Params);
    parameters.pHostObject = host;
    if (host) host_deinitialize_(&parameters);
}

bool RangeProfiler::make_plan(CUcontext context) {
    uint32_t device = 0;
    if (!step("cuptiGetDeviceId", device_(context, &device))) return false;
    plan_ = &plans_[device];
    if (!plan_->metrics.empty()) return true;
    auto chip = BUSFARE_SIZED(CUpti_Device_GetChipName_Params);
    chip.deviceIndex = device;
    if (!step("cuptiDeviceGetChipName", chip_name_(&chip))) return false;
    for (const char* metric : kMetrics) {
        std::vector<const char*> metrics = plan_->metrics;
        metrics.push_back(metric);
        Plan candidate;
        if (!configure(chip.pChipName, metrics, candidate)) return false;
        const bool taken = candidate.passes > 0 && candidate.passes <= most_passes_;
        if (talk_)
            sayf("counters: %s %s: %zu passes with it, %s", chip.pChipName, metric, candidate.passes,
                 taken ? "taken" : "left out");
        if (taken) std::swap(*plan_, candidate);
        forget(candidate.host);
    }
    if (plan_->metrics.empty()) error_ = std::string("none is known of ") + chip.pChipName;
    return !plan_->metrics.empty();
}

bool RangeProfiler::change_ranges() {
    if (user_ranges_) return false;
    user_ranges_ = true;
    most_passes_ = 1;  // the launch cannot be repeated here
    for (const auto& [_, plan] : plans_) forget(plan.host);
    plans_.clear();
    return true;
}

void RangeProfiler::synchronize() {
    if (synchronize_) synchronize_();
}

bool RangeProfiler::start(CUcontext context) {
    auto enable = sized<CUpti_RangeProfiler_Enable_Params>(kEnableBytes);
    enable.ctx = context;
    if (!step("cuptiRangeProfilerEnable", enable_(&enable))) return false;
    object_ = enable.pRangeProfilerObject;
    auto size = BUSFARE_SIZED(CUpti_RangeProfiler_GetCounterDataSize_Params);
    size.pRangeProfilerObject = object_;
    size.pMetricNames = plan_->metrics.data();
    size.numMetrics = plan_->metrics.size();
    size.maxNumOfRanges = 1;
    size.maxNumRangeTreeNodes = 1;
    if (!step("cuptiRangeProfilerGetCounterDataSize", counted_size_(&size))) return false;
    counted_.assign(size.counterDataSize, 0);
    auto clear = BUSFARE_SIZED(CUpti_RangeProfiler_CounterDataImage_Initialize_Params);
    clear.pRangeProfilerObject = object_;
    clear.counterDataSize = counted_.size();
    clear.pCounterData = counted_.data();
    if (!step("cuptiRangeProfilerCounterDataImageInitialize", clear_counted_(&clear))) return false;
    auto config = BUSFARE_SIZED(CUpti_RangeProfiler_SetConfig_Params);
    config.pRangeProfilerObject = object_;
    config.configSize = plan_->config.size();
    config.pConfig = plan_->config.data();
    config.counterDataImageSize = counted_.size();
    config.pCounterDataImage = counted_.data();
    config.range = user_ranges_ ? CUPTI_UserRange : CUPTI_AutoRange;
    config.replayMode = user_ranges_ ? CUPTI_UserReplay : CUPTI_KernelReplay;
    config.maxRangesPerPass = 1;
    config.numNestingLevels = 1;
    config.minNestingLevel = 1;
    config.targetNestingLevel = 1;
    if (!step("cuptiRangeProfilerSetConfig", set_config_(&config))) return false;
    auto begin = BUSFARE_SIZED(CUpti_RangeProfiler_Start_Params);
    begin.pRangeProfilerObject = object_;
    started_ = step("cuptiRangeProfilerStart", start_(&begin));
    if (!started_ || !user_ranges_) return started_;
    auto push = BUSFARE_SIZED(CUpti_RangeProfiler_PushRange_Params);
    push.pRangeProfilerObject = object_;
    push.pRangeName = "launch";
    return step("cuptiRangeProfilerPushRange", push_(&push));
}

bool RangeProfiler::begin(CUcontext context) {
    error_.clear();
    started_ = false;
    if (!initialize() || !make_plan(context)) return false;
    synchronize();  // what was launched before is not to be counted
    return start(context);
}

bool RangeProfiler::read(std::vector<double>& values) {
    auto decode = BUSFARE_SIZED(CUpti_RangeProfiler_DecodeData_Params);
    decode.pRangeProfilerObject = object_;
    if (!step("cuptiRangeProfilerDecodeData", decode_(&decode))) return false;
    auto info = BUSFARE_SIZED(CUpti_RangeProfiler_GetCounterDataInfo_Params);
    info.pCounterDataImage = counted_.data();
    info.counterDataImageSize = counted_.size();
    if (!step("cuptiRangeProfilerGetCounterDataInfo", counted_info_(&info))) return false;
    if (talk_) sayf("counters: %zu ranges, %zu dropped", info.numTotalRanges, decode.numOfRangeDropped);
    if (info.numTotalRanges == 0) error_ = "CUPTI counted nothing";
    if (info.numTotalRanges != 1 || decode.numOfRangeDropped > 0) return false;
    values.assign(plan_->metrics.size(), 0);
    auto evaluate = BUSFARE_SIZED(CUpti_Profiler_Host_EvaluateToGpuValues_Params);
    evaluate.pHostObject = plan_->host;
    evaluate.pCounterDataImage = counted_.data();
    evaluate.counterDataImageSize = counted_.size();
    evaluate.ppMetricNames = plan_->metrics.data();
    evaluate.numMetrics = plan_->metrics.size();
    evaluate.pMetricValues = values.data();
    return step("cuptiProfilerHostEvaluateToGpuValues", evaluate_(&evaluate));
}

bool RangeProfiler::end(std::vector<double>& values) {
    bool sound = started_ && error_.empty();
    if (started_) {
        synchronize();
        if (user_ranges_) {
            auto pop = BUSFARE_SIZED(CUpti_RangeProfiler_PopRange_Params);
            pop.pRangeProfilerObject = object_;
            sound = step("cuptiRangeProfilerPopRange", pop_(&pop)) && sound;
        }
        auto stop = BUSFARE_SIZED(CUpti_RangeProfiler_Stop_Params);
        stop.pRangeProfilerObject = object_;
        sound = step("cuptiRangeProfilerStop", stop_(&stop)) && sound;
        if (talk_) sayf("counters: all passes submitted: %d", stop.isAllPassSubmitted);
        sound = sound && read(values);
    }
    if (object_) {
        auto disable = BUSFARE_SIZED(CUpti_RangeProfiler_Disable_Params);
        disable.pRangeProfilerObject = std::exchange(object_, nullptr);
        sound = step("cuptiRangeProfilerDisable", disable_(&disable)) && sound;
    }
    started_ = false;
    return sound;
}

}  // namespace busfare::recorder
