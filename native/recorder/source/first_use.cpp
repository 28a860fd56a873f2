#include "first_use.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <exception>
#include <fstream>

#include "message.h"
#include "threads.h"

namespace busfare::recorder {
namespace {

using What = Watchpoints::Event::What;

constexpr uint64_t kLongestWatch = 2'000'000'000;  // ns behind the copy's call
constexpr auto kLongestSetting = std::chrono::milliseconds(500);
constexpr auto kLongestStop = std::chrono::seconds(1);
constexpr int kLookEvery = 5;  // ms
constexpr int kReadings = 5;
constexpr auto kPrepareEvery = std::chrono::milliseconds(50);
constexpr uint64_t kRestFor = 100;          // times as long as setting took
constexpr size_t kMostDestinations = 1024;  // whose samples are counted

uint64_t monotonic_ns() {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

/// From CLOCK_MONOTONIC to the trace's clock now (the system's time may be set), by the quickest of some
/// readings: the thread may have to wait for a processor between two clocks.
uint64_t shift_to(const TraceClock& clock) {
    uint64_t least = ~uint64_t{0}, shift = 0;
    for (int attempt = 0; attempt < kReadings; ++attempt) {
        const uint64_t before = monotonic_ns(), trace = clock.now(), after = monotonic_ns();
        if (after - before >= least) continue;
        least = after - before;
        shift = trace - (before + least / 2);
    }
    return shift;
}

/// Whether the page at an address holds bytes; also where the kernel does not say.
bool holds_bytes(uint64_t address) {
    constexpr uint64_t kThere = uint64_t{3} << 62;  // in memory or swapped out
    const int pages = ::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    uint64_t page = 0;
    const auto at =
        static_cast<off_t>(address / static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)) * sizeof page);
    const bool read = ::pread(pages, &page, sizeof page, at) == sizeof page;
    ::close(pages);
    return !read || page & kThere;
}

/// What the process has handed to `write` and its like, so far; 0 where the kernel does not say.
uint64_t written_bytes() {
    std::ifstream file("/proc/self/io");
    uint64_t bytes = 0;
    for (std::string word; file >> word;) {
        if (word == "wchar:") file >> bytes;
    }
    return bytes;
}

/// Different each time, the same in every run.
uint64_t scattered(uint64_t number) {
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9u;
    number = (number ^ number >> 27) * 0x94D049BB133111EBu;
    return number ^ number >> 31;
}

/// The largest piece at `at` that ends by `end`.
Watchpoints::Piece piece_at(uint64_t at, uint64_t end) {
    uint64_t bytes = 8;
    while (at % bytes != 0 || at + bytes > end) bytes /= 2;
    return {at, bytes};
}

/// Small destinations from their beginning on; of larger ones the first word, the last, and two in between.
std::vector<Watchpoints::Piece> pieces_of(uint64_t from, uint64_t bytes, uint64_t seed) {
    std::vector<Watchpoints::Piece> pieces;
    const uint64_t end = from + bytes;
    if (bytes <= 8 * Watchpoints::kMostPieces) {
        for (uint64_t at = from; at < end && pieces.size() < Watchpoints::kMostPieces;
             at += pieces.back().bytes)
            pieces.push_back(piece_at(at, end));
        return pieces;
    }
    const uint64_t first = (from + 7) & ~uint64_t{7}, words = (end - first) / 8;
    std::array<uint64_t, Watchpoints::kMostPieces> places = {0, words - 1};
    for (size_t at = 2; at < places.size(); ++at) places[at] = scattered(seed * places.size() + at) % words;
    std::ranges::sort(places);
    for (const uint64_t place : places) {
        if (pieces.empty() || pieces.back().address != first + 8 * place)
            pieces.push_back({first + 8 * place, 8});
    }
    return pieces;
}

/// The program may end its threads; none may end while it waits in here.
class NotCancelled {
  public:
    NotCancelled() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
    ~NotCancelled() { pthread_setcancelstate(before_, nullptr); }
    NotCancelled(const NotCancelled&) = delete;
    NotCancelled& operator=(const NotCancelled&) = delete;

  private:
    int before_ = 0;
};

}  // namespace

bool FirstUse::Watch::is_there() const {
    constexpr uint64_t kLooks = 8;
    for (uint64_t at = 0; at < kLooks; ++at) {
        if (!holds_bytes(destination + (bytes - 1) / (kLooks - 1) * at)) return false;
    }
    return holds_bytes(destination + bytes - 1);
}

