#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "funnel/task.h"

namespace funnel {

using StreamId = int;
using EventId = int;

/// A kernel's entry on the host: `stream` is what the device knows a stream by (a cudaStream_t on CUDA, the
/// stream's number on the stand-in).
using KernelFunction = void (*)(void* stream, const void* arguments);

/// The same for several ranks in one launch: `arguments[i]` are those of the i-th rank.
using MergedKernelFunction = void (*)(void* stream, const void* const* arguments, int ranks);

/// A kernel that the owner can run; `merged` is null where it cannot run for several ranks at once.
struct Kernel {
    KernelFunction alone = nullptr;
    MergedKernelFunction merged = nullptr;
};

/// One copy with its host address resolved.
struct ResolvedCopy {
    void* host;
    std::size_t host_pitch;
    DeviceAddress device;
    std::size_t device_pitch;
    std::size_t width;
    std::size_t rows;
};

/// A GPU as the owner sees it: memory, streams that each run in order, events between them. Nothing here
/// blocks except `allocate`, `release`, `map`, `unmap` and the registration of host memory. One thread uses a
/// device; it calls `attach` first.
class Device {
  public:
    virtual ~Device() = default;
    virtual std::string name() const = 0;
    virtual void attach() = 0;

    virtual DeviceAddress allocate(std::size_t bytes) = 0;  ///< throws Fault::allocation_refused
    virtual void release(DeviceAddress address) = 0;

    /// What another process of this node maps an allocation by, on a device of the same kind.
    virtual MemoryHandle share(DeviceAddress address) = 0;
    /// The address here of memory that another process shares; throws Fault::allocation_refused where the two
    /// devices do not reach each other. It is unmapped before its owner releases it.
    virtual DeviceAddress map(const MemoryHandle& handle) = 0;
    virtual void unmap(DeviceAddress address) = 0;

    /// Makes host memory reachable by the device's copy engines. Only registered memory may be copied.
    virtual void register_host(void* base, std::size_t bytes) = 0;
    virtual void unregister_host(void* base) = 0;

    virtual StreamId make_stream() = 0;
    virtual void copy_in(StreamId stream, const ResolvedCopy& copy) = 0;
    virtual void copy_out(StreamId stream, const ResolvedCopy& copy) = 0;
    virtual void launch(StreamId stream, const Kernel& kernel, const void* arguments, std::size_t bytes) = 0;
    /// Whether `launch_merged` runs this kernel.
    virtual bool merges(const Kernel& kernel) const = 0;
    /// One launch for several ranks; each has `bytes` of arguments.
    virtual void launch_merged(StreamId stream, const Kernel& kernel,
                               const std::vector<const void*>& arguments, std::size_t bytes) = 0;

    virtual EventId make_event(bool timed) = 0;
    virtual void record(EventId event, StreamId stream) = 0;
    virtual void wait(StreamId stream, EventId event) = 0;  ///< for the event's latest record
    virtual bool done(EventId event) = 0;  ///< throws Fault::device_failed once the device has failed
    virtual double seconds_between(EventId first, EventId second) = 0;
};

/// A GPU's place in the machine; `numa_node` is -1 where the machine does not say.
struct GpuPlace {
    int ordinal = 0;
    int numa_node = -1;
};

/// Hardware queues of an owner that has a GPU's queues to itself. Streams that share a queue wait for each
/// other.
inline constexpr int most_queues = 32;

/// The GPUs that this process sees; empty in a build without CUDA and on a machine without a GPU. `queues`:
/// how many of each GPU's hardware queues this process is to take; only the first call counts.
std::vector<GpuPlace> visible_gpus(int queues = most_queues);

/// A CUDA device in this process's own context. Throws in a build without CUDA.
std::unique_ptr<Device> make_cuda_device(int ordinal);

/// A device made of a host thread: same streams, events and order, `memory_bytes` of memory.
std::unique_ptr<Device> make_standin_device(std::size_t memory_bytes);

}  // namespace funnel
