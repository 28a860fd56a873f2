#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "cupti_library.h"

namespace busfare::recorder {

constexpr uint32_t kNoHandle = 0xFFFFFFFF;  ///< CUPTI's 'does not apply'

/// The numbers that CUPTI's records give streams, by handle. Each thread remembers those that it met last.
class StreamNumbers {
  public:
    explicit StreamNumbers(const CuptiLibrary& cupti) : cupti_(cupti) {}

    /// `per_thread`: whether the call takes the null stream for the thread's own. `kNoHandle` where CUPTI
    /// cannot say.
    uint32_t of(CUcontext context, uint32_t context_number, CUstream stream, bool per_thread) const;

    /// A stream is being destroyed: its handle may come back as another's.
    void forget() { generation_.fetch_add(1, std::memory_order_relaxed); }

  private:
    const CuptiLibrary& cupti_;
    std::atomic<uint32_t> generation_{1};
};

/// Numbers of events and of their records, which joins a wait with the record that it is for.
class EventNumbers {
  public:
    struct Event {
        uint32_t number;  ///< of the event, from 1
        uint64_t record;  ///< of its last record; 0: none yet
    };

    /// The event is recorded again.
    Event record(CUevent event);

    Event of(CUevent event);

    void forget(CUevent event);

  private:
    Event& find(CUevent event);

    std::mutex mutex_;
    std::unordered_map<CUevent, Event> events_;
    uint32_t events_met_ = 0;
    uint64_t records_ = 0;
};

}  // namespace busfare::recorder
