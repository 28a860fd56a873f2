#include "note.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

namespace busfare::recorder {
namespace {

constexpr size_t kRows = 16384;
constexpr size_t kWakeAt = kRows / 4;  // a busy thread fills the rest in some milliseconds
constexpr auto kLongestWait = std::chrono::milliseconds(200);
constexpr auto kNap = std::chrono::microseconds(100);

struct Ring {
    alignas(64) std::atomic<uint64_t> written{0};
    uint64_t read_seen = 0;  ///< the writing thread's last look at `read`
    bool starved = false;    ///< waiting was in vain at `read_seen`
    uint32_t thread = 0;
    alignas(64) std::atomic<uint64_t> read{0};
    Note fingerprint{};  ///< taken out, and its copy not yet
    bool has_fingerprint = false;
    alignas(64) std::atomic<uint64_t> lost{0};
    std::array<Note, kRows> rows;
};

/// Rings outlive their threads and are handed to later ones: their number is that of threads alive at once.
struct Rings {
    std::mutex mutex;
    std::vector<Ring*> all;
    std::vector<Ring*> unused;
};

Rings& rings() {
    static Rings* const rings = new Rings;  // never destroyed: threads may outlive static objects
    return *rings;
}

void release_ring(void* ring) {
    Rings& every = rings();
    const std::lock_guard lock(every.mutex);
    every.unused.push_back(static_cast<Ring*>(ring));
}

pthread_key_t release_key() {
    static const pthread_key_t key = [] {
        pthread_key_t made{};
        pthread_key_create(&made, release_ring);
        return made;
    }();
    return key;
}

thread_local Ring* t_ring = nullptr;

Ring& ring_of_thread() {
    if (t_ring) return *t_ring;
    Rings& every = rings();
    const std::lock_guard lock(every.mutex);
    if (!every.unused.empty()) {
        t_ring = every.unused.back();
        every.unused.pop_back();
    } else {
        t_ring = new Ring;
        every.all.push_back(t_ring);
    }
    t_ring->thread = static_cast<uint32_t>(::syscall(SYS_gettid));
    pthread_setspecific(release_key(), t_ring);
    return *t_ring;
}

/// Whether there is room for `rows` more, after waiting for it if need be.
bool make_room(Ring& ring, size_t rows, const std::function<void()>& wake_writer) {
    const uint64_t at = ring.written.load(std::memory_order_relaxed);
    if (at + rows - ring.read_seen <= kRows) return true;
    const uint64_t before = ring.read_seen;
    const auto room = [&] {
        ring.read_seen = ring.read.load(std::memory_order_acquire);
        return at + rows - ring.read_seen <= kRows;
    };
    if (room()) return true;
    if (ring.starved && ring.read_seen == before) return false;
    const auto end = std::chrono::steady_clock::now() + kLongestWait;
    do {
        wake_writer();
        std::this_thread::sleep_for(kNap);
        if (room()) {
            ring.starved = false;
            return true;
        }
    } while (std::chrono::steady_clock::now() < end);
    ring.starved = true;
    return false;
}

}  // namespace

void Notes::fetch_next_row() {
    constexpr int kToWrite = 1;
    if (const Ring* const ring = t_ring)
        __builtin_prefetch(&ring->rows[ring->written.load(std::memory_order_relaxed) % kRows], kToWrite);
}

void Notes::push(Note& note, const Note* fingerprint) const {
    Ring& ring = ring_of_thread();
    note.thread = ring.thread;
    const size_t count = fingerprint ? 2 : 1;
    if (!make_room(ring, count, wake_writer_)) {
        ring.lost.fetch_add(1, std::memory_order_relaxed);
        return;
    }
    uint64_t at = ring.written.load(std::memory_order_relaxed);
    if (fingerprint) ring.rows[at++ % kRows] = *fingerprint;
    ring.rows[at++ % kRows] = note;
    ring.written.store(at, std::memory_order_release);
    if (at % kWakeAt < count) wake_writer_();
}

uint64_t Notes::drain(const std::function<void(const Note&, const Note*)>& take) {
    Rings& every = rings();
    std::vector<Ring*> all;
    {
        const std::lock_guard lock(every.mutex);
        all = every.all;
    }
    uint64_t lost = 0;
    for (Ring* ring : all) {
        const uint64_t end = ring->written.load(std::memory_order_acquire);
        for (uint64_t at = ring->read.load(std::memory_order_relaxed); at != end;) {
            const Note& note = ring->rows[at++ % kRows];
            if (note.what == Note::What::kFingerprint) {
                ring->fingerprint = note;
                ring->has_fingerprint = true;
            } else {
                take(note, ring->has_fingerprint ? &ring->fingerprint : nullptr);
                ring->has_fingerprint = false;
            }
            // In steps, so that a thread that waits for room gets it soon.
            if (at % 256 == 0 || at == end) ring->read.store(at, std::memory_order_release);
        }
        lost += ring->lost.exchange(0, std::memory_order_relaxed);
    }
    return lost;
}

}  // namespace busfare::recorder
