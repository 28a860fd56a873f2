// What the test program asks the stand-in for: each a call with its callbacks and the records that CUPTI
// makes of it. Each returns the correlation number of its call.

#include <cstdlib>
#include <cstring>

#include "fake_cupti.h"

using namespace fake;

namespace {

constexpr Call kLaunch = CALL(cudaLaunchKernel_v7000, cuLaunchKernel);
constexpr Call kCopyIn = CALL(cudaMemcpyAsync_v3020, cuMemcpyHtoDAsync_v2);
constexpr Call kCopyOut = CALL(cudaMemcpyAsync_v3020, cuMemcpyDtoHAsync_v2);
constexpr Call kCopy2d = CALL(cudaMemcpy2DAsync_v3020, cuMemcpy2DAsync_v2);
constexpr Call kEventRecord = CALL(cudaEventRecord_v3020, cuEventRecord);
constexpr Call kGetDevice = CALL(cudaGetDevice_v3020, cuCtxGetDevice);
constexpr Call kMallocManaged = CALL(cudaMallocManaged_v6000, cuMemAllocManaged);
constexpr Call kProfilerStart = CALL(cudaProfilerStart_v4000, cuProfilerStart);
constexpr Call kProfilerStop = CALL(cudaProfilerStop_v4000, cuProfilerStop);

/// A call that begins at `start`, with its callbacks and its record; returns its correlation number.
uint32_t called(const Call& call, uint64_t start, uint64_t lasting, const void* runtime = nullptr,
                const void* driver = nullptr) {
    const uint32_t correlation = next_correlation();
    call_back(call, correlation, start, start + lasting, runtime, driver);
    emit_call(call, correlation, start, start + lasting);
    return correlation;
}

/// A record of work on stream 13.
template <typename Record>
Record record_of(uint32_t correlation, uint64_t start, uint64_t end) {
    Record record{};
    record.start = start;
    record.end = end;
    record.contextId = 1;
    record.streamId = 13;
    record.correlationId = correlation;
    return record;
}

void emit_copy(uint32_t correlation, uint64_t start, int kind, int source_kind, int destination_kind,
               uint64_t bytes) {
    auto copy = record_of<CUpti_ActivityMemcpy7>(correlation, start + 800, start + 1800);
    copy.copyKind = static_cast<uint8_t>(kind);
    copy.srcKind = static_cast<uint8_t>(source_kind);
    copy.dstKind = static_cast<uint8_t>(destination_kind);
    copy.flags = CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC;
    copy.bytes = bytes;
    copy.copyCount = 1;
    emit(CUPTI_ACTIVITY_KIND_MEMCPY, copy);
}

/// The begin or the end of a range on thread 77; returns its number.
uint32_t mark(uint32_t number, CUpti_ActivityFlag flag, const char* name) {
    CUpti_ActivityMarker2 marker{};
    marker.id = number;
    marker.objectKind = CUPTI_ACTIVITY_OBJECT_THREAD;
    marker.objectId.pt.threadId = 77;
    marker.flags = flag;
    marker.timestamp = tick(100);
    marker.name = name;
    emit(CUPTI_ACTIVITY_KIND_MARKER, marker);
    return number;
}

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
    const uint64_t start = tick(1000);
    const uint32_t correlation = called(kLaunch, start, 300);
    auto kernel = record_of<CUpti_ActivityKernel13>(correlation, start + 400, start + 900);
    kernel.name = name;
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
    const uint64_t start = tick(2000);
    const cudaMemcpyAsync_v3020_params parameters = {destination, source, bytes,
                                                     static_cast<cudaMemcpyKind>(kind), nullptr};
    const Call& call = kind == cudaMemcpyDeviceToHost ? kCopyOut : kCopyIn;
    const cuMemcpyHtoDAsync_v2_params in = {reinterpret_cast<CUdeviceptr>(destination), source, bytes,
                                            nullptr};
    const cuMemcpyDtoHAsync_v2_params out = {destination, reinterpret_cast<CUdeviceptr>(source), bytes,
                                             nullptr};
    const void* const of_driver = &call == &kCopyOut ? static_cast<const void*>(&out) : &in;
    const uint32_t correlation = called(call, start, 700, &parameters, of_driver);
    emit_copy(correlation, start, kind, source_kind, destination_kind, bytes);
    return correlation;
}

