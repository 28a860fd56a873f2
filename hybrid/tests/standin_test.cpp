// The stand-in keeps a GPU's promises: order within a stream, events between streams, calls that return at
// once, refusals that leave it working, and a failure that stays.
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include "funnel/device.h"
#include "tests/check.h"

namespace {

using funnel::Fault;

std::atomic<bool> gate{false};

void wait_for_gate(void*, const void*) {
    while (!gate.load()) std::this_thread::yield();
}
void increment(void*, const void* arguments) {
    ++*reinterpret_cast<std::uint64_t*>(*static_cast<const std::uint64_t*>(arguments));
}
void times_ten(void*, const void* arguments) {
    *reinterpret_cast<std::uint64_t*>(*static_cast<const std::uint64_t*>(arguments)) *= 10;
}
void break_down(void*, const void*) {
    throw std::runtime_error("an illegal address");
}

void finish(funnel::Device& device, funnel::EventId event) {
    while (!device.done(event)) std::this_thread::yield();
}

}  // namespace

int main() {
    auto device = funnel::make_standin_device(1 << 20);
    std::uint64_t host[2] = {7, 0};
    device->register_host(host, sizeof host);
    const auto a = device->make_stream(), b = device->make_stream();
    const auto ready = device->make_event(true), end = device->make_event(true);
    const std::uint64_t cell = device->allocate(sizeof(std::uint64_t));
    const auto copy = [&](std::uint64_t* at) { return funnel::ResolvedCopy{at, 8, cell, 8, 8, 1}; };

    // Stream b waits for stream a, which is held at the gate: nothing has run when the calls are back.
    device->launch(a, funnel::Kernel{wait_for_gate}, &cell, sizeof cell);
    device->copy_in(a, copy(&host[0]));
    device->launch(a, funnel::Kernel{increment}, &cell, sizeof cell);
    device->record(ready, a);
    device->wait(b, ready);
    device->launch(b, funnel::Kernel{times_ten}, &cell, sizeof cell);
    device->copy_out(b, copy(&host[1]));
    device->record(end, b);
    CHECK(!device->done(end));
    CHECK(host[1] == 0);
    gate = true;
    finish(*device, end);
    CHECK(host[1] == 80);
    CHECK(device->seconds_between(ready, end) >= 0);

    std::uint64_t pageable = 0;
    CHECK_FAULT(Fault::out_of_range, device->copy_in(a, copy(&pageable)));
    CHECK_FAULT(Fault::allocation_refused, device->allocate(2 << 20));
    CHECK_FAULT(Fault::wrong_use, device->release(cell + 8));
    device->release(cell);
    device->release(device->allocate(1 << 20));

    device->launch(a, funnel::Kernel{break_down}, &cell, sizeof cell);
    device->record(end, a);
    CHECK_FAULT(Fault::device_failed, finish(*device, end));
    CHECK_FAULT(Fault::device_failed, device->done(ready));
    return check::failures;
}
