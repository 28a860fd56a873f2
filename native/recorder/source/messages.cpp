#include "messages.h"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <vector>

#include "facts.h"
#include "message.h"
#include "options.h"
#include "threads.h"
#include "trace_clock.h"

namespace busfare::recorder {
namespace {

constexpr auto kNap = std::chrono::milliseconds(50);
constexpr auto kLongestFinish = std::chrono::seconds(20);

struct Early {
    std::unique_ptr<Journal> journal = std::make_unique<Journal>();
    double flush_seconds = 1.0;
    std::mutex mutex;
    std::condition_variable changed;
    bool ending = false;  ///< to end
    bool awake = false;
    bool done = false;
};

std::atomic<Early*> g_early{nullptr};
std::atomic<bool> g_on{false};  ///< somebody drains the notes
std::atomic<const std::function<void()>*> g_wake{nullptr};
std::mutex g_start;
bool g_taken = false;  ///< a session has them now, or will

struct Named {
    uint32_t number;
    std::string name, members;
    int32_t place, size;
};
std::mutex g_names_mutex;
std::vector<Named>& names() {
    static auto* const names = new std::vector<Named>;
    return *names;
}

void drain(Journal& journal) {
    const uint64_t lost = Notes::drain([&](const Note& note, const Note*) { write_message(journal, note); });
    if (lost > 0) {
        journal.append(TableId::kLosses,
                       {static_cast<uint64_t>(Loss::kNoteRingFull), TraceClock::system_ns(), lost});
    }
    write_communicators(journal);
}

void write_until_end(Early& early) {
    auto flushed = std::chrono::steady_clock::now();
    for (bool ending = false; !ending;) {
        {
            std::unique_lock lock(early.mutex);
            early.changed.wait_for(lock, kNap, [&] { return early.ending || early.awake; });
            ending = early.ending;
            early.awake = false;
        }
        try {
            drain(*early.journal);
            const auto now = std::chrono::steady_clock::now();
            if (now - flushed >= std::chrono::duration<double>(early.flush_seconds)) {
                early.journal->flush();
                flushed = now;
            }
        } catch (const std::exception&) {
            g_on = false;  // the program's memory ran out, which is no reason to end it here
        }
        if (early.journal->failed()) g_on = false;
    }
    const std::lock_guard lock(early.mutex);
    early.done = true;
    early.changed.notify_all();
}

/// Ends the thread; false when it did not come to its end.
bool stop(Early& early) {
    std::unique_lock lock(early.mutex);
    early.ending = true;
    early.changed.notify_all();
    return early.changed.wait_for(lock, kLongestFinish, [&] { return early.done; });
}

void push(const BusfareMessage* message) {
    if (!g_on.load(std::memory_order_relaxed) || recorder_thread()) return;
    static const Notes notes([] {
        const std::function<void()>* const wake = g_wake.load();
        wake ? (*wake)() : EarlyRecording::wake();
    });
    Note note{};
    note.what = Note::What::kMessage;
    note.start = message->start;
    note.end = message->end;
    note.correlation = static_cast<uint32_t>(message->tag);
    note.result = static_cast<uint32_t>(message->result);
    note.first = message->bytes;
    note.second = message->request;
    note.third = reinterpret_cast<uint64_t>(message->name);
    note.context = message->communicator;
    note.stream = static_cast<uint32_t>(message->peer);
    notes.push(note);
}

void name_communicator(const BusfareCommunicator* made) {
    const std::lock_guard lock(g_names_mutex);
    names().push_back({made->number, made->name, made->members, made->place, made->size});
}

constexpr BusfareMessageSink kSink{push, name_communicator};

uint64_t signed_column(uint32_t value) {
    return static_cast<uint64_t>(static_cast<int64_t>(static_cast<int32_t>(value)));
}

}  // namespace

bool EarlyRecording::start() {
    const std::lock_guard lock(g_start);
    if (g_on || g_taken) return true;
    const Options options = options_from_environment();
    if (options.output.empty() || !(options.kinds & kMessages)) return false;
    auto early = std::make_unique<Early>();
    FileHeader header;
    header.process = static_cast<uint64_t>(getpid());
    header.wall_clock_ns = header.trace_clock_ns = TraceClock::system_ns();
    if (!early->journal->open(options.output, header)) {
        sayf("cannot write %s (%s), so no MPI or NCCL call is recorded", early->journal->path().c_str(),
             early->journal->error().c_str());
        return false;
    }
    state_facts(*early->journal, options, nullptr);
    early->journal->flush();
    early->flush_seconds = options.flush_seconds;
    Early* const started = early.release();
    start_thread("busfare-early", [started] { write_until_end(*started); });
    g_early = started;
    g_on = true;
    return true;
}

std::unique_ptr<Journal> EarlyRecording::take(bool same_clock) {
    const std::lock_guard lock(g_start);
    g_taken = true;
    Early* const early = g_early.exchange(nullptr);
    if (!early || !stop(*early)) return nullptr;
    if (same_clock && !early->journal->failed()) return std::move(early->journal);
    early->journal->finish(EndReason::kProgramExit, TraceClock::system_ns());
    return nullptr;
}

void EarlyRecording::wake() {
    if (Early* const early = g_early.load()) {
        const std::lock_guard lock(early->mutex);
        early->awake = true;
        early->changed.notify_all();
    }
}

void EarlyRecording::finish() {
    take(false);
}

void EarlyRecording::forget_in_child() {
    g_on = false;
    g_early = nullptr;
}

void write_message(Journal& journal, const Note& note) {
    const uint64_t name = journal.string(reinterpret_cast<const char*>(note.third));
    journal.append(
        TableId::kMessages,
        {note.start, note.end > note.start ? note.end - note.start : 0, note.thread, name, note.context,
         note.first, signed_column(note.stream), signed_column(note.correlation), note.second, note.result});
}

void write_communicators(Journal& journal) {
    std::vector<Named> some;
    {
        const std::lock_guard lock(g_names_mutex);
        some.swap(names());
    }
    for (const Named& named : some) {
        const uint64_t name = journal.string(named.name), members = journal.string(named.members);
        journal.append(TableId::kCommunicators,
                       {named.number, name, members, signed_column(static_cast<uint32_t>(named.place)),
                        signed_column(static_cast<uint32_t>(named.size))});
    }
}

void wake_for_messages(std::function<void()> wake_writer) {
    g_wake = new std::function<void()>(std::move(wake_writer));
    g_on = true;
}

}  // namespace busfare::recorder

extern "C" [[gnu::visibility("default")]] const BusfareMessageSink* busfare_message_sink() {
    using namespace busfare::recorder;
    try {
        if (!EarlyRecording::start()) return nullptr;
        static const bool registered = [] {
            std::atexit(EarlyRecording::finish);
            pthread_atfork(nullptr, nullptr, EarlyRecording::forget_in_child);
            return true;
        }();
        (void)registered;
        return &kSink;
    } catch (...) {
        return nullptr;
    }
}
