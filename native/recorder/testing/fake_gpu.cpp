// A GPU whose copies to the host really land there, at real times: by another mapping of the same memory
// where it is pinned, as an engine would write it; by the calling thread where it is pageable, as the driver
// stages it.
//
// Recorded with FAKE_CUPTI_SYSTEM_CLOCK.

#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "fake_cupti.h"

using namespace fake;

namespace {

constexpr Call kCopyBack = {CUPTI_RUNTIME_TRACE_CBID_cudaMemcpy_v3020,
                            CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoH_v2};
constexpr Call kCopyBackAsync = {CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyAsync_v3020,
                                 CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoHAsync_v2};
constexpr Call kSynchronize = {CUPTI_RUNTIME_TRACE_CBID_cudaStreamSynchronize_v3020,
                               CUPTI_DRIVER_TRACE_CBID_cuStreamSynchronize};
constexpr Call kFreeHost = {CUPTI_RUNTIME_TRACE_CBID_cudaFreeHost_v3020,
                            CUPTI_DRIVER_TRACE_CBID_cuMemFreeHost};

struct Pinned {
    char* engine;  ///< where the GPU sees it
    uint64_t bytes;
};
std::mutex g_pinned_mutex;
std::map<char*, Pinned>& pinned() {
    static auto* const all = new std::map<char*, Pinned>;
    return *all;
}

/// One thread copies to pinned memory, as long as the program runs.
struct Engine {
    std::mutex mutex;
    std::condition_variable changed;
    std::function<void()> work;

    Engine() {
        std::thread([this] {
            std::unique_lock lock(mutex);
            for (;;) {
                changed.wait(lock, [this] { return work != nullptr; });
                lock.unlock();
                work();
                lock.lock();
                work = nullptr;
                changed.notify_all();
            }
        }).detach();
    }
    void rest() {
        std::unique_lock lock(mutex);
        changed.wait(lock, [this] { return work == nullptr; });
    }
    void begin(std::function<void()> next) {
        rest();
        const std::lock_guard lock(mutex);
        work = std::move(next);
        changed.notify_all();
    }
};
Engine& engine() {
    static auto* const only = new Engine;
    return *only;
}

/// Where the GPU sees an address; null: it does not.
char* seen_by_gpu(char* address) {
    const std::lock_guard lock(g_pinned_mutex);
    const auto next = pinned().upper_bound(address);
    if (next == pinned().begin()) return nullptr;
    const auto& [begin, memory] = *std::prev(next);
    return address < begin + memory.bytes ? memory.engine + (address - begin) : nullptr;
}

void pass(double seconds) {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

}  // namespace

extern "C" {

void* fake_pinned(uint64_t bytes) {
    engine();
    const int file = memfd_create("pinned", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) return nullptr;
    void* sides[2];
    for (void*& side : sides)
        side = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, 0);
    close(file);
    const std::lock_guard lock(g_pinned_mutex);
    pinned()[static_cast<char*>(sides[0])] = {static_cast<char*>(sides[1]), bytes};
    return sides[0];
}

void fake_free_pinned(void* memory) {
    const cuMemFreeHost_params parameters = {memory};
    const uint64_t now = tick(0);
    call_back(kFreeHost, next_correlation(), now, now + 100, nullptr, &parameters, [&] {
        const std::lock_guard lock(g_pinned_mutex);
        const Pinned freed = pinned()[static_cast<char*>(memory)];
        pinned().erase(static_cast<char*>(memory));
        munmap(memory, freed.bytes);
        munmap(freed.engine, freed.bytes);
    });
}

/// Fills `destination` with `value` by a copy that takes so long; asynchronous where it is pinned.
uint32_t fake_copy_back(void* destination, uint64_t bytes, int value, double seconds) {
    const uint32_t correlation = next_correlation();
    char* const seen = seen_by_gpu(static_cast<char*>(destination));
    CUpti_ActivityMemcpy7 copy{};
    copy.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_DTOH;
    copy.srcKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
    copy.dstKind = seen ? CUPTI_ACTIVITY_MEMORY_KIND_PINNED : CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE;
    copy.bytes = bytes;
    copy.contextId = 1;
    copy.streamId = 13;
    copy.correlationId = correlation;
    copy.copyCount = 1;
    const auto move = [copy, seconds, value, seen, destination]() mutable {
        copy.start = tick(0);
        pass(seconds);
        if (seen) std::memset(seen, value, copy.bytes);
        copy.end = tick(0);
        if (!seen) std::memset(destination, value, copy.bytes);
        emit(CUPTI_ACTIVITY_KIND_MEMCPY, copy);
    };
    const auto device = static_cast<CUdeviceptr>(0x7f0000000000);
    const cuMemcpyDtoH_v2_params blocking = {destination, device, bytes};
    const cuMemcpyDtoHAsync_v2_params asynchronous = {destination, device, bytes, kStream};
    const uint64_t now = tick(0);
    if (!seen) {
        call_back(kCopyBack, correlation, now, now + 100, nullptr, &blocking, move);
        return correlation;
    }
    call_back(kCopyBackAsync, correlation, now, now + 100, nullptr, &asynchronous,
              [&] { engine().begin(move); });
    return correlation;
}

uint32_t fake_synchronize() {
    const uint32_t correlation = next_correlation();
    const cuStreamSynchronize_params parameters = {kStream};
    const uint64_t now = tick(0);
    call_back(kSynchronize, correlation, now, now + 100, nullptr, &parameters, [] { engine().rest(); });
    return correlation;
}

}  // extern "C"