/// `rows` rows of `width` bytes to the device, from the second row and the fourth byte of a buffer on the
/// host.
uint32_t fake_rows(void* destination, const void* source, uint64_t width, uint64_t rows, uint64_t pitch) {
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
    const uint32_t correlation = called(kCopy2d, start, 700, &parameters, &driver);
    emit_copy(correlation, start, CUPTI_ACTIVITY_MEMCPY_KIND_HTOD, CUPTI_ACTIVITY_MEMORY_KIND_PINNED,
              CUPTI_ACTIVITY_MEMORY_KIND_DEVICE, width * rows);
    return correlation;
}

uint32_t fake_peer_copy(uint64_t bytes) {
    const uint32_t correlation = next_correlation();
    const uint64_t start = tick(2000);
    auto copy = record_of<CUpti_ActivityMemcpyPtoP4>(correlation, start + 800, start + 1800);
    copy.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_PTOP;
    copy.srcKind = copy.dstKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
    copy.bytes = bytes;
    copy.dstDeviceId = 1;
    copy.dstContextId = 2;
    emit(CUPTI_ACTIVITY_KIND_MEMCPY2, copy);
    return correlation;
}

uint32_t fake_set(uint64_t bytes) {
    const uint32_t correlation = next_correlation();
    const uint64_t start = tick(1000);
    auto set = record_of<CUpti_ActivityMemset5>(correlation, start + 100, start + 200);
    set.bytes = bytes;
    set.value = 0xAB;
    set.memoryKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
    emit(CUPTI_ACTIVITY_KIND_MEMSET, set);
    return correlation;
}

uint32_t fake_wait(int type) {
    static constexpr Call kCalls[] = {{},
                                      {},
                                      CALL(cudaStreamWaitEvent_v3020, cuStreamWaitEvent),
                                      CALL(cudaStreamSynchronize_v3020, cuStreamSynchronize),
                                      CALL(cudaDeviceSynchronize_v3020, cuCtxSynchronize)};
    const uint64_t start = tick(1000);
    const cuStreamWaitEvent_params waits_event = {kStream, kEvent, 0};
    const cuStreamSynchronize_params waits = {kStream};
    const bool of_event = type == CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT;
    const void* const of_driver = of_event ? static_cast<const void*>(&waits_event) : &waits;
    const uint32_t correlation = called(kCalls[type], start, 500, nullptr, of_driver);
    auto wait = record_of<CUpti_ActivitySynchronization2>(correlation, start + 10, start + 490);
    wait.type = static_cast<CUpti_ActivitySynchronizationType>(type);
    if (type == CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE) wait.streamId = 0xFFFFFFFF;
    wait.cudaEventId = of_event ? 3 : 0xFFFFFFFF;
    wait.cudaEventSyncId = of_event ? 9 : 0xFFFFFFFF;
    emit(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, wait);
    return correlation;
}

uint32_t fake_event() {
    const cuEventRecord_params parameters = {kEvent, kStream};
    const uint32_t correlation = called(kEventRecord, tick(500), 200, nullptr, &parameters);
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
    return called(kGetDevice, tick(50), 9);
}

uint32_t fake_range(const char* name) {
    static uint32_t number = 0;
    return mark(++number, CUPTI_ACTIVITY_FLAG_MARKER_START, name);
}

uint32_t fake_range_end(uint32_t number) {
    return mark(number, CUPTI_ACTIVITY_FLAG_MARKER_END, nullptr);
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
