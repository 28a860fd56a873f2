// CUPTI's range profiler of the stand-in: keeps the order that its calls must come in, and makes up counters.
//
// FAKE_CUPTI_COUNTERS   `denied`: not to this user; `no-nvperf`; `own-ranges`: CUPTI makes no ranges of
// kernels;
//                       `broken`: of nobody; `legacy`: the program uses the event API

#include <cupti_profiler_host.h>
#include <cupti_range_profiler.h>
#include <cupti_target.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "fake_cupti.h"

struct CUpti_Profiler_Host_Object {
    std::vector<std::string> metrics;
};
struct CUpti_RangeProfiler_Object {
    bool configured = false;
    bool started = false;
    bool pushed = false;
    CUpti_ProfilerRange range{};
    uint64_t before = 0, kernels = 0;
    uint8_t* counted = nullptr;
};

namespace {

bool g_initialized = false;
CUpti_RangeProfiler_Object* g_enabled = nullptr;

bool told(const char* word) {
    const char* asked = std::getenv("FAKE_CUPTI_COUNTERS");
    return asked && std::strcmp(asked, word) == 0;
}

/// As a GPU of which three metrics are in the way of one another.
size_t passes_of(const std::vector<std::string>& metrics) {
    size_t crowded = 0;
    for (const std::string& metric : metrics) crowded += metric.find("fp64") != std::string::npos;
    return metrics.empty() ? 0 : crowded > 1 ? 2 : 1;
}

}  // namespace

