#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "funnel/error.h"

namespace funnel {

/// A device address as its owner knows it. Other ranks carry it about and never read through it.
using DeviceAddress = std::uint64_t;

/// By which a process of the same node reaches device memory of this one.
using MemoryHandle = std::array<std::byte, 80>;

/// Number of a rank's task, counted from 1.
using Ticket = std::uint64_t;

/// A place in the staging memory of one rank of this node.
struct HostPlace {
    std::int32_t segment = 0;  ///< the rank's number within the node
    std::uint64_t offset = 0;  ///< bytes from the start of that rank's staging memory
};

/// A copy of `rows` runs of `width` bytes between staging memory and the device.
struct Copy {
    HostPlace host;
    std::uint64_t host_pitch = 0;  ///< bytes from one run to the next
    DeviceAddress device = 0;
    std::uint64_t device_pitch = 0;
    std::uint64_t width = 0;
    std::uint64_t rows = 1;
};

/// A kernel by its number in the owner's table, with its arguments by value.
struct KernelCall {
    static constexpr std::size_t most_bytes = 400;
    std::uint32_t kernel = 0;
    std::uint32_t bytes = 0;  ///< of the arguments in use
    alignas(16) std::array<std::byte, most_bytes> arguments;
};

/// "Not before `member` has reached `epoch`": a dependency on another rank of the same GPU.
struct Wait {
    std::int32_t member = 0;
    std::uint64_t epoch = 0;
};

/// One request to the owner: copies in, kernels, copies out, completion. Tasks of one rank on one stream run
/// in order; tasks on different streams overlap. Plain data, because it travels through shared memory.
struct Task {
    enum class Kind : std::uint32_t { work, allocate, release, share, map, unmap };
    static constexpr int most_copies = 56;
    static constexpr int most_kernels = 4;
    static constexpr int most_waits = 27;
    static constexpr int labels = 8;

    Kind kind = Kind::work;
    std::int32_t member = 0;  ///< the asking rank's number within its group; filled in by `submit`
    Ticket ticket = 0;        ///< filled in by `submit`
    std::uint32_t stream = 0;
    std::uint32_t label = 0;      ///< what the time of a timed task is booked under
    std::uint32_t timed = 0;      ///< 1: measure copies in, kernels and copies out apart
    std::uint64_t publish = 0;    ///< the epoch that this rank reaches when the task is done; 0: none
    std::uint64_t bytes = 0;      ///< allocate
    DeviceAddress address = 0;    ///< release, share, unmap
    std::int32_t copies_in = 0;   ///< the first copies of `copy`
    std::int32_t copies_out = 0;  ///< those after them
    std::int32_t kernels = 0;
    std::int32_t waits = 0;
    std::array<Copy, most_copies> copy;
    std::array<KernelCall, most_kernels> kernel;
    std::array<Wait, most_waits> wait;

    /// All copies in are added before the first copy out.
    void add_copy_in(const Copy& c) {
        if (copies_out > 0) throw Error(Fault::wrong_use, "a task takes its copies in before its copies out");
        if (copies_in == most_copies) throw Error(Fault::wrong_use, "too many copies in one task");
        copy[copies_in++] = c;
    }
    void add_copy_out(const Copy& c) {
        if (copies_in + copies_out == most_copies)
            throw Error(Fault::wrong_use, "too many copies in one task");
        copy[copies_in + copies_out++] = c;
    }
    template <class Arguments>
    void add_kernel(std::uint32_t number, const Arguments& arguments) {
        static_assert(std::is_trivially_copyable_v<Arguments>);
        static_assert(sizeof(Arguments) <= KernelCall::most_bytes);
        if (kernels == most_kernels) throw Error(Fault::wrong_use, "too many kernels in one task");
        kernel[kernels].kernel = number;
        kernel[kernels].bytes = sizeof arguments;
        std::memcpy(kernel[kernels].arguments.data(), &arguments, sizeof arguments);
        ++kernels;
    }
    void add_wait(int member_waited_for, std::uint64_t epoch) {
        if (waits == most_waits) throw Error(Fault::wrong_use, "too many dependencies in one task");
        wait[waits++] = Wait{member_waited_for, epoch};
    }
    /// The handle of a `map`, which travels as a kernel's arguments do.
    void set_handle(const MemoryHandle& handle) {
        static_assert(sizeof handle <= KernelCall::most_bytes);
        kernels = 1;
        kernel[0].bytes = sizeof handle;
        std::memcpy(kernel[0].arguments.data(), handle.data(), sizeof handle);
    }
    MemoryHandle handle() const {
        MemoryHandle handle;
        std::memcpy(handle.data(), kernel[0].arguments.data(), sizeof handle);
        return handle;
    }
    bool room_for_copy() const { return copies_in + copies_out < most_copies; }
};
static_assert(std::is_trivially_copyable_v<Task>);

/// Copies what a task uses. A task is nearly 4 KiB and mostly empty, and between two cores every cache line
/// of it counts: whole tasks cost the owner 5 µs each, measured.
struct CopyUsedParts {
    void operator()(Task& to, const Task& from) const {
        std::memcpy(static_cast<void*>(&to), &from, offsetof(Task, copy));
        std::memcpy(to.copy.data(), from.copy.data(), sizeof(Copy) * (from.copies_in + from.copies_out));
        std::memcpy(to.wait.data(), from.wait.data(), sizeof(Wait) * from.waits);
        for (int i = 0; i < from.kernels; ++i)
            std::memcpy(static_cast<void*>(&to.kernel[i]), &from.kernel[i],
                        offsetof(KernelCall, arguments) + from.kernel[i].bytes);
    }
};

}  // namespace funnel
