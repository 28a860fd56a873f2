// Stands in for libcupti.so: keeps CUPTI's rules for buffers and callbacks, and makes up records on demand.
//
// FAKE_CUPTI_VERSION   the version to play (its record sizes included); 130500 unless set
// FAKE_CUPTI_BUSY      another profiler is there
// FAKE_CUPTI_DROPS     records to report as dropped, once

#include <cupti.h>

#include <atomic>
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
std::set<uint64_t> g_callbacks, g_calls;
std::set<int> g_kinds;
std::atomic<uint64_t> g_clock{1'000'000'000};
std::atomic<uint32_t> g_correlation{0};
uint8_t* g_buffer;
size_t g_capacity, g_used;
size_t g_drops =
    std::getenv("FAKE_CUPTI_DROPS") ? std::strtoul(std::getenv("FAKE_CUPTI_DROPS"), nullptr, 10) : 0;

uint32_t version() {
    static const char* const asked = std::getenv("FAKE_CUPTI_VERSION");
    static const uint32_t played = asked ? static_cast<uint32_t>(std::strtoul(asked, nullptr, 10)) : 130500;
    return played;
}

uint64_t key(int domain, uint32_t call) {
    return static_cast<uint64_t>(domain) << 32 | call;
}

/// Record sizes of CUDA 12.0 and of CUDA 13.5; the versions between differ in nothing that the recorder
/// reads.
size_t size_of(CUpti_ActivityKind kind) {
    const bool old = version() < 26;
    switch (kind) {
        case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
            return old ? 208 : sizeof(CUpti_ActivityKernel13);
        case CUPTI_ACTIVITY_KIND_MEMCPY:
            return old ? 88 : sizeof(CUpti_ActivityMemcpy7);
        case CUPTI_ACTIVITY_KIND_MEMCPY2:
            return sizeof(CUpti_ActivityMemcpyPtoP4);
        case CUPTI_ACTIVITY_KIND_MEMSET:
            return old ? 88 : sizeof(CUpti_ActivityMemset5);
        case CUPTI_ACTIVITY_KIND_RUNTIME:
        case CUPTI_ACTIVITY_KIND_DRIVER:
            return sizeof(CUpti_ActivityAPI);
        case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION:
            return old ? 40 : sizeof(CUpti_ActivitySynchronization2);
        case CUPTI_ACTIVITY_KIND_CUDA_EVENT:
            return old ? 24 : sizeof(CUpti_ActivityCudaEvent3);
        case CUPTI_ACTIVITY_KIND_STREAM:
            return sizeof(CUpti_ActivityStream);
        case CUPTI_ACTIVITY_KIND_CONTEXT:
            return old ? 16 : sizeof(CUpti_ActivityContext4);
        case CUPTI_ACTIVITY_KIND_DEVICE:
            return old ? 176 : sizeof(CUpti_ActivityDevice6);
        case CUPTI_ACTIVITY_KIND_MARKER:
            return sizeof(CUpti_ActivityMarker2);
        case CUPTI_ACTIVITY_KIND_OVERHEAD:
            return old ? 40 : sizeof(CUpti_ActivityOverhead3);
        case CUPTI_ACTIVITY_KIND_MEMORY2:
            return old ? 120 : sizeof(CUpti_ActivityMemory4);
        case CUPTI_ACTIVITY_KIND_UNIFIED_MEMORY_COUNTER:
            return old ? 64 : sizeof(CUpti_ActivityUnifiedMemoryCounter3);
        case CUPTI_ACTIVITY_KIND_PCIE:
            return sizeof(CUpti_ActivityPcie);
        case CUPTI_ACTIVITY_KIND_NVLINK:
            return old ? 136 : sizeof(CUpti_ActivityNvLink5);
        default:
            return 0;
    }
}

void complete_locked() {
    if (!g_buffer) return;
    g_complete(nullptr, 0, g_buffer, g_capacity, g_used);
    g_buffer = nullptr;
}

template <typename Record>
void emit(CUpti_ActivityKind kind, Record record) {
    const std::lock_guard lock(g_mutex);
    const bool call = kind == CUPTI_ACTIVITY_KIND_RUNTIME || kind == CUPTI_ACTIVITY_KIND_DRIVER;
    if ((!call && !g_kinds.contains(kind)) || !g_request) return;
    record.kind = kind;
    const size_t bytes = size_of(kind);
    if (g_buffer && g_used + bytes > g_capacity) complete_locked();
    if (!g_buffer) {
        size_t most = 0;
        g_request(&g_buffer, &g_capacity, &most);
        g_used = 0;
        if (!g_buffer) {
            ++g_drops;
            return;
        }
    }
    std::memcpy(g_buffer + g_used, &record, std::min(bytes, sizeof record));
    g_used += bytes;
}

/// A runtime call and the driver call that it makes; both bear one correlation number.
struct Call {
    uint32_t runtime;
    uint32_t driver;
};

constexpr Call kLaunch = {CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000,
                          CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel};
constexpr Call kCopyIn = {CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyAsync_v3020,
                          CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoDAsync_v2};
constexpr Call kCopyOut = {CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyAsync_v3020,
                           CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoHAsync_v2};
constexpr Call kCopy2d = {CUPTI_RUNTIME_TRACE_CBID_cudaMemcpy2DAsync_v3020,
                          CUPTI_DRIVER_TRACE_CBID_cuMemcpy2DAsync_v2};
constexpr Call kEventRecord = {CUPTI_RUNTIME_TRACE_CBID_cudaEventRecord_v3020,
                               CUPTI_DRIVER_TRACE_CBID_cuEventRecord};
constexpr Call kGetDevice = {CUPTI_RUNTIME_TRACE_CBID_cudaGetDevice_v3020,
                             CUPTI_DRIVER_TRACE_CBID_cuCtxGetDevice};
constexpr Call kMallocManaged = {CUPTI_RUNTIME_TRACE_CBID_cudaMallocManaged_v6000,
                                 CUPTI_DRIVER_TRACE_CBID_cuMemAllocManaged};
constexpr Call kProfilerStart = {CUPTI_RUNTIME_TRACE_CBID_cudaProfilerStart_v4000,
                                 CUPTI_DRIVER_TRACE_CBID_cuProfilerStart};
constexpr Call kProfilerStop = {CUPTI_RUNTIME_TRACE_CBID_cudaProfilerStop_v4000,
                                CUPTI_DRIVER_TRACE_CBID_cuProfilerStop};

bool recorded(CUpti_CallbackDomain domain, uint32_t number) {
    const auto kind =
        domain == CUPTI_CB_DOMAIN_RUNTIME_API ? CUPTI_ACTIVITY_KIND_RUNTIME : CUPTI_ACTIVITY_KIND_DRIVER;
    const std::lock_guard lock(g_mutex);
    return g_kinds.contains(kind) || g_calls.contains(key(domain, number));
}

void emit_call(CUpti_CallbackDomain domain, uint32_t number, uint32_t correlation, uint64_t start,
               uint64_t end) {
    const auto kind =
        domain == CUPTI_CB_DOMAIN_RUNTIME_API ? CUPTI_ACTIVITY_KIND_RUNTIME : CUPTI_ACTIVITY_KIND_DRIVER;
    CUpti_ActivityAPI call{};
    call.cbid = number;
    call.correlationId = correlation;
    call.start = start;
    call.end = end;
    call.processId = 1;
    call.threadId = 77;
    emit(kind, call);
}

/// What the clock shows to callbacks; 0: what it shows to all.
thread_local uint64_t t_now = 0;

/// One call of one domain begins or ends. `shared` is what the two callbacks hand each other.
void call_back(CUpti_CallbackDomain domain, uint32_t number, uint32_t correlation, CUpti_ApiCallbackSite site,
               const void* parameters, uint64_t* shared, uint64_t now) {
    if (!g_callback || !g_callbacks.contains(key(domain, number))) return;
    CUresult result = CUDA_SUCCESS;
    CUpti_CallbackData data{};
    data.callbackSite = site;
    data.functionParams = parameters;
    data.functionReturnValue = site == CUPTI_API_EXIT ? &result : nullptr;
    data.correlationId = correlation;
    data.correlationData = shared;
    data.contextUid = 1;
    t_now = now;
    g_callback(g_userdata, domain, number, &data);
    t_now = 0;
}

/// The record of a runtime call. As with CUPTI of CUDA 12 and 13, the driver call in it has callbacks but no
/// record, whether the runtime's calls are recorded or not.
void emit_call(const Call& call, uint32_t correlation, uint64_t start, uint64_t end) {
    if (recorded(CUPTI_CB_DOMAIN_RUNTIME_API, call.runtime))
        emit_call(CUPTI_CB_DOMAIN_RUNTIME_API, call.runtime, correlation, start, end);
}

/// The callbacks of a runtime call and of the driver call in it.
void call_back(const Call& call, uint32_t correlation, uint64_t start, uint64_t end,
               const void* runtime_parameters, const void* driver_parameters) {
    uint64_t outer = 0, inner = 0;
    call_back(CUPTI_CB_DOMAIN_RUNTIME_API, call.runtime, correlation, CUPTI_API_ENTER, runtime_parameters,
              &outer, start);
    call_back(CUPTI_CB_DOMAIN_DRIVER_API, call.driver, correlation, CUPTI_API_ENTER, driver_parameters,
              &inner, start + 2);
    call_back(CUPTI_CB_DOMAIN_DRIVER_API, call.driver, correlation, CUPTI_API_EXIT, driver_parameters, &inner,
              end - 2);
    call_back(CUPTI_CB_DOMAIN_RUNTIME_API, call.runtime, correlation, CUPTI_API_EXIT, runtime_parameters,
              &outer, end);
}

const CUstream kStream = reinterpret_cast<CUstream>(0x5000);
const CUevent kEvent = reinterpret_cast<CUevent>(0x6000);

uint64_t tick(uint64_t by) {
    return g_clock.fetch_add(by);
}

}  // namespace

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
    *now = t_now ? t_now : g_clock.load();
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
    static constexpr Named kNamed[] = {
        {CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyAsync_v3020,
         "cudaMemcpyAsync_v3020"},
        {CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_cudaMemcpy2DAsync_v3020,
         "cudaMemcpy2DAsync_v3020"},
        {CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000,
         "cudaLaunchKernel_v7000"},
        {CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_cudaDeviceSynchronize_v3020,
         "cudaDeviceSynchronize_v3020"},
        {CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_cudaStreamSynchronize_v3020,
         "cudaStreamSynchronize_v3020"},
        {CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_cudaStreamWaitEvent_v3020,
         "cudaStreamWaitEvent_v3020"},
        {CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_cudaEventRecord_v3020,
         "cudaEventRecord_v3020"},
        {CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_cudaGetDevice_v3020, "cudaGetDevice_v3020"},
        {CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, "cuLaunchKernel"},
        {CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoDAsync_v2, "cuMemcpyHtoDAsync_v2"},
        {CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoHAsync_v2, "cuMemcpyDtoHAsync_v2"},
        {CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuMemcpy2DAsync_v2, "cuMemcpy2DAsync_v2"},
        {CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuCtxSynchronize, "cuCtxSynchronize"},
        {CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuStreamSynchronize, "cuStreamSynchronize"},
        {CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuStreamWaitEvent, "cuStreamWaitEvent"},
        {CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuEventRecord, "cuEventRecord"},
        {CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuCtxGetDevice, "cuCtxGetDevice"},
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
CUptiResult cuptiActivityEnableRuntimeApi(CUpti_CallbackId call, uint8_t on) {
    const std::lock_guard lock(g_mutex);
    if (on && g_correlation > 0) return CUPTI_SUCCESS;
    on ? (void)g_calls.insert(key(CUPTI_CB_DOMAIN_RUNTIME_API, call))
       : (void)g_calls.erase(key(CUPTI_CB_DOMAIN_RUNTIME_API, call));
    return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityEnableDriverApi(CUpti_CallbackId call, uint8_t on) {
    const std::lock_guard lock(g_mutex);
    if (on && g_correlation > 0) return CUPTI_SUCCESS;
    on ? (void)g_calls.insert(key(CUPTI_CB_DOMAIN_DRIVER_API, call))
       : (void)g_calls.erase(key(CUPTI_CB_DOMAIN_DRIVER_API, call));
    return CUPTI_SUCCESS;
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

// What the test program asks for. Each returns the correlation number of its call.

uint32_t fake_setting() {
    CUpti_ActivityDevice6 device{};
    device.id = 0;
    device.name = "Fake GPU";
    device.globalMemorySize = 80ull << 30;
    device.globalMemoryBandwidth = 3352320000;
    device.coreClockRate = 1980000;
    device.numMultiprocessors = 132;
    device.computeCapabilityMajor = 9;
    device.numMemcpyEngines = 3;
    for (int byte = 0; byte < 16; ++byte) device.uuid.bytes[byte] = static_cast<char>(byte * 17);
    emit(CUPTI_ACTIVITY_KIND_DEVICE, device);
    CUpti_ActivityPcie link{};
    link.type = CUPTI_PCIE_DEVICE_TYPE_GPU;
    link.pcieGeneration = 5;
    link.linkRate = 32;
    link.linkWidth = 16;
    link.upstreamBus = 0x1b;
    emit(CUPTI_ACTIVITY_KIND_PCIE, link);
    CUpti_ActivityContext4 context{};
    context.contextId = 1;
    context.nullStreamId = 7;
    emit(CUPTI_ACTIVITY_KIND_CONTEXT, context);
    CUpti_ActivityStream stream{};
    stream.contextId = 1;
    stream.streamId = 13;
    stream.priority = static_cast<uint32_t>(-5);
    stream.flag = CUPTI_ACTIVITY_STREAM_CREATE_FLAG_NON_BLOCKING;
    emit(CUPTI_ACTIVITY_KIND_STREAM, stream);
    return 0;
}

uint32_t fake_kernel(const char* name, uint64_t graph_node) {
    const uint32_t correlation = ++g_correlation;
    const uint64_t start = tick(1000);
    const cuLaunchKernel_params parameters{};
    call_back(kLaunch, correlation, start, start + 300, nullptr, &parameters);
    emit_call(kLaunch, correlation, start, start + 300);
    CUpti_ActivityKernel13 kernel{};
    kernel.name = name;
    kernel.start = start + 400;
    kernel.end = start + 900;
    kernel.correlationId = correlation;
    kernel.contextId = 1;
    kernel.streamId = 13;
    kernel.gridX = 64;
    kernel.gridY = kernel.gridZ = kernel.blockY = kernel.blockZ = 1;
    kernel.blockX = 256;
    kernel.registersPerThread = 24;
    kernel.graphNodeId = graph_node;
    emit(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, kernel);
    return correlation;
}

uint32_t fake_copy(int kind, int source_kind, int destination_kind, void* destination, const void* source,
                   uint64_t bytes) {
    const uint32_t correlation = ++g_correlation;
    const uint64_t start = tick(2000);
    const cudaMemcpyAsync_v3020_params parameters = {destination, source, bytes,
                                                     static_cast<cudaMemcpyKind>(kind), nullptr};
    const Call& call = kind == cudaMemcpyDeviceToHost ? kCopyOut : kCopyIn;
    const cuMemcpyHtoDAsync_v2_params in = {reinterpret_cast<CUdeviceptr>(destination), source, bytes,
                                            nullptr};
    const cuMemcpyDtoHAsync_v2_params out = {destination, reinterpret_cast<CUdeviceptr>(source), bytes,
                                             nullptr};
    call_back(call, correlation, start, start + 700, &parameters,
              &call == &kCopyOut ? static_cast<const void*>(&out) : static_cast<const void*>(&in));
    emit_call(call, correlation, start, start + 700);
    CUpti_ActivityMemcpy7 copy{};
    copy.copyKind = static_cast<uint8_t>(kind);
    copy.srcKind = static_cast<uint8_t>(source_kind);
    copy.dstKind = static_cast<uint8_t>(destination_kind);
    copy.flags = CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC;
    copy.bytes = bytes;
    copy.start = start + 800;
    copy.end = start + 1800;
    copy.contextId = 1;
    copy.streamId = 13;
    copy.correlationId = correlation;
    copy.copyCount = 1;
    emit(CUPTI_ACTIVITY_KIND_MEMCPY, copy);
    return correlation;
}

/// `rows` rows of `width` bytes to the device, from the second row and the fourth byte of a buffer on the
/// host.
uint32_t fake_rows(void* destination, const void* source, uint64_t width, uint64_t rows, uint64_t pitch) {
    const uint32_t correlation = ++g_correlation;
    const uint64_t start = tick(2000);
    const void* const first = static_cast<const char*>(source) + pitch + 3;
    const cudaMemcpy2DAsync_v3020_params parameters = {
        destination, width, first, pitch, width, rows, cudaMemcpyHostToDevice, nullptr};
    CUDA_MEMCPY2D described{};
    described.srcXInBytes = 3;
    described.srcY = 1;
    described.srcMemoryType = CU_MEMORYTYPE_HOST;
    described.srcHost = source;
    described.srcPitch = pitch;
    described.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    described.dstDevice = reinterpret_cast<CUdeviceptr>(destination);
    described.dstPitch = width;
    described.WidthInBytes = width;
    described.Height = rows;
    const cuMemcpy2DAsync_v2_params driver = {&described, nullptr};
    call_back(kCopy2d, correlation, start, start + 700, &parameters, &driver);
    emit_call(kCopy2d, correlation, start, start + 700);
    CUpti_ActivityMemcpy7 copy{};
    copy.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_HTOD;
    copy.srcKind = CUPTI_ACTIVITY_MEMORY_KIND_PINNED;
    copy.dstKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
    copy.flags = CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC;
    copy.bytes = width * rows;
    copy.start = start + 800;
    copy.end = start + 1800;
    copy.contextId = 1;
    copy.streamId = 13;
    copy.correlationId = correlation;
    copy.copyCount = 1;
    emit(CUPTI_ACTIVITY_KIND_MEMCPY, copy);
    return correlation;
}

uint32_t fake_peer_copy(uint64_t bytes) {
    const uint32_t correlation = ++g_correlation;
    const uint64_t start = tick(2000);
    CUpti_ActivityMemcpyPtoP4 copy{};
    copy.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_PTOP;
    copy.srcKind = copy.dstKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
    copy.bytes = bytes;
    copy.start = start + 800;
    copy.end = start + 1800;
    copy.contextId = 1;
    copy.streamId = 13;
    copy.dstDeviceId = 1;
    copy.dstContextId = 2;
    copy.correlationId = correlation;
    emit(CUPTI_ACTIVITY_KIND_MEMCPY2, copy);
    return correlation;
}

uint32_t fake_set(uint64_t bytes) {
    const uint32_t correlation = ++g_correlation;
    const uint64_t start = tick(1000);
    CUpti_ActivityMemset5 set{};
    set.bytes = bytes;
    set.value = 0xAB;
    set.memoryKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
    set.start = start + 100;
    set.end = start + 200;
    set.contextId = 1;
    set.streamId = 13;
    set.correlationId = correlation;
    emit(CUPTI_ACTIVITY_KIND_MEMSET, set);
    return correlation;
}

uint32_t fake_wait(int type) {
    static constexpr Call kCalls[] = {
        {},
        {},
        {CUPTI_RUNTIME_TRACE_CBID_cudaStreamWaitEvent_v3020, CUPTI_DRIVER_TRACE_CBID_cuStreamWaitEvent},
        {CUPTI_RUNTIME_TRACE_CBID_cudaStreamSynchronize_v3020, CUPTI_DRIVER_TRACE_CBID_cuStreamSynchronize},
        {CUPTI_RUNTIME_TRACE_CBID_cudaDeviceSynchronize_v3020, CUPTI_DRIVER_TRACE_CBID_cuCtxSynchronize}};
    const uint32_t correlation = ++g_correlation;
    const uint64_t start = tick(1000);
    const cuStreamWaitEvent_params waits_event = {kStream, kEvent, 0};
    const cuStreamSynchronize_params waits = {kStream};
    call_back(kCalls[type], correlation, start, start + 500, nullptr,
              type == CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT
                  ? static_cast<const void*>(&waits_event)
                  : static_cast<const void*>(&waits));
    emit_call(kCalls[type], correlation, start, start + 500);
    CUpti_ActivitySynchronization2 wait{};
    wait.type = static_cast<CUpti_ActivitySynchronizationType>(type);
    wait.start = start + 10;
    wait.end = start + 490;
    wait.correlationId = correlation;
    wait.contextId = 1;
    wait.streamId = type == CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE ? 0xFFFFFFFF : 13;
    wait.cudaEventId = type == CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT ? 3 : 0xFFFFFFFF;
    wait.cudaEventSyncId = type == CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT ? 9 : 0xFFFFFFFF;
    emit(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, wait);
    return correlation;
}

uint32_t fake_event() {
    const uint32_t correlation = ++g_correlation;
    const uint64_t start = tick(500);
    const cuEventRecord_params parameters = {kEvent, kStream};
    call_back(kEventRecord, correlation, start, start + 200, nullptr, &parameters);
    emit_call(kEventRecord, correlation, start, start + 200);
    CUpti_ActivityCudaEvent3 event{};
    event.correlationId = correlation;
    event.contextId = 1;
    event.streamId = 13;
    event.eventId = 3;
    event.cudaEventSyncId = 9;
    emit(CUPTI_ACTIVITY_KIND_CUDA_EVENT, event);
    return correlation;
}

uint32_t fake_query() {
    const uint32_t correlation = ++g_correlation;
    const uint64_t start = tick(50);
    call_back(kGetDevice, correlation, start, start + 9, nullptr, nullptr);
    emit_call(kGetDevice, correlation, start, start + 9);
    return correlation;
}

uint32_t fake_range(const char* name) {
    CUpti_ActivityMarker2 marker{};
    static uint32_t number = 0;
    marker.id = ++number;
    marker.objectKind = CUPTI_ACTIVITY_OBJECT_THREAD;
    marker.objectId.pt.threadId = 77;
    marker.flags = CUPTI_ACTIVITY_FLAG_MARKER_START;
    marker.timestamp = tick(100);
    marker.name = name;
    emit(CUPTI_ACTIVITY_KIND_MARKER, marker);
    return marker.id;
}

uint32_t fake_range_end(uint32_t number) {
    CUpti_ActivityMarker2 marker{};
    marker.id = number;
    marker.objectKind = CUPTI_ACTIVITY_OBJECT_THREAD;
    marker.objectId.pt.threadId = 77;
    marker.flags = CUPTI_ACTIVITY_FLAG_MARKER_END;
    marker.timestamp = tick(100);
    emit(CUPTI_ACTIVITY_KIND_MARKER, marker);
    return number;
}

uint32_t fake_allocation(const void* address, uint64_t bytes, int kind, int release) {
    const uint32_t correlation = ++g_correlation;
    CUpti_ActivityMemory4 memory{};
    memory.memoryOperationType = release ? CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE
                                         : CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION;
    memory.memoryKind = static_cast<CUpti_ActivityMemoryKind>(kind);
    memory.address = reinterpret_cast<uint64_t>(address);
    memory.bytes = bytes;
    memory.timestamp = tick(100);
    memory.correlationId = correlation;
    memory.contextId = 1;
    emit(CUPTI_ACTIVITY_KIND_MEMORY2, memory);
    return correlation;
}

uint32_t fake_managed(uint64_t bytes) {
    const uint32_t correlation = ++g_correlation;
    const cudaMallocManaged_v6000_params parameters{};
    const cuMemAllocManaged_params driver{};
    const uint64_t now = g_clock;
    call_back(kMallocManaged, correlation, now, now + 100, &parameters, &driver);
    CUpti_ActivityUnifiedMemoryCounter3 counter{};
    counter.counterKind = CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_KIND_BYTES_TRANSFER_HTOD;
    counter.value = bytes;
    counter.start = tick(1000);
    counter.end = counter.start + 600;
    counter.srcId = 0xFFFFFFFF;
    counter.flags = CUPTI_ACTIVITY_UNIFIED_MEMORY_MIGRATION_CAUSE_COHERENCE;
    emit(CUPTI_ACTIVITY_KIND_UNIFIED_MEMORY_COUNTER, counter);
    counter.counterKind = CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_KIND_GPU_PAGE_FAULT;
    counter.value = 4;
    emit(CUPTI_ACTIVITY_KIND_UNIFIED_MEMORY_COUNTER, counter);
    return correlation;
}

uint32_t fake_overhead() {
    CUpti_ActivityOverhead3 overhead{};
    overhead.overheadKind = CUPTI_ACTIVITY_OVERHEAD_CUPTI_BUFFER_FLUSH;
    overhead.start = tick(100);
    overhead.end = overhead.start + 50;
    overhead.overheadData = version() >= 22 ? std::malloc(16) : nullptr;
    emit(CUPTI_ACTIVITY_KIND_OVERHEAD, overhead);
    return 0;
}

uint32_t fake_nvlink() {
    CUpti_ActivityNvLink5 link{};
    link.nvlinkVersion = 4;
    link.typeDev0 = CUPTI_DEV_TYPE_GPU;
    link.typeDev1 = CUPTI_DEV_TYPE_GPU;
    link.physicalNvLinkCount = 18;
    link.bandwidth = 26562500;
    link.portDev0 = static_cast<uint32_t*>(std::malloc(18 * 4));
    link.portDev1 = static_cast<uint32_t*>(std::malloc(18 * 4));
    emit(CUPTI_ACTIVITY_KIND_NVLINK, link);
    return 0;
}

uint32_t fake_profiler(int start) {
    const uint32_t correlation = ++g_correlation;
    const uint64_t now = tick(100);
    call_back(start ? kProfilerStart : kProfilerStop, correlation, now, now + 90, nullptr, nullptr);
    return correlation;
}

uint32_t fake_nvtx(const char* push) {
    const uint32_t call = push ? CUPTI_CBID_NVTX_nvtxRangePushA : CUPTI_CBID_NVTX_nvtxRangePop;
    if (!g_callback || !g_callbacks.contains(key(CUPTI_CB_DOMAIN_NVTX, call))) return 0;
    CUpti_NvtxData data{};
    data.functionParams = &push;
    g_callback(g_userdata, CUPTI_CB_DOMAIN_NVTX, call, &data);
    return 0;
}

}  // extern "C"