extern "C" {

CUptiResult cuptiProfilerInitialize(CUpti_Profiler_Initialize_Params*) {
    if (told("no-nvperf")) return CUPTI_ERROR_NOT_INITIALIZED;
    if (told("legacy") || fake::legacy()) return CUPTI_ERROR_OLD_PROFILER_API_INITIALIZED;
    g_initialized = true;
    return CUPTI_SUCCESS;
}
CUptiResult cuptiGetDeviceId(CUcontext, uint32_t* device) {
    *device = 0;
    return CUPTI_SUCCESS;
}
CUptiResult cuptiDeviceGetChipName(CUpti_Device_GetChipName_Params* p) {
    p->pChipName = "FAKE100";
    return CUPTI_SUCCESS;
}
CUptiResult cuptiProfilerHostInitialize(CUpti_Profiler_Host_Initialize_Params* p) {
    // What a CUPTI older than the headers takes for a structure that it does not know.
    if (p->structSize > offsetof(CUpti_Profiler_Host_Initialize_Params, pSinglePassMetricSetName))
        return CUPTI_ERROR_INVALID_PARAMETER;
    p->pHostObject = new CUpti_Profiler_Host_Object;
    return CUPTI_SUCCESS;
}
CUptiResult cuptiProfilerHostDeinitialize(CUpti_Profiler_Host_Deinitialize_Params* p) {
    delete p->pHostObject;
    return CUPTI_SUCCESS;
}
CUptiResult cuptiProfilerHostConfigAddMetrics(CUpti_Profiler_Host_ConfigAddMetrics_Params* p) {
    for (size_t metric = 0; metric < p->numMetrics; ++metric) {
        const std::string name = p->ppMetricNames[metric];
        if (name == "sm__inst_executed_pipe_fp16.sum") return CUPTI_ERROR_INVALID_METRIC_NAME;
        p->pHostObject->metrics.push_back(name);
    }
    return CUPTI_SUCCESS;
}
CUptiResult cuptiProfilerHostGetConfigImageSize(CUpti_Profiler_Host_GetConfigImageSize_Params* p) {
    p->configImageSize = 1;
    return CUPTI_SUCCESS;
}
CUptiResult cuptiProfilerHostGetConfigImage(CUpti_Profiler_Host_GetConfigImage_Params* p) {
    p->pConfigImage[0] = static_cast<uint8_t>(passes_of(p->pHostObject->metrics));
    return CUPTI_SUCCESS;
}
CUptiResult cuptiProfilerHostGetNumOfPasses(CUpti_Profiler_Host_GetNumOfPasses_Params* p) {
    p->numOfPasses = p->pConfigImage[0];
    return CUPTI_SUCCESS;
}
CUptiResult cuptiRangeProfilerEnable(CUpti_RangeProfiler_Enable_Params* p) {
    if (p->structSize > offsetof(CUpti_RangeProfiler_Enable_Params, cacheControlMode))
        return CUPTI_ERROR_INVALID_PARAMETER;
    if (told("denied")) return CUPTI_ERROR_INSUFFICIENT_PRIVILEGES;
    if (!g_initialized || g_enabled) return CUPTI_ERROR_INVALID_OPERATION;
    p->pRangeProfilerObject = g_enabled = new CUpti_RangeProfiler_Object;
    return CUPTI_SUCCESS;
}
CUptiResult cuptiRangeProfilerDisable(CUpti_RangeProfiler_Disable_Params* p) {
    if (p->pRangeProfilerObject != g_enabled || g_enabled->started) return CUPTI_ERROR_INVALID_OPERATION;
    delete g_enabled;
    g_enabled = nullptr;
    return CUPTI_SUCCESS;
}
CUptiResult cuptiRangeProfilerGetCounterDataSize(CUpti_RangeProfiler_GetCounterDataSize_Params* p) {
    p->counterDataSize = 16;
    return CUPTI_SUCCESS;
}
CUptiResult cuptiRangeProfilerCounterDataImageInitialize(
    CUpti_RangeProfiler_CounterDataImage_Initialize_Params* p) {
    std::memset(p->pCounterData, 0, p->counterDataSize);
    return CUPTI_SUCCESS;
}
CUptiResult cuptiRangeProfilerSetConfig(CUpti_RangeProfiler_SetConfig_Params* p) {
    auto& object = *p->pRangeProfilerObject;
    if (told("broken") || (told("own-ranges") && p->range == CUPTI_AutoRange)) return CUPTI_ERROR_UNKNOWN;
    if (p->range == CUPTI_UserRange && p->pConfig[0] != 1) return CUPTI_ERROR_INVALID_PARAMETER;
    object.configured = true;
    object.range = p->range;
    object.counted = p->pCounterDataImage;
    return CUPTI_SUCCESS;
}
CUptiResult cuptiRangeProfilerStart(CUpti_RangeProfiler_Start_Params* p) {
    auto& object = *p->pRangeProfilerObject;
    if (!object.configured || object.started) return CUPTI_ERROR_INVALID_OPERATION;
    object.started = true;
    object.before = fake::kernels();
    return CUPTI_SUCCESS;
}
CUptiResult cuptiRangeProfilerPushRange(CUpti_RangeProfiler_PushRange_Params* p) {
    if (p->pRangeProfilerObject->range != CUPTI_UserRange) return CUPTI_ERROR_INVALID_OPERATION;
    p->pRangeProfilerObject->pushed = true;
    return CUPTI_SUCCESS;
}
CUptiResult cuptiRangeProfilerPopRange(CUpti_RangeProfiler_PopRange_Params* p) {
    return p->pRangeProfilerObject->pushed ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_OPERATION;
}
CUptiResult cuptiRangeProfilerStop(CUpti_RangeProfiler_Stop_Params* p) {
    auto& object = *p->pRangeProfilerObject;
    if (!object.started) return CUPTI_ERROR_INVALID_OPERATION;
    object.started = false;
    object.kernels = fake::kernels() - object.before;
    p->isAllPassSubmitted = 1;
    return CUPTI_SUCCESS;
}
CUptiResult cuptiRangeProfilerDecodeData(CUpti_RangeProfiler_DecodeData_Params* p) {
    auto& object = *p->pRangeProfilerObject;
    if (object.started) return CUPTI_ERROR_INVALID_OPERATION;
    const uint64_t ranges = object.range == CUPTI_AutoRange ? object.kernels : 1;
    p->numOfRangeDropped = ranges > 1 ? ranges - 1 : 0;
    object.counted[0] = ranges > 0;
    object.counted[1] = static_cast<uint8_t>(object.before);
    return CUPTI_SUCCESS;
}
CUptiResult cuptiRangeProfilerGetCounterDataInfo(CUpti_RangeProfiler_GetCounterDataInfo_Params* p) {
    p->numTotalRanges = p->pCounterDataImage[0];
    return CUPTI_SUCCESS;
}
/// Each metric's place times 1000, and the number of kernels that ran before.
CUptiResult cuptiProfilerHostEvaluateToGpuValues(CUpti_Profiler_Host_EvaluateToGpuValues_Params* p) {
    for (size_t metric = 0; metric < p->numMetrics; ++metric)
        p->pMetricValues[metric] = static_cast<double>(1000 * (metric + 1) + p->pCounterDataImage[1]);
    return CUPTI_SUCCESS;
}

}  // extern "C"
