#include "session.h"

#include <unistd.h>

#include <chrono>
#include <exception>
#include <thread>

#include "facts.h"
#include "message.h"
#include "messages.h"
#include "own_calls.h"
#include "threads.h"

namespace busfare::recorder {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kLongestFinish = std::chrono::seconds(20);
constexpr double kWriterNap = 0.05;  // seconds; address rings hold more than that brings

std::atomic<Session*> g_session{nullptr};

}  // namespace

Session::Session(const CuptiLibrary& cupti, Options options, std::unique_ptr<Journal> journal)
    : cupti_(cupti),
      clock_(cupti),
      options_(std::move(options)),
      pool_(options_.buffer_bytes, options_.buffer_limit),
      opened_(journal != nullptr),
      kept_(opened_ ? std::move(journal) : std::make_unique<Journal>()),
      journal_(*kept_),
      decoder_(cupti, journal_, windows_, options_),
      kinds_(cupti, options_.cupti_kinds()),
      calls_(cupti, options_, clock_, [this] { pool_.wake(); }),
      gate_(options_.nvtx_range) {}

void Session::start(bool late) {
    if (g_session.load()) return;
    Options options = options_from_environment();
    if (options.output.empty()) return;
    std::string why;
    const CuptiLibrary* cupti = load_cupti(options.cupti, options.trust_cupti, &why);
    if (!cupti) return say(why.c_str());
    auto session = std::unique_ptr<Session>(
        new Session(*cupti, std::move(options), EarlyRecording::take(TraceClock(*cupti).is_system())));
    if (!session->open(late)) return;
    // From here on threads and CUPTI may hold the session: it stays, idle if the rest fails.
    Session* const started = session.release();
    g_session.store(started);
    if (!started->run_threads() || !started->subscribe()) {
        g_session.store(nullptr);
        return started->abandon();
    }
    wake_for_messages([started] { started->pool_.wake(); });
}

void Session::abandon() {
    ::unlink(journal_.path().c_str());
    const std::lock_guard lock(state_mutex_);
    finish_requested_ = true;
    state_changed_.notify_all();
}

bool Session::open(bool late) {
    FileHeader header;
    header.process = static_cast<uint64_t>(getpid());
    header.wall_clock_ns = TraceClock::system_ns();
    cupti_.timestamp(&header.trace_clock_ns);  // not for the first time, which takes long
    if (!opened_ && !journal_.open(options_.output, header)) {
        sayf("cannot write %s (%s), so nothing is recorded", journal_.path().c_str(),
             journal_.error().c_str());
        return false;
    }
    state_facts(journal_, options_, &cupti_);
    if (late) state_devices(journal_);
    flush_requested_ = true;
    return true;
}

bool Session::subscribe() {
    const CUptiResult subscribed = cupti_.subscribe(&subscriber_, &Session::on_callback, this);
    if (subscribed != CUPTI_SUCCESS) {
        const char* text = "";
        cupti_.result_string(subscribed, &text);
        sayf(subscribed == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED
                 ? "another profiler holds CUPTI in this process (%s), so nothing is recorded"
                 : "CUPTI cannot be used here (%s), so nothing is recorded",
             text);
        return false;
    }
    // The writer hands buffers back zeroed, so that the program's threads need not clear them.
    uint8_t zeroed = 1;
    size_t size = sizeof zeroed;
    cupti_.set_attribute(CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER, &size, &zeroed);
    if (cupti_.set_thread_id_type) cupti_.set_thread_id_type(CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM);
    std::string why = "CUPTI gives no buffers here, so nothing is recorded";
    if (cupti_.register_callbacks(&Session::on_request, &Session::on_complete) != CUPTI_SUCCESS ||
        !kinds_.enable_setting(&why)) {
        say(why.c_str());
        return false;
    }
    watch(CUPTI_DRIVER_TRACE_CBID_cuMemAllocManaged);
    kinds_.enable_calls(true);
    calls_.subscribe(subscriber_, true);
    if (options_.capture == Capture::kNvtxRange) gate_.subscribe(cupti_, subscriber_);
    if (options_.capture == Capture::kProfilerCalls) {
        watch(CUPTI_DRIVER_TRACE_CBID_cuProfilerStart);
        watch(CUPTI_DRIVER_TRACE_CBID_cuProfilerStop);
    }
    if (options_.capture == Capture::kWhole && options_.delay_seconds <= 0) operations(true);
    return true;
}

