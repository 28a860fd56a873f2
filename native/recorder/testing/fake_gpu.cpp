// A GPU whose copies to the host really land there, at real times: by another mapping of the same memory
// where it is pinned, as an engine would write it; by the calling thread where it is pageable, as the driver
// stages it. Its streams do their copies in turn, or are captured.
//
// Recorded with FAKE_CUPTI_SYSTEM_CLOCK.

#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "fake_cupti.h"

using namespace fake;

namespace {

constexpr Call kCopyBackAsync = CALL(cudaMemcpyAsync_v3020, cuMemcpyDtoHAsync_v2);
constexpr Call kCopyBackPerThread = CALL(cudaMemcpyAsync_v3020, cuMemcpyDtoHAsync_v2_ptsz);
constexpr Call kSynchronizeAll = CALL(cudaDeviceSynchronize_v3020, cuCtxSynchronize);

struct Pinned {
    char* engine;  ///< where the GPU sees it
    uint64_t bytes;
    bool managed;
};
std::mutex g_pinned_mutex;
std::map<char*, Pinned>& pinned() {
    static auto* const all = new std::map<char*, Pinned>;
    return *all;
}

/// A thread that does what its stream is given, in turn, as long as the program runs.
struct Stream {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::function<void()>> work;

    Stream() {
        std::thread([this] {
            std::unique_lock lock(mutex);
            for (;;) {
                changed.wait(lock, [this] { return !work.empty(); });
                const std::function<void()> next = work.front();
                lock.unlock();
                next();
                lock.lock();
                work.pop_front();
                changed.notify_all();
            }
        }).detach();
    }
    void rest() {
        std::unique_lock lock(mutex);
        changed.wait(lock, [this] { return work.empty(); });
    }
    void begin(std::function<void()> next) {
        const std::lock_guard lock(mutex);
        work.push_back(std::move(next));
        changed.notify_all();
    }
};

std::mutex g_streams_mutex;  ///< guards what follows, which is never destroyed: streams go on at the end
auto& g_streams = *new std::map<std::pair<CUstream, std::thread::id>, Stream*>;
auto& g_captured = *new std::set<CUstream>;
int g_invalidated;

/// What a call does to the captures of other threads and its own, unless it was told not to.
thread_local CUstreamCaptureMode t_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

CUstream meant(CUstream stream, int per_thread) {
    return stream ? stream : per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
}
Stream& stream_of(CUstream stream, int per_thread) {
    const CUstream meaning = meant(stream, per_thread);
    const auto thread = meaning == CU_STREAM_PER_THREAD ? std::this_thread::get_id() : std::thread::id{};
    const std::lock_guard lock(g_streams_mutex);
    Stream*& entry = g_streams[{meaning, thread}];
    if (!entry) entry = new Stream;
    return *entry;
}

/// A call of the driver's alone, of such a result.
int driver_call(uint32_t number, const void* parameters, const std::function<int()>& work) {
    const Call call = {0, number};
    const uint32_t correlation = next_correlation();
    const uint64_t begin = tick(0);
    int result = 0;
    call_back(call, correlation, begin, begin + 100, nullptr, parameters, [&] { result = work(); });
    emit_call(call, correlation, begin, begin + 100);
    return result;
}

/// Where the GPU sees an address; null: it does not.
char* seen_by_gpu(char* address, bool* managed = nullptr) {
    const std::lock_guard lock(g_pinned_mutex);
    const auto next = pinned().upper_bound(address);
    if (next == pinned().begin()) return nullptr;
    const auto& [begin, memory] = *std::prev(next);
    if (managed) *managed = memory.managed;
    return address < begin + memory.bytes ? memory.engine + (address - begin) : nullptr;
}

void pass(double seconds) {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

}  // namespace

extern "C" {

void* fake_pinned(uint64_t bytes) {
    stream_of(kStream, 0);
    const int file = memfd_create("pinned", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) return nullptr;
    void* sides[2];
    for (void*& side : sides)
        side = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, 0);
    close(file);
    const std::lock_guard lock(g_pinned_mutex);
    pinned()[static_cast<char*>(sides[0])] = {static_cast<char*>(sides[1]), bytes, false};
    return sides[0];
}

/// How a copy is called: by the runtime's or the driver's function, which may wait for it.
enum Called { kAsynchronous, kDirectly };

/// Fills `destination` with `value` by a copy that takes so long. Asynchronous ones wait where it is
/// pageable, unless the GPU writes that itself; a stream that is captured does nothing.
uint32_t fake_copy_in(CUstream stream, int per_thread, int called, void* destination, uint64_t bytes,
                      int value, double seconds) {
    static const bool coherent = std::getenv("FAKE_COHERENT") != nullptr;
    const uint32_t correlation = next_correlation();
    char* const seen = seen_by_gpu(static_cast<char*>(destination));
    CUpti_ActivityMemcpy7 copy{};
    copy.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_DTOH;
    copy.srcKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
    copy.dstKind = seen ? CUPTI_ACTIVITY_MEMORY_KIND_PINNED : CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE;
    copy.bytes = bytes;
    copy.contextId = 1;
    copy.streamId = stream == kStream ? 13 : stream ? 14 : per_thread ? 8 : 7;
    copy.correlationId = correlation;
    copy.copyCount = 1;
    const std::function<void()> move = [copy, seconds, value, seen, destination]() mutable {
        copy.start = tick(0);
        pass(seconds);
        if (seen) std::memset(seen, value, copy.bytes);
        copy.end = tick(0);
        if (!seen) std::memset(destination, value, copy.bytes);
        emit(CUPTI_ACTIVITY_KIND_MEMCPY, copy);
    };
    const auto device = static_cast<CUdeviceptr>(0x7f0000000000);
    const cuMemcpyDtoHAsync_v2_params parameters = {destination, device, bytes, stream};
    const uint64_t now = tick(0);
    const auto work = [&] {
        {
            const std::lock_guard lock(g_streams_mutex);
            if (g_captured.contains(meant(stream, per_thread))) return;
        }
        if (seen || coherent) return stream_of(stream, per_thread).begin(move);
        stream_of(stream, per_thread).rest();
        move();
    };
    Call call = per_thread ? kCopyBackPerThread : kCopyBackAsync;
    if (called == kDirectly) call.runtime = 0;
    call_back(call, correlation, now, now + 100, nullptr, &parameters, work);
    if (called == kDirectly) emit_call(call, correlation, now, now + 100);
    return correlation;
}

/// All of the process's.
uint32_t fake_synchronize_all() {
    const uint32_t correlation = next_correlation();
    const uint64_t now = tick(0);
    call_back(kSynchronizeAll, correlation, now, now + 100, nullptr, nullptr, [] {
        std::vector<Stream*> all;
        {
            const std::lock_guard lock(g_streams_mutex);
            for (const auto& [_, stream] : g_streams) all.push_back(stream);
        }
        for (Stream* stream : all) stream->rest();
    });
    return correlation;
}

/// Memory that moves between the GPU and the host.
void* fake_managed_memory(uint64_t bytes) {
    void* const memory = fake_pinned(bytes);
    const std::lock_guard lock(g_pinned_mutex);
    pinned()[static_cast<char*>(memory)].managed = true;
    return memory;
}

// What the driver's functions of these names do (fake_cuda.cpp).

int fake_is_capturing(CUstream stream, int per_thread, CUstreamCaptureStatus* status) {
    const cuStreamIsCapturing_params parameters = {stream, status};
    const auto number = per_thread ? CUPTI_DRIVER_TRACE_CBID_cuStreamIsCapturing_ptsz
                                   : CUPTI_DRIVER_TRACE_CBID_cuStreamIsCapturing;
    return driver_call(number, &parameters, [&]() -> int {
        const std::lock_guard lock(g_streams_mutex);
        const CUstream meaning = meant(stream, per_thread);
        if (meaning == CU_STREAM_LEGACY && !g_captured.empty()) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        *status =
            g_captured.contains(meaning) ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
        return 0;
    });
}

int fake_exchange_mode(CUstreamCaptureMode* mode) {
    const cuThreadExchangeStreamCaptureMode_params parameters = {mode};
    return driver_call(CUPTI_DRIVER_TRACE_CBID_cuThreadExchangeStreamCaptureMode, &parameters, [&] {
        std::swap(*mode, t_mode);
        return 0;
    });
}

/// As if it were one of the calls that captures forbid.
int fake_pointer_attribute(void* value, CUpointer_attribute which, void* pointer) {
    const cuPointerGetAttribute_params parameters = {value, which, reinterpret_cast<CUdeviceptr>(pointer)};
    return driver_call(CUPTI_DRIVER_TRACE_CBID_cuPointerGetAttribute, &parameters, [&]() -> int {
        {
            const std::lock_guard lock(g_streams_mutex);
            if (t_mode != CU_STREAM_CAPTURE_MODE_RELAXED && !g_captured.empty()) {
                ++g_invalidated;
                return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
            }
        }
        bool managed = false;
        if (!seen_by_gpu(static_cast<char*>(pointer), &managed)) return CUDA_ERROR_INVALID_VALUE;
        const uint32_t attribute = which == CU_POINTER_ATTRIBUTE_IS_MANAGED ? managed : CU_MEMORYTYPE_HOST;
        std::memcpy(value, &attribute, which == CU_POINTER_ATTRIBUTE_IS_MANAGED ? 1 : sizeof attribute);
        return 0;
    });
}

/// Begins or ends a capture of a stream.
void fake_capture_stream(CUstream stream, int begin) {
    const std::lock_guard lock(g_streams_mutex);
    if (begin) {
        g_captured.insert(stream);
    } else {
        g_captured.erase(stream);
    }
}

/// Captures that a call ended.
int fake_invalidated() {
    return g_invalidated;
}

}  // extern "C"
