#include "mapped.h"

#include <cupti.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <mutex>
#include <string_view>

#include "own_calls.h"

namespace busfare::recorder {
namespace {

static_assert(offsetof(cuMemHostAlloc_params, bytesize) == 8 &&
              offsetof(cuMemAllocHost_v2_params, bytesize) == 8 &&
              offsetof(cuMemHostRegister_v2_params, bytesize) == 8);

/// More buffers than this of one launch are not told apart.
constexpr size_t kMostBuffers = 16;

uint64_t word(const void* from, size_t offset) {
    uint64_t value;
    std::memcpy(&value, static_cast<const char*>(from) + offset, sizeof value);
    return value;
}

}  // namespace

MappedArguments::Act MappedArguments::act_of(const char* name) {
    const std::string_view plain = without_suffix(name);
    if (plain == "cuMemHostAlloc" || plain == "cuMemAllocHost") return Act::kPins;
    if (plain == "cuMemHostRegister") return Act::kRegisters;
    if (plain == "cuMemFreeHost" || plain == "cuMemHostUnregister") return Act::kFrees;
    return Act::kNone;
}

void MappedArguments::freed(const void* parameters) {
    const std::unique_lock lock(mutex_);
    pinned_.erase(word(parameters, 0));
}

void MappedArguments::pinned(Act act, const void* parameters) {
    uint64_t at = word(parameters, 0);
    if (act == Act::kPins) at = at ? word(reinterpret_cast<const void*>(at), 0) : 0;
    if (at == 0) return;
    const std::unique_lock lock(mutex_);
    pinned_[at] = word(parameters, 8);
    any_.store(true, std::memory_order_relaxed);
}

bool MappedArguments::reach(LaunchCall call, const void* parameters, Note& note) const {
    if (!any_.load(std::memory_order_relaxed)) return false;
    std::array<uint64_t, kMostBuffers> buffers;
    size_t count = 0;
    uint64_t bytes = 0;
    const std::shared_lock lock(mutex_);
    if (pinned_.empty()) return false;
    const uint64_t lowest = pinned_.begin()->first;
    const uint64_t highest = pinned_.rbegin()->first + pinned_.rbegin()->second;
    const OwnCalls own;
    places_.each_word(LaunchArguments::of(call, parameters), [&](uint64_t pointer) {
        if (count == kMostBuffers || pointer < lowest || pointer >= highest) return;
        const auto after = pinned_.upper_bound(pointer);
        if (after == pinned_.begin()) return;
        const auto& [begin, length] = *std::prev(after);
        const auto end = buffers.begin() + static_cast<ptrdiff_t>(count);
        if (pointer - begin >= length || std::find(buffers.begin(), end, begin) != end) return;
        buffers[count++] = begin;
        bytes += length - (pointer - begin);
    });
    note.one = bytes;
    note.two = count;
    return count > 0;
}

}  // namespace busfare::recorder
