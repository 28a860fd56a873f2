#include "handles.h"

#include <array>

namespace busfare::recorder {
namespace {

struct CachedStream {
    CUstream stream;
    uint32_t context;
    uint32_t number;
    uint32_t generation;  ///< 0: empty
    bool per_thread;
};

constexpr size_t kCachedStreams = 16;
thread_local std::array<CachedStream, kCachedStreams> t_cached{};

}  // namespace

uint32_t StreamNumbers::of(CUcontext context, uint32_t context_number, CUstream stream,
                           bool per_thread) const {
    if (stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD) {
        per_thread = stream == CU_STREAM_PER_THREAD;
        stream = nullptr;
    }
    const uint32_t generation = generation_.load(std::memory_order_relaxed);
    const auto bits = reinterpret_cast<uintptr_t>(stream);
    CachedStream& cached = t_cached[(bits >> 4 ^ bits >> 12 ^ context_number ^ per_thread) % kCachedStreams];
    if (cached.generation == generation && cached.stream == stream && cached.context == context_number &&
        cached.per_thread == per_thread) {
        return cached.number;
    }
    uint32_t number = kNoHandle;
    if (!cupti_.stream_number || cupti_.stream_number(context, stream, per_thread, &number) != CUPTI_SUCCESS)
        return kNoHandle;
    cached = {stream, context_number, number, generation, per_thread};
    return number;
}

EventNumbers::Event& EventNumbers::find(CUevent event) {
    const auto [entry, fresh] = events_.try_emplace(event, Event{0, 0});
    if (fresh) entry->second.number = ++events_met_;
    return entry->second;
}

EventNumbers::Event EventNumbers::record(CUevent event) {
    const std::lock_guard lock(mutex_);
    Event& entry = find(event);
    entry.record = ++records_;
    return entry;
}

EventNumbers::Event EventNumbers::of(CUevent event) {
    const std::lock_guard lock(mutex_);
    return find(event);
}

void EventNumbers::forget(CUevent event) {
    const std::lock_guard lock(mutex_);
    events_.erase(event);
}

}  // namespace busfare::recorder
