#pragma once

#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cupti_library.h"
#include "journal.h"
#include "options.h"
#include "range_profiler.h"
#include "trace_clock.h"

namespace busfare::recorder {

/// Reads the counters of the first two launches of each distinct kernel: the first finds caches cold and may
/// load its module, and whether there will be a second is not known then.
///
/// No launch is counted that a stream captures, nor any while one does, for the waits would end the capture;
/// none of a graph; none of communication, whose kernels wait for other processes; and no kernels beyond a
/// limit.
class Counters {
  public:
    Counters(const CuptiLibrary& cupti, const Options& options, const TraceClock& clock);

    /// Turns the callbacks of launches and captures on or off.
    void subscribe(CUpti_SubscriberHandle subscriber, bool on) const;

    /// Off: launches that begin are not counted.
    void turn(bool on) { on_ = on; }

    /// From the callback of a driver call, first of all when it begins and last of all when it has ended.
    void note(CUpti_CallbackId number, const CUpti_CallbackData& data);

    /// What was counted since the last time; and once, where counting had to be given up, the reason.
    void write(Journal& journal);

  private:
    enum class Act : uint8_t { kNone, kLaunch, kLaunchEx, kBeginCapture, kEndCapture };
    using Shape = std::array<uint32_t, 7>;  ///< grid, block, dynamic shared bytes

    /// A launch whose hardware counters were read.
    struct Launch {
        Shape shape;  ///< grid, block, dynamic shared bytes
        uint32_t correlation;
        uint32_t context;
        uint32_t number;  ///< 1: the first of its kernel in this shape, 2: the second
        size_t passes;
        std::string kernel;  ///< mangled
        std::vector<std::pair<const char*, double>> values;
        // How long the program's thread was held up before and after its call.
        uint64_t before_start, before_ns, after_start, after_ns;
    };

    void enter(Act act, const CUpti_CallbackData& data);
    void leave(const CUpti_CallbackData& data);
    uint32_t next_launch(CUfunction function, const Shape& shape, std::string_view name);

    static constexpr CUpti_CallbackId kNumbers = 1024;

    const CuptiLibrary& cupti_;
    const TraceClock& clock_;
    const size_t limit_;
    std::array<Act, kNumbers> acts_{};
    std::atomic<bool> on_{false};
    std::atomic<bool> given_up_{false};
    std::atomic<int> captures_{0};
    std::atomic<bool> counting_{false};

    std::timed_mutex profiler_mutex_;  ///< held from the beginning of a counted launch to its end
    RangeProfiler profiler_;
    Launch launch_{};

    std::mutex mutex_;  ///< guards what follows
    std::map<std::pair<CUfunction, Shape>, uint32_t> launches_;
    std::vector<Launch> counted_;
    std::string why_given_up_;
};

}  // namespace busfare::recorder
