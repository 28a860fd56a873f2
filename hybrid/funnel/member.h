#pragma once

#include <deque>
#include <string>

#include "funnel/group_area.h"
#include "funnel/lane.h"
#include "funnel/watch.h"

namespace funnel {

/// A rank's side of the funnel: puts tasks into its group's queue and reads their outcomes. The owning rank
/// is a member like the others.
class Member final : public Lane {
  public:
    Member(GroupArea& area, const Watch& watch, int member);

    Ticket submit(const Task& task) override;
    bool finished(Ticket ticket) override;
    void wait(Ticket ticket) override;
    void drain() override;
    DeviceAddress allocate(std::size_t bytes) override;
    void release(DeviceAddress address) override;
    MemoryHandle share(DeviceAddress address) override;
    DeviceAddress map(const MemoryHandle& handle) override;
    void unmap(DeviceAddress address) override;
    std::string device_name() const override { return area_.device_name.data(); }
    int member() const override { return member_; }

  private:
    struct Open {
        Ticket ticket;
        std::uint32_t label;
    };
    const GroupArea::Outcome& outcome_of(Ticket ticket) const;
    bool reported(Ticket ticket) const;
    /// Books the times of reported tasks in order and forgets them; throws what the first failed one failed
    /// with.
    void retire();

    GroupArea& area_;
    const Watch& watch_;
    int member_;
    Task addressed_;  ///< the task being submitted, with this rank's name on it
    Ticket last_ = 0;
    std::deque<Open> open_;
};

}  // namespace funnel
