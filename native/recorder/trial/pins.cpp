#include "pins.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <map>
#include <mutex>
#include <thread>

#include "driver.h"

namespace busfare::trial {
namespace {

struct Range {
    uintptr_t end;    ///< end of the pages; the key is their start
    uintptr_t first;  ///< the memory that copies use
    uintptr_t last;
    CUcontext context;
    unsigned uses;    ///< copies in progress
    unsigned copies;  ///< all copies so far
};
using Ranges = std::map<uintptr_t, Range>;

std::mutex g_mutex;  ///< guards the following, which is never destroyed: programs free memory until they end
auto& g_pinned = *new Ranges;
/// The pages of `g_pinned` and of what is being pinned. The driver frees memory under its locks, which a
/// thread with `g_mutex` may wait for: it must find here, without that, that none of it is pinned.
std::mutex g_pages_mutex;
auto& g_pages = *new Ranges;
auto& g_seen = *new std::map<uintptr_t, uintptr_t>;     ///< copied once
auto& g_refused = *new std::map<uintptr_t, uintptr_t>;  ///< the driver failed to pin it
auto& g_brief = *new std::map<uintptr_t, unsigned>;     ///< how often freed after few copies
constexpr size_t kMostSeen = 4096;
/// Memory at an address is no longer pinned once it was freed kMostBrief times after kFewCopies or fewer.
constexpr unsigned kFewCopies = 2, kMostBrief = 2;
std::atomic<uintptr_t> g_lowest{UINTPTR_MAX}, g_highest{0};  ///< of `g_pages`
std::atomic<uint64_t> g_bytes{0};
std::atomic<bool> g_may_pin{true};

uintptr_t page() {
    static const auto size = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    return size;
}

/// Notes that the pages of a range are pinned; with null, that they are no more.
void note_pages(uintptr_t begin, const Range* range) {
    const std::lock_guard lock(g_pages_mutex);
    if (range) {
        g_pages[begin] = *range;
    } else {
        g_pages.erase(begin);
    }
    g_lowest = g_pages.empty() ? UINTPTR_MAX : g_pages.begin()->first;
    g_highest = g_pages.empty() ? 0 : std::prev(g_pages.end())->second.end;
}

/// Half of the memory that was free at the first pinning.
uint64_t most_pinned() {
    static const uint64_t most = [] {
        unsigned long long kib = 0;
        if (FILE* const file = std::fopen("/proc/meminfo", "r")) {
            char line[128];
            while (std::fgets(line, sizeof line, file) &&
                   std::sscanf(line, "MemAvailable: %llu", &kib) != 1) {
            }
            std::fclose(file);
        }
        return uint64_t{kib} * 1024 / 2;
    }();
    return most;
}

/// Whether the memory is on this thread's stack, which is unmapped without a call.
bool of_stack(uintptr_t begin, uintptr_t end) {
    thread_local uintptr_t low = 0, high = 0;
    if (!high) {
        pthread_attr_t attributes;
        void* address = nullptr;
        size_t bytes = 0;
        if (pthread_getattr_np(pthread_self(), &attributes) != 0) return true;
        pthread_attr_getstack(&attributes, &address, &bytes);
        pthread_attr_destroy(&attributes);
        low = reinterpret_cast<uintptr_t>(address);
        high = low + bytes;
    }
    return begin < high && end > low;
}

template <typename Map>
auto overlapping(Map& ranges, uintptr_t begin, uintptr_t end, auto end_of) {
    auto at = ranges.upper_bound(begin);
    if (at != ranges.begin() && end_of(std::prev(at)->second) > begin) --at;
    return at != ranges.end() && at->first < end ? at : ranges.end();
}

constexpr auto kEnd = [](uintptr_t end) { return end; };
constexpr auto kRangeEnd = [](const Range& range) { return range.end; };

/// Unpins and removes a range. The caller holds the mutex.
Ranges::iterator unpin(Ranges::iterator at) {
    const uint64_t begin = now_ns();
    if (active() && !changes().dry) {
        const BesideCaptures beside;
        CUcontext before = nullptr;
        REAL(cuCtxGetCurrent)(&before);
        if (before != at->second.context) REAL(cuCtxSetCurrent)(at->second.context);
        REAL(cuMemHostUnregister)(reinterpret_cast<void*>(at->first));
        if (before != at->second.context) REAL(cuCtxSetCurrent)(before);
    }
    g_bytes -= at->second.end - at->first;
    note_pages(at->first, nullptr);
    const auto next = g_pinned.erase(at);
    count(kPinningNs, now_ns() - begin);
    return next;
}

/// The end of the mapping that holds the byte before `end`.
uintptr_t mapped_until(uintptr_t end) {
    uintptr_t found = end;
    FILE* const file = std::fopen("/proc/self/maps", "r");
    char line[512];
    while (file && std::fgets(line, sizeof line, file)) {
        unsigned long low = 0, high = 0;
        if (std::sscanf(line, "%lx-%lx", &low, &high) == 2 && low < end && high > end) found = high;
    }
    if (file) std::fclose(file);
    return found;
}

/// Pins these pages; false if the driver fails.
bool pin(uintptr_t begin, const Range& range) {
    note_pages(begin, &range);
    if (changes().dry) return true;
    const BesideCaptures beside;
    const uint64_t started = now_ns();
    const CUresult result = REAL(cuMemHostRegister_v2)(reinterpret_cast<void*>(begin), range.end - begin,
                                                       CU_MEMHOSTREGISTER_PORTABLE);
    count(kPinningNs, now_ns() - started);
    if (result != CUDA_SUCCESS) note_pages(begin, nullptr);
    return result == CUDA_SUCCESS;
}

/// Whether anything may be pinned there, or is used by copies where it is `of_heap`.
bool may_be_pinned(const void* memory, size_t bytes, bool of_heap) {
    const auto begin = reinterpret_cast<uintptr_t>(memory), end = begin + bytes;
    if (begin >= g_highest.load(std::memory_order_relaxed) || end <= g_lowest.load(std::memory_order_relaxed))
        return false;
    const std::lock_guard lock(g_pages_mutex);
    auto at = overlapping(g_pages, begin, end, kRangeEnd);
    while (of_heap && at != g_pages.end() && at->first < end &&
           (at->second.last <= begin || at->second.first >= end))
        ++at;
    return at != g_pages.end() && at->first < end;
}

}  // namespace

PinUse::PinUse(const void* memory, size_t bytes, bool may_pin) {
    const auto first = reinterpret_cast<uintptr_t>(memory), last = first + bytes;
    uintptr_t begin = first / page() * page(), end = (last + page() - 1) / page() * page();
    const std::lock_guard lock(g_mutex);
    auto at = overlapping(g_pinned, first, last, kRangeEnd);
    if (at != g_pinned.end() && at->first <= first && at->second.end >= last) {
        at->second.first = std::min(at->second.first, first);
        at->second.last = std::max(at->second.last, last);
        ++at->second.uses;
        ++at->second.copies;
        note_pages(at->first, &at->second);
        key_ = at->first;
        return;
    }
    partly_ = at != g_pinned.end();
    if (bytes < kLeastPinned) why_ = kKeptSmall;
    if (!may_pin || bytes < kLeastPinned) return;
    if (!g_may_pin) {
        why_ = kKeptRefused;
        return;
    }
    const auto seen = overlapping(g_seen, first, last, kEnd);
    if (bytes < kPinnedAtOnce && seen == g_seen.end() && at == g_pinned.end()) {
        if (g_seen.size() >= kMostSeen) g_seen.clear();
        g_seen[first] = last;
        return;
    }
    why_ = kKeptRefused;
    if (const auto brief = g_brief.find(begin); brief != g_brief.end() && brief->second >= kMostBrief) {
        why_ = kKeptBrief;
        return;
    }
    const auto refused = overlapping(g_refused, first, last, kEnd);
    if (refused != g_refused.end() && refused->first <= first && refused->second >= last) return;
    why_ = kKeptStack;
    if (of_stack(first, last)) return;
    Range range{end, first, last, nullptr, 1, 1};
    // Merge all ranges that share pages: the driver refuses copies across two registrations.
    at = overlapping(g_pinned, begin, end, kRangeEnd);
    for (auto shared = at; shared != g_pinned.end() && shared->first < end; ++shared) {
        why_ = kKeptRefused;
        if (shared->second.uses) return;
    }
    bool grows = false;
    while (at != g_pinned.end() && at->first < range.end) {
        grows = true;
        begin = std::min(begin, at->first);
        range.end = std::max(range.end, at->second.end);
        range.first = std::min(range.first, at->second.first);
        range.last = std::max(range.last, at->second.last);
        range.copies += at->second.copies;
        at = unpin(at);
    }
    why_ = kKeptLimit;
    if (g_bytes + (range.end - begin) > most_pinned()) return;
    REAL(cuCtxGetCurrent)(&range.context);
    why_ = kKeptRefused;
    // Double the range when it grows: a buffer that is copied part by part is not pinned again for each part.
    const uintptr_t twice = std::min(range.end + (range.end - begin), mapped_until(range.end));
    Range larger = range;
    larger.end = larger.last = twice;
    if (grows && twice > range.end && g_bytes + (twice - begin) <= most_pinned() && pin(begin, larger)) {
        range = larger;
    } else if (!pin(begin, range)) {
        if (g_refused.size() >= kMostSeen) g_refused.clear();
        g_refused[first] = last;
        return;
    }
    count_copy(kPinnedRanges, range.end - begin);
    g_bytes += range.end - begin;
    g_pinned[begin] = range;
    key_ = begin;
}

PinUse::~PinUse() {
    if (!key_) return;
    const std::lock_guard lock(g_mutex);
    const auto at = g_pinned.find(key_);
    if (at != g_pinned.end()) --at->second.uses;
}

bool any_pins() {
    return g_highest.load(std::memory_order_relaxed) != 0;
}

void release_pins(const void* memory, size_t bytes, bool of_heap) {
    if (!active() || !may_be_pinned(memory, bytes, of_heap)) return;
    const Inside inside;
    const auto begin = reinterpret_cast<uintptr_t>(memory), end = begin + bytes;
    std::unique_lock lock(g_mutex);
    auto at = overlapping(g_pinned, begin, end, kRangeEnd);
    while (at != g_pinned.end() && at->first < end) {
        const Range& range = at->second;
        if (of_heap && (range.last <= begin || range.first >= end)) {
            ++at;
        } else if (range.uses) {  // another thread still copies: wait
            const uintptr_t key = at->first;
            lock.unlock();
            std::this_thread::yield();
            lock.lock();
            at = g_pinned.lower_bound(key);
        } else {
            if (range.copies <= kFewCopies && g_brief.size() < kMostSeen) ++g_brief[at->first];
            at = unpin(at);
        }
    }
}

void never_pin(const void* memory, size_t bytes) {
    release_pins(memory, bytes);
    const auto first = reinterpret_cast<uintptr_t>(memory);
    const std::lock_guard lock(g_mutex);
    uintptr_t& last = g_refused[first];
    last = std::max(last, first + bytes);
}

void stop_pinning() {
    g_may_pin = false;
    release_all_pins();
}

void release_all_pins() {
    if (!active() || !any_pins()) return;
    const Inside inside;
    const std::lock_guard lock(g_mutex);
    for (auto at = g_pinned.begin(); at != g_pinned.end();) at = at->second.uses ? std::next(at) : unpin(at);
    g_seen.clear();
}

}  // namespace busfare::trial
