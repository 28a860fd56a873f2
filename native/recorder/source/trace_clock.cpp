#include "trace_clock.h"

#include <time.h>

namespace busfare::recorder {
namespace {

constexpr uint64_t kMostApart = 1000;  // ns, beyond what reading the clocks one after the other takes
constexpr int kTries = 5;

}  // namespace

uint64_t TraceClock::system_ns() {
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

void TraceClock::check() {
    // A thread may be put aside between two readings: one try that fits is proof enough.
    for (int attempt = 0; attempt < kTries && system_; ++attempt) {
        const uint64_t before = system_ns();
        const uint64_t theirs = cupti_ns();
        const uint64_t after = system_ns();
        if (theirs + kMostApart >= before && theirs <= after + kMostApart) return;
    }
    system_ = false;
}

}  // namespace busfare::recorder