void Session::watch(CUpti_CallbackId call) const {
    cupti_.enable_callback(1, subscriber_, CUPTI_CB_DOMAIN_DRIVER_API, call);
}

bool Session::run_threads() {
    try {
        pool_.prepare();
        start_thread("busfare-writer", [this] { write_until_finished(); });
        start_thread("busfare-clock", [this] { keep_time(); });
        return true;
    } catch (const std::exception& error) {
        sayf("cannot start a thread (%s), so nothing is recorded", error.what());
        return false;
    }
}

void Session::operations(bool on) {
    const std::lock_guard lock(switch_mutex_);
    if (recording_ == on || (on && over_ != Over::kNo)) return;
    recording_ = on;
    windows_.switch_to(on, clock_.now());
    calls_.switch_to(on);
    kinds_.enable_operations(on);
}

/// For good.
void Session::stop() {
    operations(false);
    kinds_.enable_calls(false);
    if (subscriber_) calls_.subscribe(subscriber_, false);
}

void Session::flush_cupti(bool forced) {
    cupti_.flush_all(forced ? CUPTI_ACTIVITY_FLAG_FLUSH_FORCED : 0);
}

void Session::keep_time() {
    const auto started = Clock::now();
    const auto seconds = [](double value) {
        return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(value));
    };
    auto next_flush = started + seconds(options_.flush_seconds);
    const auto begin = started + seconds(options_.delay_seconds);
    const auto end = begin + seconds(options_.duration_seconds);
    bool begun = options_.capture != Capture::kWhole || options_.delay_seconds <= 0;
    std::unique_lock lock(state_mutex_);
    while (!finish_requested_) {
        auto wake = next_flush;
        if (!begun) wake = std::min(wake, begin);
        if (options_.duration_seconds > 0 && over_ == Over::kNo) wake = std::min(wake, end);
        state_changed_.wait_until(lock, wake, [this] { return finish_requested_; });
        lock.unlock();
        const auto now = Clock::now();
        if (!begun && now >= begin) {
            begun = true;
            operations(true);
        }
        if (options_.duration_seconds > 0 && now >= end && over_ == Over::kNo) {
            stop();
            over_ = Over::kDuration;
        }
        if (now >= next_flush) {
            clock_.check();
            flush_cupti(false);
            flush_requested_ = true;
            pool_.wake();
            next_flush = now + seconds(options_.flush_seconds);
        }
        lock.lock();
    }
    lock.unlock();
    flush_cupti(true);
    stop();
    lock.lock();
    clock_done_ = true;
    state_changed_.notify_all();
}

void Session::write_once(bool everything) {
    const auto lose = [this](Loss loss, uint64_t count) {
        if (count > 0) journal_.append(TableId::kLosses, {static_cast<uint64_t>(loss), clock_.now(), count});
    };
    const auto drain_notes = [&] {
        lose(Loss::kNoteRingFull, Notes::drain([this](const Note& note, const Note* fingerprint) {
                 decoder_.note(note, fingerprint);
             }));
    };
    drain_notes();
    while (const std::optional<FullBuffer> buffer = pool_.take()) {
        if (over_ != Over::kFailed) decoder_.decode(*buffer);
        pool_.give_back(buffer->data, buffer->bytes);
        drain_notes();
    }
    lose(Loss::kNoBuffer, pool_.refused());
    windows_.drain(
        [this](uint64_t time, bool on) { journal_.append(TableId::kWindows, {time, on ? 1u : 0u}); });
    lose(Loss::kStacksFull, calls_.stacks().write(journal_));
    write_communicators(journal_);
    if (everything) journal_.flush();
    pool_.prepare();
}

