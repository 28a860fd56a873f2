#include "pins.h"

#include <errno.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "driver.h"

namespace busfare::trial {
namespace {

struct Range {
    uintptr_t end;    ///< end of the pages; the key is their start
    uintptr_t first;  ///< start of the copied memory; pages stay mapped until it is freed
    uintptr_t last;   ///< its end
    CUcontext context;
    unsigned uses;    ///< copies in progress
    unsigned copies;  ///< all copies so far
};
using Ranges = std::map<uintptr_t, Range>;

std::mutex g_mutex;  ///< guards the variables below, never destroyed: programs free memory until exit
auto& g_pinned = *new Ranges;
/// The pages of `g_pinned`, plus those being pinned. The driver frees memory while it holds locks that the
/// holder of `g_mutex` may wait for; this map shows, without `g_mutex`, that such memory is not pinned.
std::mutex g_pages_mutex;
auto& g_pages = *new Ranges;
auto& g_seen = *new std::map<uintptr_t, uintptr_t>;     ///< copied once
auto& g_refused = *new std::map<uintptr_t, uintptr_t>;  ///< the driver failed, or `never_pin`
auto& g_brief = *new std::map<uintptr_t, unsigned>;     ///< times freed after few copies
constexpr size_t kMostSeen = 65536;
/// Memory that was freed kMostBrief times after at most kFewCopies copies is not pinned again.
constexpr unsigned kFewCopies = 2, kMostBrief = 2;
std::atomic<uintptr_t> g_lowest{UINTPTR_MAX}, g_highest{0};  ///< of `g_pages`
std::atomic<uint64_t> g_bytes{0};
std::atomic<bool> g_may_pin{true};

uintptr_t page() {
    static const auto size = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    return size;
}

/// Records that the pages of a range are pinned or, with null, that they no longer are.
void note_pages(uintptr_t begin, const Range* range) {
    Ranges changed;  // allocated and freed without the mutex: an allocator may unmap pages
    if (range) changed[begin] = *range;
    const std::lock_guard lock(g_pages_mutex);
    range ? g_pages.merge(changed) : void(changed.insert(g_pages.extract(begin)));
    g_lowest = g_pages.empty() ? UINTPTR_MAX : g_pages.begin()->first;
    g_highest = g_pages.empty() ? 0 : std::prev(g_pages.end())->second.end;
}

/// Half of the memory that was free at the first pinning.
uint64_t most_pinned() {
    static const uint64_t most = [] {
        uint64_t kib = 0;
        std::ifstream file("/proc/meminfo");
        for (std::string word; file >> word;)
            if (word == "MemAvailable:") file >> kib;
        return kib * 1024 / 2;
    }();
    return most;
}

/// Whether the memory is on a stack, which is reused or unmapped without a library call.
bool of_stack(uintptr_t begin, uintptr_t end) {
    if (of_thread(begin, end)) return true;
    uintptr_t high = 0;
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        std::sscanf(line.c_str(), "%*x-%lx", &high);
        if (begin < high) return line.ends_with("[stack]");
    }
    return true;
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
    if (at->second.copies <= kFewCopies && g_brief.size() < kMostSeen) ++g_brief[at->first];
    const uint64_t begin = now_ns();
    if (active() && !changes().dry) {
        const RelaxedCapture relaxed;
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

/// The unpinned parts of these pages. The caller holds the mutex.
Gaps unpinned(uintptr_t begin, uintptr_t end) {
    Gaps gaps;
    auto at = overlapping(g_pinned, begin, end, kRangeEnd);
    for (; at != g_pinned.end() && at->first < end; ++at) {
        if (at->first > begin) gaps.emplace_back(begin, at->first);
        begin = at->second.end;
    }
    if (begin < end) gaps.emplace_back(begin, end);
    return gaps;
}

/// Pins these pages. Returns false if the driver fails.
bool pin(uintptr_t begin, const Range& range) {
    note_pages(begin, &range);
    if (changes().dry) return true;
    const RelaxedCapture relaxed;
    const uint64_t started = now_ns();
    const CUresult result = REAL(cuMemHostRegister_v2)(reinterpret_cast<void*>(begin), range.end - begin,
                                                       CU_MEMHOSTREGISTER_PORTABLE);
    count(kPinningNs, now_ns() - started);
    if (result != CUDA_SUCCESS) note_pages(begin, nullptr);
    return result == CUDA_SUCCESS;
}

}  // namespace

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

PinUse::PinUse(const void* memory, size_t bytes, bool may_pin) {
    const auto first = reinterpret_cast<uintptr_t>(memory), last = first + bytes;
    const uintptr_t begin = first / page() * page(), end = (last + page() - 1) / page() * page();
    const std::lock_guard lock(g_mutex);
    const Gaps gaps = unpinned(begin, end);
    auto at = overlapping(g_pinned, begin, end, kRangeEnd);
    partly_ = !gaps.empty() && at != g_pinned.end();
    if (!gaps.empty() && !(may_pin && pin_gaps(gaps, first, last))) return;
    for (at = overlapping(g_pinned, begin, end, kRangeEnd); at != g_pinned.end() && at->first < end; ++at) {
        ++at->second.uses, ++at->second.copies;
        if (at->first > first) boundaries_.push_back(at->first);
    }
    begin_ = begin, end_ = end;
}

bool PinUse::pin_gaps(const Gaps& gaps, uintptr_t first, uintptr_t last) {
    why_ = kKeptSmall;
    if (last - first < kLeastPinned && !partly_) return false;
    why_ = kKeptRefused;
    if (!g_may_pin) return false;
    const auto seen = overlapping(g_seen, first, last, kEnd);
    why_ = kKeptFirstUse;
    if (last - first < kPinnedAtOnce && seen == g_seen.end() && !partly_) {
        if (g_seen.size() >= kMostSeen) g_seen.clear();
        g_seen[first] = last;
        return false;
    }
    why_ = kKeptBrief;
    const auto brief = g_brief.find(gaps.front().first);
    if (brief != g_brief.end() && brief->second >= kMostBrief) return false;
    why_ = kKeptRefused;
    if (overlapping(g_refused, first, last, kEnd) != g_refused.end()) return false;
    why_ = kKeptStack;
    if (of_stack(first, last)) return false;
    Range range{};
    REAL(cuCtxGetCurrent)(&range.context);
    for (const auto& [low, high] : gaps) {
        why_ = kKeptLimit;
        if (g_bytes + (high - low) > most_pinned()) return false;
        range.end = high, range.first = std::max(first, low), range.last = std::min(last, high);
        why_ = kKeptRefused;
        if (!pin(low, range)) {
            if (g_refused.size() < kMostSeen) g_refused[first] = last;
            return false;
        }
        count_copy(kPinnedRanges, high - low);
        g_bytes += high - low;
        g_pinned[low] = range;
    }
    return true;
}

PinUse::~PinUse() {
    if (!end_) return;
    const std::lock_guard lock(g_mutex);
    auto at = overlapping(g_pinned, begin_, end_, kRangeEnd);
    while (at != g_pinned.end() && at->first < end_)
        at = --at->second.uses || g_may_pin ? std::next(at) : unpin(at);
}

bool any_pins() {
    return g_highest.load(std::memory_order_relaxed) != 0;
}

void release_pins(const void* memory, size_t bytes, bool of_heap) {
    if (!active() || !may_be_pinned(memory, bytes, of_heap)) return;
    const Inside inside;
    const int error = errno;  // `free` preserves it
    const auto begin = reinterpret_cast<uintptr_t>(memory), end = begin + bytes;
    std::unique_lock lock(g_mutex);
    auto at = overlapping(g_pinned, begin, end, kRangeEnd);
    while (at != g_pinned.end() && at->first < end) {
        const Range& range = at->second;
        if (of_heap && (range.last <= begin || range.first >= end)) {
            ++at;
        } else if (range.uses) {  // another thread is still copying: wait
            const uintptr_t key = at->first;
            lock.unlock();
            std::this_thread::yield();
            lock.lock();
            at = g_pinned.lower_bound(key);
        } else {
            at = unpin(at);
        }
    }
    errno = error;
}

void never_pin(const void* memory, size_t bytes) {
    release_pins(memory, bytes);
    auto first = reinterpret_cast<uintptr_t>(memory), last = first + bytes;
    const std::lock_guard lock(g_mutex);
    for (auto at = overlapping(g_refused, first, last, kEnd); at != g_refused.end() && at->first < last;) {
        first = std::min(first, at->first), last = std::max(last, at->second);
        at = g_refused.erase(at);
    }
    g_refused[first] = last;
}

void stop_pinning() {
    g_may_pin = false;
    release_all_pins();
}

void release_all_pins() {
    if (!active() || !any_pins() || Inside::active()) return;
    const Inside inside;
    const std::lock_guard lock(g_mutex);
    for (auto at = g_pinned.begin(); at != g_pinned.end();) at = at->second.uses ? std::next(at) : unpin(at);
    g_seen.clear();
}

}  // namespace busfare::trial