std::optional<FirstUse::Words> FirstUse::Watch::words() const {
    // By a call that fails where the memory is gone. It would map pages of zeros where there are none yet.
    Words words{};
    iovec to{words.data(), words.size() * sizeof(uint64_t)};
    std::array<iovec, Watchpoints::kMostPieces> from{};
    size_t bytes = 0;
    for (size_t at = 0; at < pieces.size(); ++at) {
        if (!holds_bytes(pieces[at].address)) return std::nullopt;
        from[at] = {reinterpret_cast<void*>(pieces[at].address), pieces[at].bytes};
        bytes += pieces[at].bytes;
    }
    const ssize_t read = ::process_vm_readv(::getpid(), &to, 1, from.data(), pieces.size(), 0);
    if (read != static_cast<ssize_t>(bytes) || words == Words{}) return std::nullopt;
    return words;
}

void FirstUse::start() {
    std::unique_lock lock(mutex_);
    start_thread("busfare-watch", [this] {
        try {
            run();
        } catch (const std::exception& error) {
            const std::lock_guard ended(mutex_);
            said_ = error.what();
            state_ = State::kOff;
        }
    });
    changed_.wait_for(lock, kLongestSetting, [this] { return !said_.empty(); });
    // By this thread: that one has closed standard error, for itself.
    if (!said_.empty() && state_ == State::kOff)
        sayf("first uses cannot be seen here (%s); the rest is recorded", said_.c_str());
}

bool FirstUse::wanted(uint64_t destination, uint64_t bytes) {
    if (sampled_.size() >= kMostDestinations) sampled_.clear();
    Sampled& sampled = sampled_[destination * 31 + bytes];
    if (sampled.seen++ % (sampled.taken + 1) != 0) return false;
    ++sampled.taken;
    return true;
}

void FirstUse::enter(const CopyCall* copy, const Note& addresses, uint32_t correlation) {
    const State state = state_.load(std::memory_order_acquire);
    if (state == State::kWatching) {
        const std::lock_guard lock(mutex_);
        if (!copy) return end(End::kFreed);
        if (now_.holds(addresses.two, addresses.three)) return end(End::kCopiedOver);
        if (now_.holds(addresses.one, addresses.three)) return end(End::kSent);
    }
    if (state != State::kIdle || !copy || !copy->to_host || addresses.three == 0 || addresses.two == 0)
        return;
    const uint64_t asked = monotonic_ns();
    if (asked < next_.load(std::memory_order_relaxed)) return;
    const NotCancelled here;
    std::unique_lock lock(mutex_);
    if (state_ != State::kIdle || !wanted(addresses.two, addresses.three)) return;
    now_ = {
        .correlation = correlation, .destination = addresses.two, .bytes = addresses.three, .asked = asked};
    returned_ = ended_ = 0;
    words_.reset();
    state_ = State::kAsked;
    changed_.notify_all();
    changed_.wait_for(lock, kLongestSetting, [this] { return state_ != State::kAsked; });
    // Still 0 where the watchpoints come too late for the copy.
    if (state_ != State::kAsked) now_.set = monotonic_ns();
    next_ = asked + kRestFor * (monotonic_ns() - asked);
}

void FirstUse::leave(uint32_t correlation) {
    if (state_.load(std::memory_order_acquire) != State::kWatching) return;
    const std::lock_guard lock(mutex_);
    if (now_.correlation == correlation) returned_ = monotonic_ns();
}

void FirstUse::end(End how) {
    if (state_ != State::kWatching || ended_ != 0) return;
    how_ = how;
    ended_ = monotonic_ns();
}

void FirstUse::stop() {
    if (state_ == State::kOff) return;
    const NotCancelled here;
    std::unique_lock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
    changed_.wait_for(lock, kLongestStop, [this] { return state_ == State::kOff; });
}

void FirstUse::run() {
    std::string why;
    const bool can = points_.begin(&why);
    if (can) points_.prepare();
    std::unique_lock lock(mutex_);
    said_ = !can ? why : points_.see_system_calls() ? "program and system calls" : "program";
    if (can) state_ = State::kIdle;
    changed_.notify_all();
    if (!can) return;
    while (!stopping_) {
        const auto wanted = [this] { return stopping_ || state_ == State::kAsked; };
        if (!changed_.wait_for(lock, kPrepareEvery, wanted)) prepare(lock);
        if (state_ != State::kAsked) continue;
        now_.pieces = pieces_of(now_.destination, now_.bytes, now_.correlation);
        now_.watched_bytes = 0;
        if (!points_.see_system_calls()) now_.written = written_bytes();
        for (const Watchpoints::Piece& piece : now_.pieces) now_.watched_bytes += piece.bytes;
        lock.unlock();
        const bool set = points_.set(now_.pieces);
        lock.lock();
        state_ = State::kWatching;
        changed_.notify_all();
        lock.unlock();
        if (set) watch();
        points_.clear();
        look();
        lock.lock();
        set ? judge(returned_, monotonic_ns()) : void(now_.ended = End::kLostSight);
        events_.clear();
        if (now_.end == 0) now_.end = monotonic_ns();
        done_.push_back(now_);
        state_ = State::kIdle;
    }
    points_.end();
    state_ = State::kOff;
    changed_.notify_all();
}

