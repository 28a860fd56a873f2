#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "copy_calls.h"
#include "journal.h"
#include "trace_clock.h"
#include "watchpoints.h"

namespace busfare::recorder {

/// When the host first touches what a copy from the GPU has brought, of a sample of the copies.
///
/// One destination at a time is watched, from before its copy is submitted. The program's thread hands it to
/// a thread of the recorder's, which sets watchpoints and sees what becomes of them.
class FirstUse {
  public:
    explicit FirstUse(const TraceClock& clock) : clock_(clock) {}

    /// Starts the thread.
    void start();

    /// A copy call of the program begins, or any that frees pinned memory (`copy` null).
    void enter(const CopyCall* copy, const Note& addresses, uint32_t correlation);

    /// The same call has returned, of a copy.
    void leave(uint32_t correlation);

    /// What was watched comes to its end, and nothing more is.
    void stop();

    /// What was seen since the last time; once, whether anything can be.
    void write(Journal& journal);

  private:
    /// How a watch ended; numbers are part of the file format.
    enum class End : uint64_t {
        kTouched = 1,
        kCopiedOver = 2,  ///< another copy goes to the same place
        kSent = 3,        ///< another copy takes it from there
        kFreed = 4,       ///< pinned memory was freed, or other memory was mapped there
        kTooLong = 5,
        kStopped = 6,
        /// A thread began, too much happened, a system call may have taken the bytes unseen, or other memory
        /// may have come in their place.
        kLostSight = 7,
    };
    using Words = std::array<uint64_t, Watchpoints::kMostPieces>;
    struct Watch {
        uint32_t correlation = 0;
        uint64_t destination = 0, bytes = 0;
        std::vector<Watchpoints::Piece> pieces;  ///< that are watched
        uint64_t watched_bytes = 0;
        uint64_t written = 0;  ///< of the process, when it was asked for
        uint64_t asked = 0;    ///< CLOCK_MONOTONIC, as all times here
        uint64_t set = 0;      ///< when the program's thread went on; 0: not yet
        uint64_t end = 0;
        End ended = End::kStopped;
        uint32_t thread = 0;   ///< that touched it
        uint64_t address = 0;  ///< that it touched

        bool holds(uint64_t at, uint64_t size) const {
            return at < destination + bytes && destination < at + size;
        }
        /// Whether its pages hold bytes; looks at some of them.
        bool is_there() const;
        /// What lies in its pieces; nothing where they cannot be read, or all are zero as new memory is.
        std::optional<Words> words() const;
    };
    struct Sampled {
        uint32_t seen, taken;
    };
    enum class State : uint8_t { kOff, kIdle, kAsked, kWatching };

    void run();
    void prepare(std::unique_lock<std::mutex>& lock);
    void watch();
    void look();
    void take();
    size_t mappings() const;
    void judge_mappings(const std::optional<Words>& words);
    std::optional<End> meaning(const Watchpoints::Event& event, uint64_t returned) const;
    void judge(uint64_t returned, uint64_t now);
    void end(End how);
    bool wanted(uint64_t destination, uint64_t bytes);

    const TraceClock& clock_;
    Watchpoints points_;
    std::atomic<State> state_{State::kOff};
    std::atomic<uint64_t> next_{0};        ///< no watch begins before
    std::atomic<uint64_t> returned_{0};    ///< when the watched copy's call returned
    std::atomic<uint64_t> ended_{0};       ///< when the program did what ends the watch …
    std::atomic<End> how_{End::kStopped};  ///< … and what that was
    std::atomic<bool> stopping_{false};

    std::mutex mutex_;  ///< guards what follows
    std::condition_variable changed_;
    Watch now_;
    std::unordered_map<uint64_t, Sampled> sampled_;  ///< by destination and bytes
    std::vector<Watch> done_;
    std::string said_;  ///< what is seen, or why nothing is; not written yet
    // Of the watch, the recorder's thread's alone.
    std::vector<Watchpoints::Event> events_;
    std::optional<Words> words_;  ///< when it was looked at last, before anything had happened
};

}  // namespace busfare::recorder
