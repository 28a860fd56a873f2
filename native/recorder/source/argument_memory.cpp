#include "argument_memory.h"

#include <dlfcn.h>

#include <algorithm>
#include <map>

#include "beside_captures.h"
#include "own_calls.h"

namespace busfare::recorder {
namespace {

/// Distinct launches beyond this are not looked at.
constexpr size_t kMostLaunches = 65536;
/// No allocation lies below: what is smaller is a number.
constexpr uint64_t kLowestAddress = uint64_t{1} << 20;

}  // namespace

thread_local std::array<ArgumentMemory::Launch, 256> ArgumentMemory::t_known_{};

size_t ArgumentMemory::Launch::hash() const {
    uint64_t mixed = recording ^ reinterpret_cast<uintptr_t>(function);
    for (const uint32_t side : shape) mixed = (mixed ^ side) * 0x9e3779b97f4a7c15;
    return mixed ^ mixed >> 32;
}

bool ArgumentMemory::start() {
    void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (!driver || !places_.find()) return false;
    exchange_mode_ =
        reinterpret_cast<decltype(exchange_mode_)>(::dlsym(driver, "cuThreadExchangeStreamCaptureMode"));
    if (exchange_mode_) range_ = reinterpret_cast<AddressRange*>(::dlsym(driver, "cuMemGetAddressRange_v2"));
    return range_;
}

bool ArgumentMemory::is_new(const Launch& launch) {
    Launch& seen = t_known_[launch.hash() % t_known_.size()];
    if (seen == launch) return false;
    seen = launch;
    const std::lock_guard lock(mutex_);
    return known_.size() < kMostLaunches && known_.insert(launch).second;
}

void ArgumentMemory::note(LaunchCall call, const CUpti_CallbackData& data) {
    if (!range_) return;
    const LaunchArguments launch = LaunchArguments::of(call, data.functionParams);
    if (!is_new({recording_, launch.function, launch.shape})) return;
    const OwnCalls own;
    const BesideCaptures beside(exchange_mode_);
    if (!beside) return;
    Reached reached{data.symbolName ? data.symbolName : "", launch.shape, 0, 0, 0};
    // The most bytes from a pointer to the end of an allocation, by where that begins.
    std::map<uint64_t, uint64_t> reach;
    places_.each_word(launch, [&](uint64_t word) {
        CUdeviceptr begin = 0;
        size_t bytes = 0;
        if (word < kLowestAddress || range_(&begin, &bytes, word) != CUDA_SUCCESS || word - begin >= bytes)
            return;
        uint64_t& most = reach[begin];
        most = std::max<uint64_t>(most, begin + bytes - word);
        reached.inside = std::max<uint64_t>(reached.inside, 1000 * (word - begin) / bytes);
    });
    for (const auto& [begin, bytes] : reach) reached.bytes += bytes;
    reached.buffers = reach.size();
    const std::lock_guard lock(mutex_);
    reached_.push_back(std::move(reached));
}

void ArgumentMemory::write(Journal& journal) {
    std::vector<Reached> found;
    {
        const std::lock_guard lock(mutex_);
        found.swap(reached_);
    }
    for (const Reached& one : found) {
        const auto& s = one.shape;
        journal.append(TableId::kArgumentMemory, {journal.kernel_name(one.kernel.c_str()), s[0], s[1], s[2],
                                                  s[3], s[4], s[5], one.bytes, one.buffers, one.inside});
    }
}

}  // namespace busfare::recorder
