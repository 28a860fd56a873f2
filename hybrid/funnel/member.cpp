#include "funnel/member.h"

#include <cstring>

namespace funnel {

Member::Member(GroupArea& area, const Watch& watch, int member)
    : area_(area), watch_(watch), member_(member) {
    watch_.until([&] { return area_.open.load(std::memory_order_acquire) == 1; }, "the owner of the GPU");
}

Ticket Member::submit(const Task& task) {
    if (open_.size() >= GroupArea::most_open) wait(open_.front().ticket);
    CopyUsedParts()(addressed_, task);
    addressed_.member = member_;
    addressed_.ticket = ++last_;
    watch_.until([&] { return area_.tasks.push(addressed_); }, "a place in the owner's queue");
    open_.push_back({addressed_.ticket, task.label});
    return addressed_.ticket;
}

const GroupArea::Outcome& Member::outcome_of(Ticket ticket) const {
    return area_.outcomes[member_][ticket % GroupArea::ring];
}

bool Member::reported(Ticket ticket) const {
    return outcome_of(ticket).ticket.load(std::memory_order_acquire) == ticket;
}

void Member::retire() {
    while (!open_.empty() && reported(open_.front().ticket)) {
        const Open done = open_.front();
        open_.pop_front();
        const auto& outcome = outcome_of(done.ticket);
        if (outcome.fault != Fault::none) throw Error(outcome.fault, outcome.text.data());
        LabelTime& time = time_[done.label % Task::labels];
        time.copy_in += outcome.seconds_in;
        time.kernels += outcome.seconds_kernels;
        time.copy_out += outcome.seconds_out;
    }
}

bool Member::finished(Ticket ticket) {
    const bool done = (!open_.empty() && ticket < open_.front().ticket) || open_.empty() || reported(ticket);
    retire();
    return done;
}

void Member::wait(Ticket ticket) {
    watch_.until([&] { return finished(ticket); }, "task " + std::to_string(ticket));
}

void Member::drain() {
    while (!open_.empty()) wait(open_.back().ticket);
}

DeviceAddress Member::allocate(std::size_t bytes) {
    Task task;
    task.kind = Task::Kind::allocate;
    task.bytes = bytes;
    const Ticket ticket = submit(task);
    wait(ticket);
    return outcome_of(ticket).value;
}

void Member::release(DeviceAddress address) {
    Task task;
    task.kind = Task::Kind::release;
    task.address = address;
    wait(submit(task));
}

MemoryHandle Member::share(DeviceAddress address) {
    Task task;
    task.kind = Task::Kind::share;
    task.address = address;
    const Ticket ticket = submit(task);
    wait(ticket);
    MemoryHandle handle;
    std::memcpy(handle.data(), outcome_of(ticket).text.data(), sizeof handle);
    return handle;
}

DeviceAddress Member::map(const MemoryHandle& handle) {
    Task task;
    task.kind = Task::Kind::map;
    task.set_handle(handle);
    const Ticket ticket = submit(task);
    wait(ticket);
    return outcome_of(ticket).value;
}

void Member::unmap(DeviceAddress address) {
    Task task;
    task.kind = Task::Kind::unmap;
    task.address = address;
    wait(submit(task));
}

}  // namespace funnel
