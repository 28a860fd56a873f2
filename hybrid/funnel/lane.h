#pragma once

#include <array>
#include <string>

#include "funnel/task.h"

namespace funnel {

/// Seconds of timed tasks under one label: what the device spent copying in, in kernels and copying out.
struct LabelTime {
    double copy_in = 0, kernels = 0, copy_out = 0;
};

/// A rank's way to a device. The same calls serve a rank that has the device to itself, one that shares it,
/// and one that computes on its own core.
class Lane {
  public:
    virtual ~Lane() = default;

    /// Hands a task over and returns at once (it waits only while the queue is full).
    virtual Ticket submit(const Task& task) = 0;
    /// Whether the task is done. Throws what the task failed with, once.
    virtual bool finished(Ticket ticket) = 0;
    virtual void wait(Ticket ticket) = 0;
    /// Waits for everything submitted.
    virtual void drain() = 0;

    virtual DeviceAddress allocate(std::size_t bytes) = 0;
    virtual void release(DeviceAddress address) = 0;

    /// Device memory across the processes of a node: `share` gives what another lane's `map` takes, which
    /// answers with the address by which kernels of that lane reach it. Throws Fault::allocation_refused
    /// where the devices do not reach each other. What is mapped is unmapped before it is released.
    virtual MemoryHandle share(DeviceAddress address) = 0;
    virtual DeviceAddress map(const MemoryHandle& handle) = 0;
    virtual void unmap(DeviceAddress address) = 0;

    virtual std::string device_name() const = 0;

    /// This rank's number among those that share its device memory.
    virtual int member() const = 0;

    const LabelTime& time_under(std::uint32_t label) const { return time_[label]; }
    void clear_times() { time_ = {}; }

  protected:
    std::array<LabelTime, Task::labels> time_{};
};

}  // namespace funnel
