#include "managed.h"

#include <atomic>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>

#include "driver.h"
#include "report.h"

namespace busfare::trial {
namespace {

struct Range {
    size_t bytes;
    uint64_t prefetched;  ///< `g_phase` at the last prefetch
};

std::mutex g_mutex;  ///< guards the variables below; they are never destroyed
auto& g_ranges = *new std::map<CUdeviceptr, Range>;
size_t g_bytes = 0;
std::atomic<bool> g_may_prefetch{false};
bool g_stopped = false;
/// Incremented whenever the CPU may have touched managed memory.
std::atomic<uint64_t> g_phase{1};

/// Prefetches the range that contains this address, once per phase.
void prefetch_range(CUdeviceptr address, CUmemLocation gpu, CUstream stream) {
    auto at = g_ranges.upper_bound(address);
    if (at == g_ranges.begin()) return;
    auto& [begin, range] = *--at;
    const uint64_t phase = g_phase.load(std::memory_order_relaxed);
    if (address >= begin + range.bytes || range.prefetched == phase) return;
    range.prefetched = phase;
    if (REAL(cuMemPrefetchAsync_v2)(begin, range.bytes, gpu, 0, stream) == CUDA_SUCCESS)
        count_copy(kChangedCopies, range.bytes);
}

}  // namespace

void note_managed(CUdeviceptr memory, size_t bytes) {
    if (!changes().prefetch || !active()) return;
    const std::lock_guard lock(g_mutex);
    g_ranges[memory] = {bytes, 0};
    g_bytes += bytes;
    CUdevice device = 0;
    size_t most = 0;
    if (REAL(cuCtxGetDevice)(&device) == CUDA_SUCCESS) REAL(cuDeviceTotalMem_v2)(&most, device);
    // On a full GPU, prefetches evict memory that other kernels need.
    g_stopped |= g_bytes > most / 2 || !REAL(cuMemPrefetchAsync_v2) || !REAL(cuFuncGetParamInfo);
    g_may_prefetch = !g_stopped;
}

void forget_managed(CUdeviceptr memory) {
    if (!g_may_prefetch) return;
    const std::lock_guard lock(g_mutex);
    if (const auto node = g_ranges.extract(memory)) g_bytes -= node.mapped().bytes;
}

void expect_host_access() {
    if (g_may_prefetch.load(std::memory_order_relaxed)) g_phase.fetch_add(1, std::memory_order_relaxed);
}

void prefetch(CUfunction kernel, void** arguments, CUstream stream) {
    if (!g_may_prefetch.load(std::memory_order_relaxed) || !arguments || !active()) return;
    const Inside inside;
    const RelaxedCapture relaxed;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUmemLocation gpu{};
    gpu.type = CU_MEM_LOCATION_TYPE_DEVICE;
    if (REAL(cuStreamIsCapturing)(stream, &status) != CUDA_SUCCESS || status ||
        REAL(cuCtxGetDevice)(&gpu.id) != CUDA_SUCCESS)
        return;
    const std::unique_lock lock(g_mutex, std::try_to_lock);  // its owner may wait for the GPU
    for (size_t number = 0, offset = 0, bytes = 0; lock; ++number) {
        // The runtime also passes a `CUkernel` as the function.
        if (REAL(cuFuncGetParamInfo)(kernel, number, &offset, &bytes) != CUDA_SUCCESS &&
            REAL(cuKernelGetParamInfo)(reinterpret_cast<CUkernel>(kernel), number, &offset, &bytes) !=
                CUDA_SUCCESS)
            return;
        const auto* const argument = static_cast<const char*>(arguments[number]);
        CUdeviceptr address = 0;
        for (size_t at = 0; at + sizeof address <= bytes; at += sizeof address) {  // also pointers in structs
            std::memcpy(&address, argument + at, sizeof address);
            prefetch_range(address, gpu, stream);
        }
    }
}

void stop_prefetching() {
    const std::lock_guard lock(g_mutex);
    g_stopped = true;
    g_may_prefetch = false;
}

}  // namespace busfare::trial
