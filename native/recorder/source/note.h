#pragma once

#include <cstdint>
#include <functional>

namespace busfare::recorder {

/// One call of the driver as its callbacks saw it, on its way from the program's thread to the writer.
///
/// A cache line: the program's thread writes one a call, and the writer's reads it.
struct alignas(64) Note {
    enum class What : uint8_t {
        kCall,         ///< nothing but the call
        kCopy,         ///< `first` source, `second` destination, `third` bytes asked for
        kWait,         ///< `first` type as in CUPTI's records, `second` event, `third` number of its record
        kEvent,        ///< `second` event, `third` number of this record
        kMessage,      ///< of MPI or NCCL, by the wall clock (messages.cpp)
        kFingerprint,  ///< of the copy noted next: `first` hash, `second` when taking it began, `third` for
                       ///< how long
        kStack,        ///< of the call noted before: `first` number of its stack
    };

    uint64_t start;  ///< trace clock
    uint64_t end;
    uint32_t correlation;
    uint32_t thread;
    uint32_t result;
    uint16_t number;  ///< of the callback
    What what;
    bool call;  ///< the call itself is wanted, and not only what it did
    uint64_t first, second, third;
    uint32_t context;
    uint32_t stream;  ///< as CUPTI counts
};
static_assert(sizeof(Note) == 64);

/// The notes of all threads: a ring each, which that thread alone writes and the writer thread alone reads.
///
/// A thread whose ring is full waits for the writer, `kLongestWait` at most and not again before the writer
/// has moved; its notes are then lost, and counted.
class Notes {
  public:
    explicit Notes(std::function<void()> wake_writer) : wake_writer_(std::move(wake_writer)) {}

    /// From the program's thread, whose number is filled in here. `fingerprint`, where not null, comes just
    /// before.
    void push(Note& note, const Note* fingerprint = nullptr) const;

    /// Asks the processor for the row that this thread's next note goes to, which the writer has read since:
    /// it comes while the call that is to be noted runs.
    static void fetch_next_row();

    /// Hands over all notes so far, a copy's with its fingerprint or null; returns how many were lost since
    /// the last time.
    static uint64_t drain(const std::function<void(const Note& note, const Note* fingerprint)>& take);

  private:
    const std::function<void()> wake_writer_;
};

}  // namespace busfare::recorder
