#include "handles.h"

#include <array>

namespace busfare::recorder {
namespace {

struct Known {
    CUstream stream;
    uint32_t context;
    uint32_t number;
    uint32_t generation;  ///< 0: empty
    bool per_thread;
};

constexpr size_t kKnown = 16;
thread_local std::array<Known, kKnown> t_known{};

}  // namespace

uint32_t StreamNumbers::of(CUcontext context, uint32_t context_number, CUstream stream,
                           bool per_thread) const {
    if (stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD) {
        per_thread = stream == CU_STREAM_PER_THREAD;
        stream = nullptr;
    }
    const uint32_t generation = generation_.load(std::memory_order_relaxed);
    const auto bits = reinterpret_cast<uintptr_t>(stream);
    Known& known = t_known[(bits >> 4 ^ bits >> 12 ^ context_number ^ per_thread) % kKnown];
    if (known.generation == generation && known.stream == stream && known.context == context_number &&
        known.per_thread == per_thread) {
        return known.number;
    }
    uint32_t number = kNoHandle;
    if (!cupti_.stream_number || cupti_.stream_number(context, stream, per_thread, &number) != CUPTI_SUCCESS)
        return kNoHandle;
    known = {stream, context_number, number, generation, per_thread};
    return number;
}

EventNumbers::Event& EventNumbers::find(CUevent event) {
    const auto [found, fresh] = events_.try_emplace(event, Event{0, 0});
    if (fresh) found->second.number = ++events_met_;
    return found->second;
}

EventNumbers::Event EventNumbers::record(CUevent event) {
    const std::lock_guard lock(mutex_);
    Event& found = find(event);
    found.record = ++records_;
    return found;
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
