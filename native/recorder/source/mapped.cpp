#include "mapped.h"

#include <cupti.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <mutex>
#include <string_view>

namespace busfare::recorder {
namespace {

static_assert(offsetof(cuMemHostAlloc_params, bytesize) == 8 &&
              offsetof(cuMemAllocHost_v2_params, bytesize) == 8 &&
              offsetof(cuMemHostRegister_v2_params, bytesize) == 8);
static_assert(offsetof(cuLaunchCooperativeKernel_params, kernelParams) ==
              offsetof(cuLaunchKernel_params, kernelParams));

constexpr size_t kMostArguments = 4096;
/// More buffers than this of one launch are not told apart.
constexpr size_t kMostBuffers = 16;

uint64_t word(const void* from, size_t offset) {
    uint64_t value;
    std::memcpy(&value, static_cast<const char*>(from) + offset, sizeof value);
    return value;
}

/// The arguments that a launch has in one buffer, or null.
const char* packed_in(void** extra) {
    for (; extra && extra[0] != CU_LAUNCH_PARAM_END; extra += 2) {
        if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER) return static_cast<const char*>(extra[1]);
    }
    return nullptr;
}

}  // namespace

MappedArguments::Act MappedArguments::act_of(const char* name) {
    std::string_view plain(name);
    for (const std::string_view suffix : {"_ptsz", "_v2"}) {
        if (plain.ends_with(suffix)) plain.remove_suffix(suffix.size());
    }
    if (plain == "cuMemHostAlloc" || plain == "cuMemAllocHost") return Act::kPins;
    if (plain == "cuMemHostRegister") return Act::kRegisters;
    if (plain == "cuMemFreeHost" || plain == "cuMemHostUnregister") return Act::kFrees;
    if (plain == "cuLaunchKernel") return Act::kLaunches;
    if (plain == "cuLaunchCooperativeKernel") return Act::kLaunchesTogether;
    if (plain == "cuLaunchKernelEx") return Act::kLaunchesByConfiguration;
    return Act::kNone;
}

bool MappedArguments::start() {
    void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (!driver) return false;
    of_function_ = reinterpret_cast<ParamInfo*>(::dlsym(driver, "cuFuncGetParamInfo"));
    of_kernel_ = reinterpret_cast<ParamInfo*>(::dlsym(driver, "cuKernelGetParamInfo"));
    return of_function_ && of_kernel_;
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

bool MappedArguments::reach(Act act, const void* parameters, Note& note) const {
    if (!of_function_ || !of_kernel_ || !any_.load(std::memory_order_relaxed)) return false;
    CUfunction function;
    void** arguments;
    void** extra = nullptr;
    if (act == Act::kLaunches || act == Act::kLaunchesTogether) {
        const auto& launch = *static_cast<const cuLaunchKernel_params*>(parameters);
        function = launch.f;
        arguments = launch.kernelParams;
        if (act == Act::kLaunches) extra = launch.extra;  // cooperative launches have none
    } else {
        const auto& launch = *static_cast<const cuLaunchKernelEx_params*>(parameters);
        function = launch.f;
        arguments = launch.kernelParams;
        extra = launch.extra;
    }
    const char* const packed = arguments ? nullptr : packed_in(extra);
    if (!arguments && !packed) return false;
    std::array<uint64_t, kMostBuffers> buffers;
    size_t count = 0;
    uint64_t bytes = 0;
    const std::shared_lock lock(mutex_);
    if (pinned_.empty()) return false;
    const uint64_t lowest = pinned_.begin()->first;
    const uint64_t highest = pinned_.rbegin()->first + pinned_.rbegin()->second;
    size_t offset = 0, size = 0;
    ParamInfo* const info =
        of_function_(function, 0, &offset, &size) == CUDA_SUCCESS ? of_function_ : of_kernel_;
    for (size_t n = 0; n < kMostArguments && info(function, n, &offset, &size) == CUDA_SUCCESS; ++n) {
        for (size_t at = 0; at + 8 <= size && count < kMostBuffers; at += 8) {
            const uint64_t pointer = packed ? word(packed, offset + at) : word(arguments[n], at);
            if (pointer < lowest || pointer >= highest) continue;
            const auto after = pinned_.upper_bound(pointer);
            if (after == pinned_.begin()) continue;
            const auto& [begin, length] = *std::prev(after);
            const auto end = buffers.begin() + static_cast<ptrdiff_t>(count);
            if (pointer - begin >= length || std::find(buffers.begin(), end, begin) != end) continue;
            buffers[count++] = begin;
            bytes += length - (pointer - begin);
        }
    }
    note.one = bytes;
    note.two = count;
    return count > 0;
}

}  // namespace busfare::recorder