/// Looks for new threads while the program does not wait for it.
void FirstUse::prepare(std::unique_lock<std::mutex>& lock) {
    lock.unlock();
    points_.prepare();
    lock.lock();
}

/// Until something has become of the destination.
void FirstUse::watch() {
    for (bool over = false; !over;) {
        points_.wait(kLookEvery);
        look();
        const uint64_t returned = returned_, now = monotonic_ns();
        over = stopping_ || ended_ != 0 || (returned != 0 && now > returned + kLongestWatch);
        for (const Watchpoints::Event& event : events_) over |= meaning(event, returned).has_value();
    }
}

/// Takes what happened since the last time.
void FirstUse::look() {
    const uint64_t returned = returned_;
    take();
    std::erase_if(events_, [&](const Watchpoints::Event& event) {
        return event.what == What::kMapped && (returned == 0 || event.time <= returned);
    });
    while (const size_t mapped = mappings()) {
        const bool there = now_.is_there();
        const std::optional<Words> words = now_.words();
        take();  // what was touched before this saw the pages
        if (mappings() != mapped) continue;
        if (there) judge_mappings(words);
        break;
    }
    const bool ended =
        std::ranges::any_of(events_, [&](const auto& event) { return meaning(event, returned).has_value(); });
    if (!ended && returned != 0) words_ = now_.words();
}

void FirstUse::take() {
    points_.drain([this](const Watchpoints::Event& event) {
        if (event.what != What::kMapped || now_.holds(event.address, event.bytes)) events_.push_back(event);
    });
}

size_t FirstUse::mappings() const {
    return static_cast<size_t>(
        std::ranges::count_if(events_, [](const auto& event) { return event.what == What::kMapped; }));
}

/// Memory that is mapped beside the destination's may become one with it: then the copy's bytes are still
/// there. New memory in its place has none before it is touched. Where it was touched since, the words that
/// are watched tell; without them, nothing is said.
void FirstUse::judge_mappings(const std::optional<Words>& words) {
    uint64_t touched = 0;
    for (const Watchpoints::Event& event : events_) {
        if (event.what == What::kTouched) touched = std::max(touched, event.time);
    }
    const bool known = words && words_;
    const bool same = known && *words == *words_;
    std::erase_if(events_, [&](Watchpoints::Event& event) {
        if (event.what != What::kMapped) return false;
        if (same || (!known && touched < event.time)) return true;
        event.what = What::kMissed;
        return false;
    });
}

/// How an event ends the watch of a copy whose call returned then (0: not yet), if it does.
std::optional<FirstUse::End> FirstUse::meaning(const Watchpoints::Event& event, uint64_t returned) const {
    switch (event.what) {
        case What::kTouched:
            // While its call lasts, the driver may touch the destination.
            return returned != 0 && event.time > returned ? std::optional(End::kTouched) : std::nullopt;
        case What::kMapped:
            return End::kFreed;
        default:
            return End::kLostSight;
    }
}

/// What came first.
void FirstUse::judge(uint64_t returned, uint64_t now) {
    now_.end = now;
    now_.ended = stopping_ ? End::kStopped : End::kTooLong;
    if (ended_ != 0) now_.end = ended_, now_.ended = how_;
    for (const Watchpoints::Event& event : events_) {
        const std::optional<End> how = meaning(event, returned);
        if (!how || event.time >= now_.end) continue;
        now_.end = event.time;
        now_.ended = *how;
        now_.thread = event.thread;
        now_.address = event.address;
    }
    const bool may_be_written = !points_.see_system_calls() && written_bytes() - now_.written >= now_.bytes;
    if (now_.set == 0 || returned == 0 || may_be_written) now_.ended = End::kLostSight;
}

void FirstUse::write(Journal& journal) {
    std::vector<Watch> done;
    std::string said;
    {
        const std::lock_guard lock(mutex_);
        done.swap(done_);
        said.swap(said_);
    }
    if (!said.empty()) journal.fact("first_use", said);
    const uint64_t shift = shift_to(clock_);
    for (const Watch& each : done) {
        const bool touched = each.ended == End::kTouched;
        const uint64_t held = each.set > each.asked ? each.set - each.asked : 0;
        journal.append(
            TableId::kFirstUses,
            {each.correlation, each.asked + shift, each.end > each.asked ? each.end - each.asked : 0,
             static_cast<uint64_t>(each.ended), touched ? each.thread : 0, touched ? each.address : 0,
             each.watched_bytes, held ? each.asked + shift : 0, held});
    }
}

}  // namespace busfare::recorder
