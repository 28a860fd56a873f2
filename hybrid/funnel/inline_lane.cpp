#include "funnel/inline_lane.h"

#include <chrono>
#include <cstring>

namespace funnel {

Ticket InlineLane::submit(const Task& task) {
    using Clock = std::chrono::steady_clock;
    const auto seconds = [](Clock::time_point a, Clock::time_point b) {
        return std::chrono::duration<double>(b - a).count();
    };
    const auto copy_rows = [&](const Copy& copy, bool in) {
        const std::uint64_t extent = (copy.rows - 1) * copy.host_pitch + copy.width;
        std::byte* host = staging_.resolve(copy.host, extent);
        auto* device = reinterpret_cast<std::byte*>(copy.device);
        for (std::uint64_t row = 0; row < copy.rows; ++row) {
            std::byte* a = device + row * copy.device_pitch;
            std::byte* b = host + row * copy.host_pitch;
            in ? std::memcpy(a, b, copy.width) : std::memcpy(b, a, copy.width);
        }
    };
    const auto begin = Clock::now();
    for (int i = 0; i < task.copies_in; ++i) copy_rows(task.copy[i], true);
    const auto copied_in = Clock::now();
    for (int i = 0; i < task.kernels; ++i)
        kernels_.at(task.kernel[i].kernel).alone(nullptr, task.kernel[i].arguments.data());
    const auto computed = Clock::now();
    for (int i = task.copies_in; i < task.copies_in + task.copies_out; ++i) copy_rows(task.copy[i], false);
    LabelTime& time = time_[task.label % Task::labels];
    time.copy_in += seconds(begin, copied_in);
    time.kernels += seconds(copied_in, computed);
    time.copy_out += seconds(computed, Clock::now());
    return ++last_;
}

DeviceAddress InlineLane::allocate(std::size_t bytes) {
    const std::size_t offset = (used_ + 255) / 256 * 256;
    const std::size_t offered = staging_.bytes_of(staging_.node().world_rank());
    if (bytes > offered || offset > offered - bytes)
        throw Error(Fault::allocation_refused,
                    "the staging memory has no " + std::to_string(bytes) + " bytes left");
    used_ = offset + bytes;
    return reinterpret_cast<DeviceAddress>(staging_.local() + offset);
}

void InlineLane::release(DeviceAddress address) {
    const auto* start = reinterpret_cast<std::byte*>(address);
    if (start < staging_.local() || start >= staging_.local() + used_)
        throw Error(Fault::wrong_use, "release of memory that is not allocated");
}

MemoryHandle InlineLane::share(DeviceAddress) {
    throw Error(Fault::wrong_use, "a core has no device memory to share");
}
DeviceAddress InlineLane::map(const MemoryHandle&) {
    throw Error(Fault::wrong_use, "a core maps no device memory");
}
void InlineLane::unmap(DeviceAddress) {
    throw Error(Fault::wrong_use, "a core maps no device memory");
}

}  // namespace funnel
