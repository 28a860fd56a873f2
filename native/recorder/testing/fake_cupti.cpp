// Stands in for libcupti.so: keeps CUPTI's rules for buffers and callbacks, and makes up records on demand.
//
// FAKE_CUPTI_VERSION   the version to play (its record sizes included); 130500 unless set
// FAKE_CUPTI_BUSY      another profiler is there
// FAKE_CUPTI_DROPS     records to report as dropped, once

#include "fake_cupti.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <utility>

namespace {

std::mutex g_mutex;
CUpti_BuffersCallbackRequestFunc g_request;
CUpti_BuffersCallbackCompleteFunc g_complete;
CUpti_CallbackFunc g_callback;
void* g_userdata;
// Never destroyed: streams go on while the program ends.
std::set<uint64_t>&g_callbacks = *new std::set<uint64_t>, &g_calls = *new std::set<uint64_t>;
std::set<int>& g_kinds = *new std::set<int>;
std::atomic<uint64_t> g_clock{1'000'000'000};
std::atomic<uint32_t> g_correlation{0};
const bool kSystemClock = std::getenv("FAKE_CUPTI_SYSTEM_CLOCK") != nullptr;  ///< as CUPTI's is

uint64_t system_ns() {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return static_cast<uint64_t>(std::chrono::nanoseconds(now).count());
}

uint8_t* g_buffer;
size_t g_capacity, g_used;
size_t g_drops =
    std::getenv("FAKE_CUPTI_DROPS") ? std::strtoul(std::getenv("FAKE_CUPTI_DROPS"), nullptr, 10) : 0;

uint64_t key(int domain, uint32_t call) {
    return static_cast<uint64_t>(domain) << 32 | call;
}

/// Record sizes of CUDA 12.0 and of CUDA 13.5; the versions between differ in nothing that the recorder
/// reads.
size_t size_of(CUpti_ActivityKind kind) {
    struct Sizes {
        CUpti_ActivityKind kind;
        size_t old, now;
    };
    static constexpr Sizes kSizes[] = {
        {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, 208, sizeof(CUpti_ActivityKernel13)},
        {CUPTI_ACTIVITY_KIND_MEMCPY, 88, sizeof(CUpti_ActivityMemcpy7)},
        {CUPTI_ACTIVITY_KIND_MEMCPY2, sizeof(CUpti_ActivityMemcpyPtoP4), sizeof(CUpti_ActivityMemcpyPtoP4)},
        {CUPTI_ACTIVITY_KIND_MEMSET, 88, sizeof(CUpti_ActivityMemset5)},
        {CUPTI_ACTIVITY_KIND_RUNTIME, sizeof(CUpti_ActivityAPI), sizeof(CUpti_ActivityAPI)},
        {CUPTI_ACTIVITY_KIND_DRIVER, sizeof(CUpti_ActivityAPI), sizeof(CUpti_ActivityAPI)},
        {CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, 40, sizeof(CUpti_ActivitySynchronization2)},
        {CUPTI_ACTIVITY_KIND_CUDA_EVENT, 24, sizeof(CUpti_ActivityCudaEvent3)},
        {CUPTI_ACTIVITY_KIND_STREAM, sizeof(CUpti_ActivityStream), sizeof(CUpti_ActivityStream)},
        {CUPTI_ACTIVITY_KIND_CONTEXT, 16, sizeof(CUpti_ActivityContext4)},
        {CUPTI_ACTIVITY_KIND_DEVICE, 176, sizeof(CUpti_ActivityDevice6)},
        {CUPTI_ACTIVITY_KIND_MARKER, sizeof(CUpti_ActivityMarker2), sizeof(CUpti_ActivityMarker2)},
        {CUPTI_ACTIVITY_KIND_OVERHEAD, 40, sizeof(CUpti_ActivityOverhead3)},
        {CUPTI_ACTIVITY_KIND_MEMORY2, 120, sizeof(CUpti_ActivityMemory4)},
        {CUPTI_ACTIVITY_KIND_UNIFIED_MEMORY_COUNTER, 64, sizeof(CUpti_ActivityUnifiedMemoryCounter3)},
        {CUPTI_ACTIVITY_KIND_PCIE, sizeof(CUpti_ActivityPcie), sizeof(CUpti_ActivityPcie)},
        {CUPTI_ACTIVITY_KIND_NVLINK, 136, sizeof(CUpti_ActivityNvLink5)},
    };
    for (const Sizes& sizes : kSizes)
        if (sizes.kind == kind) return fake::version() < 26 ? sizes.old : sizes.now;
    return 0;
}

void complete_locked() {
    if (!g_buffer) return;
    g_complete(nullptr, 0, g_buffer, g_capacity, g_used);
    g_buffer = nullptr;
}

/// How deep this thread is in calls of the runtime.
thread_local int t_in_runtime = 0;

bool recorded(const fake::Call& call) {
    const std::lock_guard lock(g_mutex);
    if (call.runtime) {
        return g_kinds.contains(CUPTI_ACTIVITY_KIND_RUNTIME) ||
               g_calls.contains(key(CUPTI_CB_DOMAIN_RUNTIME_API, call.runtime));
    }
    return !t_in_runtime && (g_kinds.contains(CUPTI_ACTIVITY_KIND_DRIVER) ||
                             g_calls.contains(key(CUPTI_CB_DOMAIN_DRIVER_API, call.driver)));
}

/// What the clock shows to callbacks; 0: what it shows to all.
thread_local uint64_t t_now = 0;

/// One call of one domain begins or ends. `shared` is what the two callbacks hand each other.
void invoke_callback(CUpti_CallbackDomain domain, uint32_t number, uint32_t correlation,
                     CUpti_ApiCallbackSite site, const void* parameters, uint64_t* shared, uint64_t now) {
    if (!g_callback || !g_callbacks.contains(key(domain, number))) return;
    CUresult result = CUDA_SUCCESS;
    CUpti_CallbackData data{};
    data.callbackSite = site;
    data.functionParams = parameters;
    data.functionReturnValue = site == CUPTI_API_EXIT ? &result : nullptr;
    data.correlationId = correlation;
    data.correlationData = shared;
    data.contextUid = 1;
    const uint64_t outside = std::exchange(t_now, now);
    g_callback(g_userdata, domain, number, &data);
    t_now = outside;
}

}  // namespace

namespace fake {

uint32_t version() {
    static const char* const setting = std::getenv("FAKE_CUPTI_VERSION");
    static const uint32_t played =
        setting ? static_cast<uint32_t>(std::strtoul(setting, nullptr, 10)) : 130500;
    return played;
}

void emit(CUpti_ActivityKind kind, void* record, size_t bytes) {
    const std::lock_guard lock(g_mutex);
    const bool call = kind == CUPTI_ACTIVITY_KIND_RUNTIME || kind == CUPTI_ACTIVITY_KIND_DRIVER;
    if ((!call && !g_kinds.contains(kind)) || !g_request) return;
    const size_t size = size_of(kind);
    if (g_buffer && g_used + size > g_capacity) complete_locked();
    if (!g_buffer) {
        size_t most = 0;
        g_request(&g_buffer, &g_capacity, &most);
        g_used = 0;
        if (!g_buffer) {
            ++g_drops;
            return;
        }
    }
    std::memcpy(g_buffer + g_used, record, std::min(size, bytes));
    g_used += size;
}

void emit_call(const Call& call, uint32_t correlation, uint64_t start, uint64_t end) {
    if (!recorded(call)) return;
    CUpti_ActivityAPI record{};
    record.cbid = call.runtime ? call.runtime : call.driver;
    record.correlationId = correlation;
    record.start = start;
    record.end = end;
    record.processId = 1;
    record.threadId = 77;
    emit(call.runtime ? CUPTI_ACTIVITY_KIND_RUNTIME : CUPTI_ACTIVITY_KIND_DRIVER, record);
}

void call_back(const Call& call, uint32_t correlation, uint64_t start, uint64_t end,
               const void* runtime_parameters, const void* driver_parameters,
               const std::function<void()>& work) {
    uint64_t outer = 0, inner = 0;
    t_in_runtime += call.runtime != 0;
    invoke_callback(CUPTI_CB_DOMAIN_RUNTIME_API, call.runtime, correlation, CUPTI_API_ENTER,
                    runtime_parameters, &outer, start);
    invoke_callback(CUPTI_CB_DOMAIN_DRIVER_API, call.driver, correlation, CUPTI_API_ENTER, driver_parameters,
                    &inner, start + 2);
    if (work) work();
    invoke_callback(CUPTI_CB_DOMAIN_DRIVER_API, call.driver, correlation, CUPTI_API_EXIT, driver_parameters,
                    &inner, end - 2);
    invoke_callback(CUPTI_CB_DOMAIN_RUNTIME_API, call.runtime, correlation, CUPTI_API_EXIT,
                    runtime_parameters, &outer, end);
    t_in_runtime -= call.runtime != 0;
}

uint64_t tick(uint64_t by) {
    return kSystemClock ? system_ns() : g_clock.fetch_add(by);
}

uint32_t next_correlation() {
    return ++g_correlation;
}

void call_back_nvtx(uint32_t call, const CUpti_NvtxData& data) {
    if (g_callback && g_callbacks.contains(key(CUPTI_CB_DOMAIN_NVTX, call)))
        g_callback(g_userdata, CUPTI_CB_DOMAIN_NVTX, call, &data);
}

}  // namespace fake

using namespace fake;

extern "C" {

CUptiResult cuptiGetVersion(uint32_t* out) {
    *out = version();
    return CUPTI_SUCCESS;
}
CUptiResult cuptiGetResultString(CUptiResult, const char** text) {
    *text = "CUPTI_ERROR_OF_THE_TEST";
    return CUPTI_SUCCESS;
}
CUptiResult cuptiGetTimestamp(uint64_t* now) {
    *now = t_now ? t_now : tick(0);
    return CUPTI_SUCCESS;
}
CUptiResult cuptiGetStreamIdEx(CUcontext, CUstream stream, uint8_t per_thread, uint32_t* number) {
    if (stream != kStream && stream) return CUPTI_ERROR_INVALID_STREAM;
    *number = stream ? 13 : per_thread ? 8 : 7;
    return CUPTI_SUCCESS;
}
CUptiResult cuptiSubscribe(CUpti_SubscriberHandle* handle, CUpti_CallbackFunc callback, void* userdata) {
    if (std::getenv("FAKE_CUPTI_BUSY")) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    *handle = reinterpret_cast<CUpti_SubscriberHandle>(&g_clock);
    g_callback = callback;
    g_userdata = userdata;
    return CUPTI_SUCCESS;
}
CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle) {
    g_callback = nullptr;
    return CUPTI_SUCCESS;
}
CUptiResult cuptiEnableCallback(uint32_t on, CUpti_SubscriberHandle, CUpti_CallbackDomain domain,
                                CUpti_CallbackId call) {
    on ? (void)g_callbacks.insert(key(domain, call)) : (void)g_callbacks.erase(key(domain, call));
    return CUPTI_SUCCESS;
}
CUptiResult cuptiGetCallbackName(CUpti_CallbackDomain domain, uint32_t call, const char** name) {
    struct Named {
        CUpti_CallbackDomain domain;
        uint32_t call;
        const char* name;
    };
#define NAMED(api, name)                                                    \
    {                                                                       \
        CUPTI_CB_DOMAIN_##api##_API, CUPTI_##api##_TRACE_CBID_##name, #name \
    }
    static constexpr Named kNamed[] = {
        NAMED(RUNTIME, cudaMemcpyAsync_v3020),
        NAMED(RUNTIME, cudaMemcpy2DAsync_v3020),
        NAMED(RUNTIME, cudaLaunchKernel_v7000),
        NAMED(RUNTIME, cudaDeviceSynchronize_v3020),
        NAMED(RUNTIME, cudaStreamSynchronize_v3020),
        NAMED(RUNTIME, cudaStreamWaitEvent_v3020),
        NAMED(RUNTIME, cudaEventRecord_v3020),
        NAMED(RUNTIME, cudaGetDevice_v3020),
        NAMED(DRIVER, cuLaunchKernel),
        NAMED(DRIVER, cuMemcpyHtoDAsync_v2),
        NAMED(DRIVER, cuMemcpyDtoHAsync_v2),
        NAMED(DRIVER, cuMemcpyDtoHAsync_v2_ptsz),
        NAMED(DRIVER, cuStreamIsCapturing),
        NAMED(DRIVER, cuStreamIsCapturing_ptsz),
        NAMED(DRIVER, cuPointerGetAttribute),
        NAMED(DRIVER, cuThreadExchangeStreamCaptureMode),
        NAMED(DRIVER, cuMemcpyDtoH_v2),
        NAMED(DRIVER, cuMemcpy2DAsync_v2),
        NAMED(DRIVER, cuMemFreeHost),
        NAMED(DRIVER, cuCtxSynchronize),
        NAMED(DRIVER, cuStreamSynchronize),
        NAMED(DRIVER, cuStreamWaitEvent),
        NAMED(DRIVER, cuEventRecord),
        NAMED(DRIVER, cuCtxGetDevice),
    };
    for (const Named& named : kNamed) {
        if (named.domain == domain && named.call == call) {
            *name = named.name;
            return CUPTI_SUCCESS;
        }
    }
    return CUPTI_ERROR_INVALID_PARAMETER;
}
CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                           CUpti_BuffersCallbackCompleteFunc complete) {
    g_request = request;
    g_complete = complete;
    return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
    const std::lock_guard lock(g_mutex);
    g_kinds.insert(kind);
    return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
    const std::lock_guard lock(g_mutex);
    g_kinds.erase(kind);
    return CUPTI_SUCCESS;
}
#ifndef FAKE_CUPTI_WITHOUT_SINGLE_CALLS
// As CUPTI of CUDA 13.0 on an H100: once there is a context, single calls are no longer turned on.
static CUptiResult enable_call(CUpti_CallbackDomain domain, CUpti_CallbackId call, uint8_t on) {
    const std::lock_guard lock(g_mutex);
    if (on && g_correlation > 0) return CUPTI_SUCCESS;
    on ? (void)g_calls.insert(key(domain, call)) : (void)g_calls.erase(key(domain, call));
    return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityEnableRuntimeApi(CUpti_CallbackId call, uint8_t on) {
    return enable_call(CUPTI_CB_DOMAIN_RUNTIME_API, call, on);
}
CUptiResult cuptiActivityEnableDriverApi(CUpti_CallbackId call, uint8_t on) {
    return enable_call(CUPTI_CB_DOMAIN_DRIVER_API, call, on);
}
#endif
CUptiResult cuptiActivityGetNextRecord(uint8_t* buffer, size_t bytes, CUpti_Activity** record) {
    const uint8_t* next = *record ? reinterpret_cast<uint8_t*>(*record) + size_of((*record)->kind) : buffer;
    if (next >= buffer + bytes) return CUPTI_ERROR_MAX_LIMIT_REACHED;
    *record = reinterpret_cast<CUpti_Activity*>(const_cast<uint8_t*>(next));
    return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext, uint32_t, size_t* dropped) {
    const std::lock_guard lock(g_mutex);
    *dropped = std::exchange(g_drops, 0);
    return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityFlushAll(uint32_t) {
    const std::lock_guard lock(g_mutex);
    complete_locked();
    return CUPTI_SUCCESS;
}
CUptiResult cuptiActivitySetAttribute(CUpti_ActivityAttribute, size_t*, void*) {
    return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityConfigureUnifiedMemoryCounter(CUpti_ActivityUnifiedMemoryCounterConfig*, uint32_t) {
    return CUPTI_SUCCESS;
}

}  // extern "C"
