#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "buffer_pool.h"
#include "call_watch.h"
#include "cupti_library.h"
#include "decoder.h"
#include "journal.h"
#include "kinds.h"
#include "nvtx_gate.h"
#include "options.h"
#include "trace_clock.h"
#include "windows.h"

namespace busfare::recorder {

/// The recording of this process: from the first use of CUDA to the end of the program.
///
/// Three parties. The program's threads fill CUPTI's buffers, and see this code only when a buffer is full
/// and in the callbacks of driver calls. The *writer* thread decodes, encodes and writes. The *clock* thread
/// asks CUPTI for its records every `flush_seconds` and keeps the delay and the duration.
///
/// A session is never destroyed: CUPTI may call back until the process is gone.
class Session {
  public:
    /// Starts recording when the environment asks for it; otherwise, and on any failure, does nothing more
    /// than say why on standard error.
    /// Where CUDA is in use already (`late`), CUPTI tells nothing of the devices: the driver does.
    static void start(bool late = false);

    static bool recording();

    /// The end of the program: takes CUPTI's last records and closes the file. Gives up after
    /// `kLongestFinish`.
    static void finish();

    /// The same in the middle of the program; `start` may then start another recording.
    static void end();

    /// After `fork`, in the child: forgets the recording, which stays the parent's.
    static void forget_in_child();

  private:
    /// `journal` is open already, or null.
    Session(const CuptiLibrary& cupti, Options options, std::unique_ptr<Journal> journal);

    bool open(bool late);
    bool subscribe();
    void watch(CUpti_CallbackId driver_call) const;
    bool run_threads();
    void abandon();

    void write_until_finished();
    void write_once(bool everything);
    void keep_time();
    void flush_cupti(bool forced);
    void operations(bool on);
    void stop();
    void give_up(const char* why);

    static void on_request(uint8_t** buffer, size_t* bytes, size_t* records);
    static void on_complete(CUcontext, uint32_t, uint8_t* buffer, size_t bytes, size_t used);
    static void on_callback(void* session, CUpti_CallbackDomain domain, CUpti_CallbackId call,
                            const void* data);
    void on_call(CUpti_CallbackId call, const CUpti_CallbackData& data);

    const CuptiLibrary& cupti_;
    TraceClock clock_;
    const Options options_;
    BufferPool pool_;
    const bool opened_;  ///< before: messages came first
    std::unique_ptr<Journal> kept_;
    Journal& journal_;
    Windows windows_;
    Decoder decoder_;
    Kinds kinds_;
    CallWatch calls_;
    NvtxGate gate_;
    CUpti_SubscriberHandle subscriber_ = nullptr;

    std::mutex switch_mutex_;  ///< guards the turning on and off of operations
    bool recording_ = false;
    bool managed_ = false;

    enum class Over { kNo, kDuration, kFailed };
    std::atomic<Over> over_{Over::kNo};
    std::atomic<bool> closed_{false};  ///< nobody reads buffers any more

    std::mutex state_mutex_;
    std::condition_variable state_changed_;
    bool finish_requested_ = false;
    bool clock_done_ = false;
    bool writer_done_ = false;
    std::atomic<bool> flush_requested_{false};
};

}  // namespace busfare::recorder
