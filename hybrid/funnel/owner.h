#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "funnel/device.h"
#include "funnel/group_area.h"
#include "funnel/kernel_table.h"
#include "funnel/staging.h"

namespace funnel {

/// The one who talks to the GPU: takes tasks from the group's queue, issues them on streams, and reports
/// outcomes.
///
/// It runs on a thread of its own in the owning rank, so that rank may compute or sit in MPI while the others
/// are served, and it never waits for the GPU: a task whose dependency has not been issued yet stays in its
/// rank's line, and completion is asked for, not waited for.
///
/// Where the next tasks of all ranks are the same kernel, it runs for all of them in one launch, on a stream
/// for such launches. A launch costs the owner about 12 µs with its waits and events, and four ranks on one
/// H200 take four times as many.
class Owner {
  public:
    Owner(std::unique_ptr<Device> device, KernelTable kernels, const Staging& staging, GroupArea& area,
          int members);
    ~Owner();

  private:
    struct Allocation {
        std::uint64_t bytes;
        int member;
    };
    struct Issued {
        int member;
        Ticket ticket;
        std::uint32_t timed;
        bool end_is_kept;  ///< an epoch's event, which others wait for too
        EventId end;
        EventId marks[4];  ///< timed tasks: begin, copies in done, kernels done, copies out done
    };
    /// The end of a task: an event, and the stream that it is recorded on.
    struct End {
        EventId event = -1;
        StreamId stream = -1;
    };
    /// The tasks of one rank for one stream: those not yet issued and those under way.
    struct Line {
        StreamId stream = -1;
        End last;              ///< of what was issued last; none when nothing is under way
        bool merging = false;  ///< its last task ran on the stream of merged launches
        std::deque<Task> waiting;
        std::deque<Issued> in_flight;
    };
    struct Epochs {
        static constexpr std::uint64_t kept = 64;
        std::uint64_t issued = 0;
        std::vector<EventId> events;  ///< for tasks that were issued alone
        std::array<End, kept> ends;
    };
    /// The GPU's own queue is finite and a full one blocks its caller. Deep enough that a cascade of small
    /// kernels is queued while the large ones before it run.
    static constexpr std::size_t most_in_flight = 24;

    void serve();
    bool take_tasks();
    bool issue_tasks();
    bool report_outcomes();
    bool may_issue(const Task& task) const;
    static bool kernels_alone(const Task& task) {
        return task.copies_in + task.copies_out == 0 && !task.timed;
    }
    bool may_merge(const Task& task) const;
    bool issue_merged();
    const char* fault_of_waits(const Task& task) const;  ///< null if it may wait for what it names
    void issue(Line& line, const Task& task);
    void publish(const Task& task, End end);
    void wait_for(StreamId stream, End end);
    void wait_for_epochs(StreamId stream, const Task& task);
    bool has_member(int member) const { return member >= 0 && member < static_cast<int>(epochs_.size()); }
    void run_immediately(const Task& task);
    void check_device_range(const Copy& copy) const;
    ResolvedCopy resolve(const Copy& copy) const;
    void report(int member, Ticket ticket, Fault fault, const std::string& text, std::uint64_t value = 0,
                const float* seconds = nullptr);
    void fail_everything(const std::string& text);
    EventId take_event(bool timed);
    void give_event(bool timed, EventId event);

    std::unique_ptr<Device> device_;
    KernelTable kernels_;
    const Staging& staging_;
    GroupArea& area_;
    std::map<std::pair<int, std::uint32_t>, Line> lines_;
    std::vector<Line*> ready_;  ///< those whose next task is issued in this round
    std::map<DeviceAddress, Allocation> allocations_;
    std::multimap<DeviceAddress, int> mapped_;  ///< memory of other processes, by the member that asked
    std::vector<Epochs> epochs_;
    StreamId merged_stream_ = -1;
    std::vector<EventId> merged_events_;  ///< a ring, as long as epochs are kept
    std::uint64_t merged_launches_ = 0;
    std::vector<EventId> spare_plain_, spare_timed_;
    std::string failure_;
    Task popped_;
    std::atomic<bool> stop_{false};
    std::thread thread_;
};

}  // namespace funnel
