#include "buffer_pool.h"

#include <sys/mman.h>

#include <chrono>
#include <cstring>

namespace busfare::recorder {
namespace {

constexpr size_t kReady = 4;
constexpr auto kLongestWait = std::chrono::milliseconds(200);
constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

uint8_t* BufferPool::allocate() {
    void* memory = ::mmap(nullptr, buffer_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    if (buffer_bytes_ % kHugePage == 0) ::madvise(memory, buffer_bytes_, MADV_HUGEPAGE);
    return static_cast<uint8_t*>(memory);
}

uint8_t* BufferPool::request() {
    std::unique_lock lock(mutex_);
    if (free_.empty() && made_ < limit_) {
        ++made_;
        lock.unlock();
        uint8_t* fresh = allocate();
        lock.lock();
        if (fresh) return fresh;
        --made_;
    }
    // Once waiting was in vain, nobody waits again until the writer has moved: it may hang on its disk.
    if (starved_ || !free_again_.wait_for(lock, kLongestWait, [this] { return !free_.empty(); })) {
        starved_ = true;
        ++refused_;
        return nullptr;
    }
    uint8_t* buffer = free_.back();
    free_.pop_back();
    const bool low = free_.size() < kReady / 2 && made_ < limit_;
    lock.unlock();
    if (low) wake();
    return buffer;
}

void BufferPool::complete(uint8_t* data, size_t bytes) {
    {
        const std::lock_guard lock(mutex_);
        full_.push_back({data, bytes});
    }
    work_.notify_one();
}

std::optional<FullBuffer> BufferPool::take() {
    const std::lock_guard lock(mutex_);
    if (full_.empty()) return std::nullopt;
    const FullBuffer oldest = full_.front();
    full_.pop_front();
    return oldest;
}

void BufferPool::give_back(uint8_t* data, size_t used) {
    std::memset(data, 0, used);
    {
        const std::lock_guard lock(mutex_);
        free_.push_back(data);
        starved_ = false;
    }
    free_again_.notify_one();
}

void BufferPool::prepare() {
    for (;;) {
        {
            const std::lock_guard lock(mutex_);
            if (free_.size() >= kReady || made_ >= limit_) return;
            ++made_;
        }
        uint8_t* fresh = allocate();
        if (!fresh) {
            const std::lock_guard lock(mutex_);
            --made_;
            return;
        }
        give_back(fresh, buffer_bytes_);
    }
}

void BufferPool::wait(double seconds) {
    std::unique_lock lock(mutex_);
    work_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return woken_ || !full_.empty(); });
    woken_ = false;
}

void BufferPool::wake() {
    {
        const std::lock_guard lock(mutex_);
        woken_ = true;
    }
    work_.notify_one();
}

uint64_t BufferPool::refused() {
    const std::lock_guard lock(mutex_);
    const uint64_t refused = refused_;
    refused_ = 0;
    return refused;
}

}  // namespace busfare::recorder