void Session::write_until_finished() {
    for (bool done = false; !done;) {
        pool_.wait(kWriterNap);
        {
            const std::lock_guard lock(state_mutex_);
            done = clock_done_;
        }
        // The program's memory may run out; that is no reason to end it here.
        try {
            write_once(flush_requested_.exchange(false));
        } catch (const std::exception& error) {
            give_up(error.what());
        }
        if (journal_.failed()) give_up(journal_.error().c_str());
    }
    closed_ = true;
    try {
        const EndReason reason = over_ == Over::kDuration ? EndReason::kDuration : EndReason::kProgramExit;
        if (over_ != Over::kFailed) journal_.finish(reason, clock_.now());
    } catch (const std::exception& error) {
        give_up(error.what());
    }
    const std::lock_guard lock(state_mutex_);
    writer_done_ = true;
    state_changed_.notify_all();
}

void Session::give_up(const char* why) {
    if (over_.exchange(Over::kFailed) == Over::kFailed) return;
    sayf("cannot write %s any more (%s), so recording stops; what is there stays readable",
         journal_.path().c_str(), why);
    stop();
}

void Session::finish() {
    Session* const session = g_session.load();
    if (!session) return;
    std::unique_lock lock(session->state_mutex_);
    session->finish_requested_ = true;
    session->state_changed_.notify_all();
    if (!session->state_changed_.wait_for(lock, kLongestFinish, [&] { return session->writer_done_; })) {
        say("CUPTI did not give its last records in 20 s; the recording ends at its last flush");
    }
}

bool Session::recording() {
    return g_session.load() != nullptr;
}

void Session::end() {
    finish();
    Session* const session = g_session.exchange(nullptr);
    if (session && session->cupti_.unsubscribe) session->cupti_.unsubscribe(session->subscriber_);
}

void Session::forget_in_child() {
    g_session.store(nullptr);
}

void Session::on_request(uint8_t** buffer, size_t* bytes, size_t* records) {
    Session* const session = g_session.load(std::memory_order_acquire);
    *records = 0;
    *buffer = session && !session->closed_ ? session->pool_.request() : nullptr;
    *bytes = *buffer ? session->pool_.buffer_bytes() : 0;
}

void Session::on_complete(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t used) {
    Session* const session = g_session.load(std::memory_order_acquire);
    if (session && buffer) session->pool_.complete(buffer, used);
}

void Session::on_callback(void* session, CUpti_CallbackDomain domain, CUpti_CallbackId call,
                          const void* data) {
    auto& self = *static_cast<Session*>(session);
    if (g_session.load(std::memory_order_relaxed) != session) return;  // a forked child
    try {
        if (domain != CUPTI_CB_DOMAIN_NVTX) {
            return self.on_call(call, *static_cast<const CUpti_CallbackData*>(data));
        }
        const NvtxGate::Change change = self.gate_.note(call, data);
        if (change != NvtxGate::Change::kNone) self.operations(change == NvtxGate::Change::kOpened);
    } catch (const std::exception& error) {
        sayf("a call went unrecorded (%s)", error.what());
    }
}

void Session::on_call(CUpti_CallbackId call, const CUpti_CallbackData& data) {
    if (RecorderCalls::active()) return;
    calls_.note(call, data);
    if (data.callbackSite != CUPTI_API_EXIT) return;
    switch (call) {
        case CUPTI_DRIVER_TRACE_CBID_cuMemAllocManaged: {
            const std::lock_guard lock(switch_mutex_);
            if (!managed_) kinds_.enable_managed();
            managed_ = true;
            return;
        }
        case CUPTI_DRIVER_TRACE_CBID_cuProfilerStart:
        case CUPTI_DRIVER_TRACE_CBID_cuProfilerStop:
            if (options_.capture == Capture::kProfilerCalls)
                operations(call == CUPTI_DRIVER_TRACE_CBID_cuProfilerStart);
            return;
        default:
            return;
    }
}

}  // namespace busfare::recorder
