#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace busfare::recorder {

/// Hardware watchpoints on a few words of memory, in every thread of the process, by `perf_event_open`.
///
/// They change nothing that the program can see: no page is protected, no signal sent, and the descriptors
/// lie in a table of the calling thread's own. The processor notices the access, and the kernel notes it in a
/// buffer a thread. Used by one thread alone.
class Watchpoints {
  public:
    static constexpr size_t kMostPieces = 4;  ///< as many as x86 has registers for

    /// A word of 1, 2, 4 or 8 bytes, at a multiple of its size.
    struct Piece {
        uint64_t address;
        uint64_t bytes;
    };

    /// What happened while they were set. Times of CLOCK_MONOTONIC.
    struct Event {
        enum class What : uint8_t {
            kTouched,  ///< `thread` read or wrote the piece at `address`
            kMapped,   ///< new memory of so many `bytes` lies at `address`
            kBegun,    ///< a thread was started, in which none are set
            kMissed,  ///< what came after may be missing: a buffer was full, or a piece was touched too often
        };
        What what;
        uint64_t time;
        uint32_t thread;
        uint64_t address;
        uint64_t bytes;
    };

    /// Makes a table of descriptors for this thread, and tries one. False where that cannot be, and `why`.
    bool begin(std::string* why);

    /// Whether accesses of system calls are seen, and not only those of the program's own instructions.
    bool see_system_calls() const { return !exclude_kernel_; }

    /// Opens what `set` needs in the threads that there are, so that it takes less time.
    void prepare() { find_threads(); }

    /// Watches these pieces, in all threads that there are. False when that cannot be.
    bool set(std::span<const Piece> pieces);

    void clear();

    /// For good.
    void end();

    /// Waits for an event, or for so long.
    void wait(int milliseconds);

    /// Hands over what happened since the last time, one thread's events after another's.
    void drain(const std::function<void(const Event&)>& take);

  private:
    struct Watched {
        int events[kMostPieces];     ///< descriptors; -1: none
        uint32_t left[kMostPieces];  ///< accesses that are still noted
        unsigned char* buffer;
        bool set;
    };

    int open(uint32_t thread, bool first);
    bool add(uint32_t thread);
    void remove(const Watched& watched);
    bool find_threads();
    bool set(Watched& watched);
    void drain(Watched& watched, const std::function<void(const Event&)>& take);

    std::map<uint32_t, Watched> threads_;
    std::vector<Piece> pieces_;
    bool exclude_kernel_ = false;
    int stays_ = -1;
};

}  // namespace busfare::recorder
