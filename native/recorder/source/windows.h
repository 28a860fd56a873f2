#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

namespace busfare::recorder {

/// When recording was on, by CUPTI's clock. Any thread turns it on and off; the writer thread asks.
///
/// CUPTI gives records of calls from outside of these times too: what it is told about single calls once a
/// context exists has no effect (CUDA 13.0), so calls are on from the start, and left out here.
class Windows {
  public:
    void switch_to(bool on, uint64_t time);

    /// Whether a call that began at `time` began while recording was on.
    bool hold(uint64_t time) const;

    /// Hands over each turn that was not handed over before, in order.
    void drain(const std::function<void(uint64_t time, bool on)>& take);

  private:
    mutable std::mutex mutex_;
    std::vector<uint64_t> turns_;  ///< times, ascending: on, off, on, ...
    size_t drained_ = 0;
};

}  // namespace busfare::recorder
