#pragma once

#include <chrono>

namespace nas {

/// Where a rank's time went, in the parts of [U11 figure 11]; seconds.
///
/// On a device the transforms' share is what its kernels took (at most the phase's wall time) and
/// `synchronous_local_copies` is the rest of the phase: copies between host and device that nothing hid.
struct Breakdown {
    double fft_1d = 0, fft_2d = 0;
    double outstanding_communication = 0;
    double synchronous_local_copies = 0;
    double barrier = 0;
};

class Stopwatch {
  public:
    double seconds() const {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
    }

  private:
    std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

/// Adds the time of a scope to a sum.
class Booked {
  public:
    explicit Booked(double& sum) : sum_(sum) {}
    ~Booked() { sum_ += watch_.seconds(); }
    Booked(const Booked&) = delete;
    Booked& operator=(const Booked&) = delete;

  private:
    double& sum_;
    Stopwatch watch_;
};

}  // namespace nas
