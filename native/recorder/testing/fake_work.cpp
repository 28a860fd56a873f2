// What the test program asks the stand-in for: each a call with its callbacks and the records that CUPTI
// makes of it. Each returns the correlation number of its call.

#include <cstdlib>
#include <cstring>

#include "fake_cupti.h"

using namespace fake;

namespace {

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

}  // namespace

extern "C" {

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
    const uint32_t correlation = next_correlation();
    const uint64_t start = tick(1000);
    call_back(kLaunch, correlation, start, start + 300, nullptr, nullptr);
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
    const uint32_t correlation = next_correlation();
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
    const uint32_t correlation = next_correlation();
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
    const uint32_t correlation = next_correlation();
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
    const uint32_t correlation = next_correlation();
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
    const uint32_t correlation = next_correlation();
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
    const uint32_t correlation = next_correlation();
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
    const uint32_t correlation = next_correlation();
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
    const uint32_t correlation = next_correlation();
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
    const uint32_t correlation = next_correlation();
    const cudaMallocManaged_v6000_params parameters{};
    const cuMemAllocManaged_params driver{};
    const uint64_t now = tick(0);
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
    const uint32_t correlation = next_correlation();
    const uint64_t now = tick(100);
    call_back(start ? kProfilerStart : kProfilerStop, correlation, now, now + 90, nullptr, nullptr);
    return correlation;
}

uint32_t fake_nvtx(const char* push) {
    const uint32_t call = push ? CUPTI_CBID_NVTX_nvtxRangePushA : CUPTI_CBID_NVTX_nvtxRangePop;
    CUpti_NvtxData data{};
    data.functionParams = &push;
    call_back_nvtx(call, data);
    return 0;
}

}  // extern "C"
