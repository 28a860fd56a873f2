#include "ring.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "driver.h"
#include "report.h"

namespace busfare::trial {
namespace {

constexpr size_t kBuffers = 16, kBufferBytes = size_t{4} << 20;
/// Bytes that a thread copies at a time; maximum number of threads, including the caller.
constexpr size_t kShare = size_t{256} << 10;
constexpr unsigned kMostThreads = 4;

/// Threads that fill a buffer together. Each takes one share at a time: a descheduled thread does not delay
/// the others. They run until the program ends.
class Fillers {
  public:
    /// Copies like `memcpy`; one caller at a time.
    void fill(void* to, const void* from, size_t bytes) {
        static const size_t most = std::clamp(std::thread::hardware_concurrency() / 2, 1u, kMostThreads);
        while (started_ + 1 < std::min(most, bytes / kShare)) start();
        std::unique_lock lock(mutex_);
        to_ = static_cast<char*>(to), from_ = static_cast<const char*>(from), left_ = bytes;
        lock.unlock();
        round_.fetch_add(1, std::memory_order_release);
        if (bytes > kShare) round_.notify_all();
        work();
        while (running_.load(std::memory_order_acquire)) std::this_thread::yield();
    }

  private:
    /// Copies shares until none is left.
    void work() {
        for (std::unique_lock lock(mutex_); left_; lock.lock()) {
            const size_t share = std::min(left_, kShare);
            char* const to = std::exchange(to_, to_ + share);
            const char* const from = std::exchange(from_, from_ + share);
            left_ -= share;
            running_.fetch_add(1, std::memory_order_relaxed);
            lock.unlock();
            std::memcpy(to, from, share);
            running_.fetch_sub(1, std::memory_order_release);
        }
    }

    void start() {
        ++started_;
        sigset_t all, before;
        sigfillset(&all);  // only the program's threads handle signals, except for faults
        sigdelset(&all, SIGSEGV), sigdelset(&all, SIGBUS);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        const auto run = [this, seen = round_.load()]() mutable {
            for (;;) {
                round_.wait(seen, std::memory_order_acquire);
                seen = round_.load(std::memory_order_acquire);
                work();
            }
        };
        try {
            std::thread(run).detach();
        } catch (const std::system_error&) {
            started_ = kMostThreads;  // the system has too many threads: start no more
        }
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }

    std::mutex mutex_;  ///< guards the data left to copy
    char* to_ = nullptr;
    const char* from_ = nullptr;
    size_t left_ = 0;
    unsigned started_ = 0;
    std::atomic<unsigned> running_{0};  ///< shares being copied
    std::atomic<uint64_t> round_{0};
};

struct Buffer {
    char* memory = nullptr;
    CUevent sent = nullptr;  ///< completes with the copy from this buffer
};
struct Ring {
    Buffer buffers[kBuffers];
    size_t next = 0;
};

std::mutex g_mutex;  ///< guards the variables below; they are never destroyed
auto& g_rings = *new std::map<CUcontext, Ring>;
auto& g_fillers = *new Fillers;

/// The next buffer, after its last copy has completed; null on failure.
Buffer* free_buffer(Ring& ring) {
    Buffer& buffer = ring.buffers[ring.next++ % kBuffers];
    const RelaxedCapture relaxed;
    if (buffer.memory) return REAL(cuEventSynchronize)(buffer.sent) == CUDA_SUCCESS ? &buffer : nullptr;
    if (REAL(cuEventCreate)(&buffer.sent, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) return nullptr;
    const uint64_t begin = now_ns();
    auto** const memory = reinterpret_cast<void**>(&buffer.memory);
    const bool made = REAL(cuMemHostAlloc)(memory, kBufferBytes, CU_MEMHOSTALLOC_PORTABLE) == CUDA_SUCCESS;
    count(kPinningNs, now_ns() - begin);
    return made ? &buffer : nullptr;
}

}  // namespace

bool staged(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
    CUcontext context = nullptr;
    // The owner may wait for a kernel that this thread is about to launch.
    const std::unique_lock lock(g_mutex, std::try_to_lock);
    if (!lock || REAL(cuCtxGetCurrent)(&context) != CUDA_SUCCESS || !context) return false;
    Ring& ring = g_rings[context];
    const auto* source = static_cast<const char*>(from);
    for (size_t at = 0; at < bytes;) {
        // Several pieces, because sending one overlaps filling the next.
        const size_t piece = std::min({bytes - at, kBufferBytes, std::max(bytes / 4, size_t{1} << 20)});
        Buffer* const buffer = free_buffer(ring);
        if (!buffer) return false;
        g_fillers.fill(buffer->memory, source + at, piece);
        if (REAL(cuMemcpyHtoDAsync_v2)(to + at, buffer->memory, piece, stream) != CUDA_SUCCESS) return false;
        if (REAL(cuEventRecord)(buffer->sent, stream) != CUDA_SUCCESS) return false;
        at += piece;
    }
    count_copy(kStagedCopies, bytes);
    return true;
}

void wait_for_staged() {
    if (!active()) return;
    const std::lock_guard lock(g_mutex);
    const RelaxedCapture relaxed;
    for (auto& [context, ring] : g_rings) {
        for (const Buffer& buffer : ring.buffers) {
            if (buffer.memory) REAL(cuEventSynchronize)(buffer.sent);
        }
    }
}

void free_rings() {
    if (!active()) return;
    const Inside inside;
    wait_for_staged();
    const std::lock_guard lock(g_mutex);
    CUcontext before = nullptr;
    if (!g_rings.empty()) REAL(cuCtxGetCurrent)(&before);
    for (auto& [context, ring] : g_rings) {
        REAL(cuCtxSetCurrent)(context);
        for (const Buffer& buffer : ring.buffers) {
            if (buffer.memory) REAL(cuMemFreeHost)(buffer.memory);
            if (buffer.sent) REAL(cuEventDestroy_v2)(buffer.sent);
        }
    }
    if (!g_rings.empty()) REAL(cuCtxSetCurrent)(before);
    g_rings.clear();
}

}  // namespace busfare::trial
