#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

namespace busfare::recorder {

/// A buffer that CUPTI has filled.
struct FullBuffer {
    uint8_t* data;
    size_t bytes;
};

/// Buffers that go round: to CUPTI zeroed, back full, to the writer, and to CUPTI again.
///
/// No more than `limit` exist. Fresh ones are faulted in by `prepare`, off the program's threads, so that a
/// program's thread which asks for one finds it ready.
class BufferPool {
  public:
    BufferPool(size_t buffer_bytes, size_t limit) : buffer_bytes_(buffer_bytes), limit_(limit) {}

    size_t buffer_bytes() const { return buffer_bytes_; }

    /// A zeroed buffer; waits for the writer up to a fifth of a second when all are full. Null after that, or
    /// when the machine has no memory: CUPTI then drops records, and says how many.
    uint8_t* request();

    /// Takes a filled buffer from CUPTI.
    void complete(uint8_t* data, size_t bytes);

    /// The oldest filled buffer, if there is one.
    std::optional<FullBuffer> take();

    /// Zeroes the first `used` bytes and puts the buffer back into the round.
    void give_back(uint8_t* data, size_t used);

    /// Sees to it that a few buffers stand ready.
    void prepare();

    /// Waits until a buffer is full, `wake` was called, or `seconds` have passed.
    void wait(double seconds);
    void wake();

    /// Buffers that were asked for and not to be had, since the last call.
    uint64_t refused();

  private:
    uint8_t* allocate();

    const size_t buffer_bytes_;
    const size_t limit_;
    std::mutex mutex_;
    std::condition_variable work_;
    std::condition_variable free_again_;
    std::vector<uint8_t*> free_;
    std::deque<FullBuffer> full_;
    size_t made_ = 0;
    bool woken_ = false;
    bool starved_ = false;
    uint64_t refused_ = 0;
};

}  // namespace busfare::recorder
