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
    while (!stop_.load(std::memory_order_relaxed)) {
        bool worked = false;
        try {
            worked = take_tasks();
            worked = issue_tasks() || worked;
            worked = report_outcomes() || worked;
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
    bool any = false;
    // One task of each line in turn, so that no rank's flood holds up the others.
    for (auto& [key, line] : lines_) {
        if (line.waiting.empty() || line.in_flight.size() >= most_in_flight) continue;
        const Task& task = line.waiting.front();
        if (!may_issue(task)) continue;
        any = true;
        try {
            issue(line, task);
        } catch (const Error& problem) {
            if (problem.fault() == Fault::device_failed) throw;
            // The ranks that wait for this one's epoch must not hang for its mistake.
            publish(line, task);
            report(task.member, task.ticket, problem.fault(), problem.what());
        }
        line.waiting.pop_front();
    }
    return any;
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

void Owner::issue(Line& line, const Task& task) {
    if (line.stream < 0) line.stream = device_->make_stream();
    // Everything that may be refused is looked at before the first operation is issued.
    std::array<ResolvedCopy, Task::most_copies> copies;
    std::array<KernelFunction, Task::most_kernels> functions;
    for (int i = 0; i < task.copies_in + task.copies_out; ++i) copies[i] = resolve(task.copy[i]);
    for (int i = 0; i < task.kernels; ++i) functions[i] = kernels_.at(task.kernel[i].kernel);
    for (int i = 0; i < task.waits; ++i) {
        const Wait& wait = task.wait[i];
        if (!has_member(wait.member))
            throw Error(Fault::wrong_use, "a task waits for a rank that is not in its group");
        if (epochs_[wait.member].issued - wait.epoch >= Epochs::kept)
            throw Error(Fault::wrong_use, "a task waits for an epoch that its owner no longer keeps");
    }

    Issued issued{task.member, task.ticket, task.timed, false, -1, {-1, -1, -1, -1}};
    const auto mark = [&](int index) {
        if (!task.timed) return;
        issued.marks[index] = take_event(true);
        device_->record(issued.marks[index], line.stream);
    };
    for (int i = 0; i < task.waits; ++i) {
        const Wait& wait = task.wait[i];
        if (wait.epoch > 0) device_->wait(line.stream, epoch_event(wait.member, wait.epoch));
    }
    mark(0);
    for (int i = 0; i < task.copies_in; ++i) device_->copy_in(line.stream, copies[i]);
    mark(1);
    for (int i = 0; i < task.kernels; ++i)
        device_->launch(line.stream, functions[i], task.kernel[i].arguments.data(), KernelCall::most_bytes);
    mark(2);
    for (int i = task.copies_in; i < task.copies_in + task.copies_out; ++i)
        device_->copy_out(line.stream, copies[i]);
    mark(3);
    publish(line, task);
    if (task.publish > 0) {
        issued.end = epoch_event(task.member, task.publish);
        issued.end_is_kept = true;
    } else if (!task.timed) {
        issued.end = take_event(false);
        device_->record(issued.end, line.stream);
    }
    line.in_flight.push_back(issued);
}

void Owner::publish(const Line& line, const Task& task) {
    if (task.publish == 0) return;
    Epochs& epochs = epochs_[task.member];
    while (epochs.events.size() < Epochs::kept) epochs.events.push_back(device_->make_event(false));
    device_->record(epoch_event(task.member, task.publish), line.stream);
    epochs.issued = task.publish;
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
