// Notes of many threads: none lost while the writer keeps up, each thread's in order, fingerprints with their
// copies; and what happens when nobody writes.

#include "note.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <thread>
#include <vector>

using namespace busfare::recorder;

namespace {

void require(bool condition, const char* what) {
    if (condition) return;
    std::fprintf(stderr, "failed: %s\n", what);
    std::exit(1);
}

Note note_of(uint32_t correlation, Note::What what) {
    Note note{};
    note.correlation = correlation;
    note.what = what;
    return note;
}

void many_threads_keep_their_order() {
    constexpr uint32_t kThreads = 4, kNotes = 200'000;
    const Notes notes([] {});
    std::atomic<uint32_t> running{kThreads};
    std::vector<std::thread> threads;
    for (uint32_t thread = 0; thread < kThreads; ++thread) {
        threads.emplace_back([&] {
            for (uint32_t number = 1; number <= kNotes; ++number) {
                Note note = note_of(number, Note::What::kCopy);
                Note print = note_of(0, Note::What::kFingerprint);
                print.first = number * 7;
                notes.push(note, number % 3 == 0 ? &print : nullptr);
            }
            --running;
        });
    }
    std::map<uint32_t, uint32_t> last;
    uint64_t lost = 0;
    const auto drain = [&] {
        lost += Notes::drain([&](const Note& note, const Note* print) {
            require(note.correlation == last[note.thread] + 1,
                    "a thread's notes come in order, none missing");
            last[note.thread] = note.correlation;
            require((print != nullptr) == (note.correlation % 3 == 0),
                    "a fingerprint comes with its copy alone");
            require(!print || print->first == note.correlation * 7, "and with the right one");
        });
    };
    while (running > 0) drain();
    for (std::thread& thread : threads) thread.join();
    drain();
    require(lost == 0, "nothing is lost while the writer keeps up");
    require(last.size() == kThreads, "each thread has its number");
    for (const auto& [thread, count] : last) require(count == kNotes, "all notes arrive");
}

void a_writer_that_hangs_holds_a_thread_up_once() {
    int woken = 0;
    const Notes notes([&] { ++woken; });
    constexpr int kPushed = 40'000;
    const auto start = std::chrono::steady_clock::now();
    for (int number = 1; number <= kPushed; ++number) {
        Note note = note_of(static_cast<uint32_t>(number), Note::What::kCall);
        notes.push(note);
    }
    const auto took = std::chrono::steady_clock::now() - start;
    require(woken > 0, "the writer is called");
    require(took >= std::chrono::milliseconds(200), "the thread waits for room");
    require(took < std::chrono::seconds(20), "but not for each note");
    int arrived = 0;
    const auto count = [&] {
        return Notes::drain([&](const Note& note, const Note*) {
            require(note.thread == static_cast<uint32_t>(::syscall(SYS_gettid)), "notes bear their thread");
            ++arrived;
        });
    };
    require(static_cast<int>(count()) + arrived == kPushed, "what is lost is counted");
    Note note = note_of(1, Note::What::kCall);
    notes.push(note);
    const int before = arrived;
    require(count() == 0 && arrived == before + 1, "and afterwards all is well");
}

}  // namespace

int main() {
    many_threads_keep_their_order();
    a_writer_that_hangs_holds_a_thread_up_once();
}
