#include "funnel/owner.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>

namespace funnel {

Owner::Owner(std::unique_ptr<Device> device, KernelTable kernels, const Staging& staging, GroupArea& area,
             int members)
    : device_(std::move(device)),
      kernels_(std::move(kernels)),
      staging_(staging),
      area_(area),
      epochs_(members) {
    for (const auto& segment : staging_.segments()) device_->register_host(segment.base, segment.bytes);
    area_.tasks.clear();
    for (int member = 0; member < members; ++member)
        for (auto& outcome : area_.outcomes[member]) outcome.ticket.store(0, std::memory_order_relaxed);
    const std::string name = device_->name();
    std::strncpy(area_.device_name.data(), name.c_str(), area_.device_name.size() - 1);
    area_.open.store(1, std::memory_order_release);
    thread_ = std::thread([this] { serve(); });
}

Owner::~Owner() {
    stop_.store(true);
    thread_.join();
    try {
        device_->attach();
        for (const auto& segment : staging_.segments()) device_->unregister_host(segment.base);
    } catch (const Error&) {
        // A failed device has told every rank already; nothing is left to give back to it.
    }
}

void Owner::serve() {
    device_->attach();
    auto last_work = std::chrono::steady_clock::now();
    unsigned busy_rounds = 0;
    while (!stop_.load(std::memory_order_relaxed)) {
        bool worked = false;
        try {
            worked = take_tasks();
            worked = issue_merged() || worked;
            worked = issue_tasks() || worked;
            // Asking for each line's event costs as much as a launch, so work comes first.
            if (!worked || ++busy_rounds % 8 == 0) worked = report_outcomes() || worked;
        } catch (const Error& problem) {
            fail_everything(problem.what());
            worked = true;
        }
        if (worked) {
            last_work = std::chrono::steady_clock::now();
            continue;
        }
        // Idle: leave the core to the ranks at once, and sleep when nothing has come for a while.
        if (std::chrono::steady_clock::now() - last_work < std::chrono::milliseconds(5))
            sched_yield();
        else
            std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
}

bool Owner::take_tasks() {
    bool any = false;
    while (area_.tasks.pop(popped_)) {
        any = true;
        if (!failure_.empty())
            report(popped_.member, popped_.ticket, Fault::device_failed, failure_);
        else if (popped_.kind != Task::Kind::work)
            run_immediately(popped_);
        else
            CopyUsedParts()(lines_[{popped_.member, popped_.stream}].waiting.emplace_back(), popped_);
    }
    return any;
}

bool Owner::may_issue(const Task& task) const {
    for (int i = 0; i < task.waits; ++i) {
        const Wait& wait = task.wait[i];
        if (!has_member(wait.member)) continue;  // refused when issued
        if (epochs_[wait.member].issued < wait.epoch) return false;
    }
    return true;
}

bool Owner::issue_tasks() {
    // One task of each line in turn, so that no rank's flood holds up the others. What these tasks let others
    // issue waits for the next round, where it may be merged.
    ready_.clear();
    for (auto& [key, line] : lines_) {
        if (line.waiting.empty() || line.in_flight.size() >= most_in_flight) continue;
        const Task& task = line.waiting.front();
        if (!may_issue(task)) continue;
        // Ranks that went together do so again: while the GPU is busy, there is time to wait for the last of
        // them.
        if (line.merging && may_merge(task) && !line.in_flight.empty()) continue;
        ready_.push_back(&line);
    }
    for (Line* line : ready_) {
        const Task& task = line->waiting.front();
        // A kernel of one rank between merged ones stays on their stream, so that none of them waits for an
        // event.
        line->merging = line->merging && line->last.stream == merged_stream_ && kernels_alone(task);
        try {
            issue(*line, task);
        } catch (const Error& problem) {
            if (problem.fault() == Fault::device_failed) throw;
            // The ranks that wait for this one's epoch must not hang for its mistake.
            publish(task, line->last);
            report(task.member, task.ticket, problem.fault(), problem.what());
        }
        line->waiting.pop_front();
    }
    return !ready_.empty();
}

bool Owner::may_merge(const Task& task) const {
    if (epochs_.size() < 2 || task.kernels != 1 || !kernels_alone(task)) return false;
    const std::uint32_t number = task.kernel[0].kernel;
    return kernels_.has(number) && device_->merges(kernels_.at(number)) && !fault_of_waits(task);
}

bool Owner::issue_merged() {
    std::vector<Line*>& together = ready_;
    together.clear();
    for (auto& [key, line] : lines_) {
        if (line.waiting.empty() || line.in_flight.size() >= most_in_flight) continue;
        const Task& task = line.waiting.front();
        if (!may_issue(task) || !may_merge(task)) continue;
        const Task* first = together.empty() ? nullptr : &together.back()->waiting.front();
        if (first && (first->member == task.member || first->kernel[0].kernel != task.kernel[0].kernel))
            return false;
        together.push_back(&line);
    }
    if (together.empty() || together.size() < epochs_.size()) return false;

    if (merged_stream_ < 0) merged_stream_ = device_->make_stream();
    while (merged_events_.size() < Epochs::kept) merged_events_.push_back(device_->make_event(false));
    const End end{merged_events_[merged_launches_++ % Epochs::kept], merged_stream_};
    std::vector<const void*> arguments;
    for (Line* line : together) {
        const Task& task = line->waiting.front();
        wait_for(merged_stream_, line->last);
        wait_for_epochs(merged_stream_, task);
        arguments.push_back(task.kernel[0].arguments.data());
    }
    const KernelCall& call = together.front()->waiting.front().kernel[0];
    device_->launch_merged(merged_stream_, kernels_.at(call.kernel), arguments, call.bytes);
    device_->record(end.event, merged_stream_);
    for (Line* line : together) {
        const Task& task = line->waiting.front();
        publish(task, end);
        line->in_flight.push_back({task.member, task.ticket, 0, true, end.event, {-1, -1, -1, -1}});
        line->last = end;
        line->merging = true;
        line->waiting.pop_front();
    }
    return true;
}

void Owner::wait_for(StreamId stream, End end) {
    if (end.event >= 0 && end.stream != stream) device_->wait(stream, end.event);
}

void Owner::wait_for_epochs(StreamId stream, const Task& task) {
    for (int i = 0; i < task.waits; ++i) {
        const Wait& wait = task.wait[i];
        if (wait.epoch > 0) wait_for(stream, epochs_[wait.member].ends[wait.epoch % Epochs::kept]);
    }
}

void Owner::check_device_range(const Copy& copy) const {
    const std::uint64_t extent = copy.rows == 0 ? 0 : (copy.rows - 1) * copy.device_pitch + copy.width;
    auto after = allocations_.upper_bound(copy.device);
    if (after != allocations_.begin()) {
        const auto& [base, allocation] = *std::prev(after);
        if (extent <= allocation.bytes && copy.device - base <= allocation.bytes - extent) return;
    }
    throw Error(Fault::out_of_range,
                "a copy of " + std::to_string(extent) + " bytes leaves the device memory that was allocated");
}

ResolvedCopy Owner::resolve(const Copy& copy) const {
    check_device_range(copy);
    const std::uint64_t extent = copy.rows == 0 ? 0 : (copy.rows - 1) * copy.host_pitch + copy.width;
    return {staging_.resolve(copy.host, extent),
            copy.host_pitch,
            copy.device,
            copy.device_pitch,
            copy.width,
            copy.rows};
}

const char* Owner::fault_of_waits(const Task& task) const {
    for (int i = 0; i < task.waits; ++i) {
        const Wait& wait = task.wait[i];
        if (!has_member(wait.member)) return "a task waits for a rank that is not in its group";
        if (epochs_[wait.member].issued - wait.epoch >= Epochs::kept)
            return "a task waits for an epoch that its owner no longer keeps";
    }
    return nullptr;
}

void Owner::issue(Line& line, const Task& task) {
    if (line.stream < 0) line.stream = device_->make_stream();
    const StreamId stream = line.merging ? merged_stream_ : line.stream;
    // Everything that may be refused is looked at before the first operation is issued.
    std::array<ResolvedCopy, Task::most_copies> copies;
    std::array<Kernel, Task::most_kernels> kernels;
    for (int i = 0; i < task.copies_in + task.copies_out; ++i) copies[i] = resolve(task.copy[i]);
    for (int i = 0; i < task.kernels; ++i) kernels[i] = kernels_.at(task.kernel[i].kernel);
    if (const char* fault = fault_of_waits(task)) throw Error(Fault::wrong_use, fault);

    Issued issued{task.member, task.ticket, task.timed, false, -1, {-1, -1, -1, -1}};
    const auto mark = [&](int index) {
        if (!task.timed) return;
        issued.marks[index] = take_event(true);
        device_->record(issued.marks[index], stream);
    };
    wait_for(stream, line.last);
    wait_for_epochs(stream, task);
    mark(0);
    for (int i = 0; i < task.copies_in; ++i) device_->copy_in(stream, copies[i]);
    mark(1);
    for (int i = 0; i < task.kernels; ++i)
        device_->launch(stream, kernels[i], task.kernel[i].arguments.data(), KernelCall::most_bytes);
    mark(2);
    for (int i = task.copies_in; i < task.copies_in + task.copies_out; ++i)
        device_->copy_out(stream, copies[i]);
    mark(3);
    if (task.publish > 0) {
        Epochs& epochs = epochs_[task.member];
        while (epochs.events.size() < Epochs::kept) epochs.events.push_back(device_->make_event(false));
        issued.end = epochs.events[task.publish % Epochs::kept];
        issued.end_is_kept = true;
    } else if (!task.timed) {
        issued.end = take_event(false);
    }
    if (issued.end >= 0) device_->record(issued.end, stream);
    line.last = {issued.end >= 0 ? issued.end : issued.marks[3], stream};
    publish(task, line.last);
    line.in_flight.push_back(issued);
}

void Owner::publish(const Task& task, End end) {
    if (task.publish == 0) return;
    epochs_[task.member].ends[task.publish % Epochs::kept] = end;
    epochs_[task.member].issued = task.publish;
}

bool Owner::report_outcomes() {
    bool any = false;
    for (auto& [key, line] : lines_) {
        while (!line.in_flight.empty()) {
            const Issued& issued = line.in_flight.front();
            if (!device_->done(issued.timed ? issued.marks[3] : issued.end)) break;
            any = true;
            if (issued.timed) {
                float seconds[3];
                for (int i = 0; i < 3; ++i)
                    seconds[i] =
                        static_cast<float>(device_->seconds_between(issued.marks[i], issued.marks[i + 1]));
                report(issued.member, issued.ticket, Fault::none, {}, 0, seconds);
                for (EventId event : issued.marks) give_event(true, event);
            } else {
                report(issued.member, issued.ticket, Fault::none, {});
                if (!issued.end_is_kept) give_event(false, issued.end);
            }
            line.in_flight.pop_front();
        }
        if (line.in_flight.empty()) line.last = {};
    }
    return any;
}

void Owner::run_immediately(const Task& task) {
    try {
        if (task.kind == Task::Kind::allocate) {
            const DeviceAddress address = device_->allocate(task.bytes);
            allocations_[address] = {task.bytes, task.member};
            report(task.member, task.ticket, Fault::none, {}, address);
            return;
        }
        if (task.kind == Task::Kind::map) {
            const DeviceAddress address = device_->map(task.handle());
            mapped_.emplace(address, task.member);
            report(task.member, task.ticket, Fault::none, {}, address);
            return;
        }
        if (task.kind == Task::Kind::unmap) {
            auto [first, end] = mapped_.equal_range(task.address);
            while (first != end && first->second != task.member) ++first;
            if (first == end) throw Error(Fault::wrong_use, "unmapping of memory that this rank did not map");
            device_->unmap(task.address);
            mapped_.erase(first);
            report(task.member, task.ticket, Fault::none, {});
            return;
        }
        const auto allocation = allocations_.find(task.address);
        if (allocation == allocations_.end() || allocation->second.member != task.member)
            throw Error(Fault::wrong_use,
                        "release or sharing of device memory that this rank did not allocate");
        if (task.kind == Task::Kind::share) {
            const MemoryHandle handle = device_->share(task.address);
            report(task.member, task.ticket, Fault::none,
                   std::string(reinterpret_cast<const char*>(handle.data()), handle.size()));
            return;
        }
        device_->release(task.address);
        allocations_.erase(allocation);
        report(task.member, task.ticket, Fault::none, {});
    } catch (const Error& problem) {
        report(task.member, task.ticket, problem.fault(), problem.what());
        if (problem.fault() == Fault::device_failed) throw;
    }
}

void Owner::report(int member, Ticket ticket, Fault fault, const std::string& text, std::uint64_t value,
                   const float* seconds) {
    auto& outcome = area_.outcomes[member][ticket % GroupArea::ring];
    outcome.fault = fault;
    outcome.value = value;
    outcome.seconds_in = seconds ? seconds[0] : 0;
    outcome.seconds_kernels = seconds ? seconds[1] : 0;
    outcome.seconds_out = seconds ? seconds[2] : 0;
    if (fault != Fault::none || !text.empty()) {
        outcome.text.fill(0);
        std::memcpy(outcome.text.data(), text.data(), std::min(text.size(), outcome.text.size() - 1));
    }
    outcome.ticket.store(ticket, std::memory_order_release);
}

void Owner::fail_everything(const std::string& text) {
    failure_ = text;
    for (auto& [key, line] : lines_) {
        for (const Issued& issued : line.in_flight)
            report(issued.member, issued.ticket, Fault::device_failed, text);
        for (const Task& task : line.waiting) report(task.member, task.ticket, Fault::device_failed, text);
        line.in_flight.clear();
        line.last = {};
        line.waiting.clear();
    }
}

EventId Owner::take_event(bool timed) {
    auto& spare = timed ? spare_timed_ : spare_plain_;
    if (spare.empty()) return device_->make_event(timed);
    const EventId event = spare.back();
    spare.pop_back();
    return event;
}

void Owner::give_event(bool timed, EventId event) {
    (timed ? spare_timed_ : spare_plain_).push_back(event);
}

}  // namespace funnel
