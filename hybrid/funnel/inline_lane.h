#pragma once

#include <map>
#include <memory>
#include <string>

#include "funnel/kernel_table.h"
#include "funnel/lane.h"
#include "funnel/staging.h"

namespace funnel {

/// A lane without a device: tasks run at once on the calling core, and "device memory" is taken from this
/// rank's staging memory, so neighbours on the node can read it in place. That memory is given back with the
/// lane.
class InlineLane final : public Lane {
  public:
    /// Memory is handed out from `first_byte` of the staging memory on.
    InlineLane(KernelTable kernels, const Staging& staging, std::size_t first_byte)
        : kernels_(std::move(kernels)), staging_(staging), used_(first_byte) {}

    Ticket submit(const Task& task) override;
    bool finished(Ticket) override { return true; }
    void wait(Ticket) override {}
    void drain() override {}
    DeviceAddress allocate(std::size_t bytes) override;
    void release(DeviceAddress address) override;
    /// Throw Fault::wrong_use: neighbours read this memory through the staging memory.
    MemoryHandle share(DeviceAddress address) override;
    DeviceAddress map(const MemoryHandle& handle) override;
    void unmap(DeviceAddress address) override;
    std::string device_name() const override { return "CPU"; }
    int member() const override { return 0; }

  private:
    KernelTable kernels_;
    const Staging& staging_;
    std::size_t used_;
    Ticket last_ = 0;
};

}  // namespace funnel
