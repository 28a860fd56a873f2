#pragma once

#include <atomic>
#include <cstdint>

#include "cupti_library.h"

namespace busfare::recorder {

/// CUPTI's clock, read without CUPTI where it is the system's: that takes a third of the time.
class TraceClock {
  public:
    explicit TraceClock(const CuptiLibrary& cupti) : cupti_(cupti) { check(); }

    uint64_t now() const { return system_.load(std::memory_order_relaxed) ? system_ns() : cupti_ns(); }

    /// Whether it is the system's.
    bool is_system() const { return system_.load(std::memory_order_relaxed); }

    /// Compares the two clocks; once they have been found apart, CUPTI's is asked each time.
    void check();

    /// The system's time since the Unix epoch.
    static uint64_t system_ns();

  private:
    uint64_t cupti_ns() const {
        uint64_t time = 0;
        cupti_.timestamp(&time);
        return time;
    }

    const CuptiLibrary& cupti_;
    std::atomic<bool> system_{true};
};

}  // namespace busfare::recorder
