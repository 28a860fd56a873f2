#include "watchpoints.h"

#include <dirent.h>
#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <set>
#include <utility>

namespace busfare::recorder {
namespace {

// Of Linux 5.9; headers of build machines may be older.
constexpr long kCloseRange = 436;
constexpr unsigned kUnshare = 1u << 1;

constexpr size_t kBufferPages = 2;  // beside the page that says what is in them; a power of two
constexpr size_t kMostThreads = 512;
/// Accesses noted a piece and watch: each costs the program's thread a trap, and the first is the one that
/// counts.
constexpr uint32_t kMostAccesses = 16;
constexpr uint64_t kPieceBytes = 8;

/// Watched where nothing is wanted.
alignas(kPieceBytes) uint64_t g_nothing = 0;

size_t page_bytes() {
    return static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}
size_t buffer_bytes() {
    return (1 + kBufferPages) * page_bytes();
}

uint32_t this_thread() {
    return static_cast<uint32_t>(::syscall(SYS_gettid));
}

perf_event_attr attributes(bool exclude_kernel, bool first) {
    perf_event_attr made{};
    made.type = PERF_TYPE_BREAKPOINT;
    made.size = sizeof made;
    made.bp_type = HW_BREAKPOINT_RW;
    made.bp_addr = reinterpret_cast<uint64_t>(&g_nothing);
    made.bp_len = kPieceBytes;
    made.sample_period = 1;
    made.sample_type = PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_ADDR;
    made.sample_id_all = 1;
    made.watermark = 1;
    made.wakeup_watermark = 1;  // for whatever is noted, not for accesses alone
    made.use_clockid = 1;
    made.clockid = CLOCK_MONOTONIC;
    made.disabled = 1;
    made.exclude_hv = 1;
    made.exclude_kernel = exclude_kernel;
    // Threads that begin and memory that is mapped, once a thread.
    made.task = made.mmap = made.mmap_data = first;
    return made;
}

struct Sample {
    perf_event_header header;
    uint32_t process, thread;
    uint64_t time, address;
};
struct Begun {
    perf_event_header header;
    uint32_t process, parent, thread, parent_thread;
    uint64_t time;
};
struct Mapped {
    perf_event_header header;
    uint32_t process, thread;
    uint64_t address, bytes;
};

}  // namespace

bool Watchpoints::begin(std::string* why) {
    // The program sees none of the descriptors, may close or count its own, and this thread keeps none of
    // them open.
    if (::syscall(kCloseRange, 0u, ~0u, kUnshare) != 0) {
        *why = std::string("close_range: ") + std::strerror(errno);
        return false;
    }
    for (const bool exclude_kernel : {false, true}) {
        exclude_kernel_ = exclude_kernel;
        if (const int event = open(this_thread(), true); event >= 0) {
            ::close(event);
            // The first event of all turns on what the kernel does where threads take turns, and waits until
            // every processor knows: milliseconds. One that stays keeps that on.
            perf_event_attr nothing{};
            nothing.type = PERF_TYPE_SOFTWARE;
            nothing.config = PERF_COUNT_SW_DUMMY;
            nothing.size = sizeof nothing;
            nothing.disabled = 1;
            nothing.exclude_kernel = 1;
            stays_ =
                static_cast<int>(::syscall(SYS_perf_event_open, &nothing, 0, -1, -1, PERF_FLAG_FD_CLOEXEC));
            return true;
        }
    }
    *why = std::string("perf_event_open: ") + std::strerror(errno);
    return false;
}

int Watchpoints::open(uint32_t thread, bool first) {
    perf_event_attr asked = attributes(exclude_kernel_, first);
    return static_cast<int>(::syscall(SYS_perf_event_open, &asked, thread, -1, -1, PERF_FLAG_FD_CLOEXEC));
}

bool Watchpoints::add(uint32_t thread) {
    Watched made{{-1, -1, -1, -1}, {}, nullptr, false};
    for (size_t piece = 0; piece < kMostPieces; ++piece) {
        made.events[piece] = open(thread, piece == 0);
        if (made.events[piece] < 0) break;  // a debugger may hold a register
        if (piece == 0) {
            void* const buffer =
                ::mmap(nullptr, buffer_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, made.events[0], 0);
            if (buffer == MAP_FAILED) break;
            made.buffer = static_cast<unsigned char*>(buffer);
        } else if (::ioctl(made.events[piece], PERF_EVENT_IOC_SET_OUTPUT, made.events[0]) != 0) {
            ::close(made.events[piece]);
            made.events[piece] = -1;
            break;
        }
    }
    if (!made.buffer) {
        const bool gone = made.events[0] < 0 && errno == ESRCH;
        remove(made);
        return gone;
    }
    threads_.emplace(thread, made);
    return true;
}

void Watchpoints::remove(const Watched& watched) {
    if (watched.buffer) ::munmap(watched.buffer, buffer_bytes());
    for (const int event : watched.events) {
        if (event >= 0) ::close(event);
    }
}

bool Watchpoints::find_threads() {
    DIR* const folder = ::opendir("/proc/self/task");
    if (!folder) return false;
    std::set<uint32_t> alive;
    const uint32_t own = this_thread();
    while (const dirent* entry = ::readdir(folder)) {
        const auto thread = static_cast<uint32_t>(std::strtoul(entry->d_name, nullptr, 10));
        if (thread != 0 && thread != own) alive.insert(thread);
    }
    ::closedir(folder);
    std::erase_if(threads_, [&](const auto& each) {
        if (alive.contains(each.first)) return false;
        remove(each.second);
        return true;
    });
    if (alive.size() > kMostThreads) return false;
    for (const uint32_t thread : alive) {
        if (!threads_.contains(thread) && !add(thread)) return false;
    }
    return true;
}

bool Watchpoints::set(std::span<const Piece> pieces) {
    pieces_.assign(pieces.begin(), pieces.end());
    // What a thread starts is noted once its own are set: those that began before are found in the next
    // round.
    for (bool more = true; more;) {
        if (!find_threads()) return false;
        more = false;
        for (auto& [thread, watched] : threads_) {
            if (watched.set) continue;
            more = true;
            if (!set(watched)) return false;
        }
    }
    return true;
}

bool Watchpoints::set(Watched& watched) {
    watched.set = true;
    for (size_t at = 0; at < pieces_.size(); ++at) {
        perf_event_attr asked = attributes(exclude_kernel_, at == 0);
        asked.bp_addr = pieces_[at].address;
        asked.bp_len = pieces_[at].bytes;
        asked.disabled = watched.left[at] < kMostAccesses;
        if (::ioctl(watched.events[at], PERF_EVENT_IOC_MODIFY_ATTRIBUTES, &asked) != 0) return false;
        if (!asked.disabled) continue;
        // Turns it on, too.
        if (::ioctl(watched.events[at], PERF_EVENT_IOC_REFRESH, kMostAccesses - watched.left[at]) != 0)
            return false;
        watched.left[at] = kMostAccesses;
    }
    return true;
}

void Watchpoints::clear() {
    for (auto& [thread, watched] : threads_) {
        watched.set = false;
        for (const int event : watched.events) {
            if (event >= 0) ::ioctl(event, PERF_EVENT_IOC_DISABLE, 0);
        }
    }
}

void Watchpoints::end() {
    for (auto& [thread, watched] : threads_) remove(watched);
    threads_.clear();
    if (stays_ >= 0) ::close(std::exchange(stays_, -1));
}

void Watchpoints::wait(int milliseconds) {
    std::vector<pollfd> all;
    all.reserve(threads_.size());
    for (const auto& [thread, watched] : threads_) all.push_back({watched.events[0], POLLIN, 0});
    ::poll(all.data(), all.size(), milliseconds);
    // A thread that has ended would wake this at once, every time.
    for (const pollfd& each : all) {
        if (each.revents & (POLLHUP | POLLERR)) return (void)::usleep(1000);
    }
}

void Watchpoints::drain(const std::function<void(const Event&)>& take) {
    for (auto& [thread, watched] : threads_) drain(watched, take);
}

void Watchpoints::drain(Watched& watched, const std::function<void(const Event&)>& take) {
    auto* const page = reinterpret_cast<perf_event_mmap_page*>(watched.buffer);
    const unsigned char* const data = watched.buffer + page_bytes();
    const size_t size = kBufferPages * page_bytes();
    const uint64_t head = std::atomic_ref(page->data_head).load(std::memory_order_acquire);
    uint64_t tail = page->data_tail;
    std::vector<unsigned char> record;
    const auto as = [&]<typename Record>(Record made) {
        std::memcpy(&made, record.data(), std::min(record.size(), sizeof made));
        return made;
    };
    while (tail < head) {
        perf_event_header header;
        // Records are aligned to 8 bytes, so that a header never wraps round; the rest may.
        std::memcpy(&header, data + tail % size, sizeof header);
        record.resize(header.size);
        for (size_t at = 0; at < header.size; ++at) record[at] = data[(tail + at) % size];
        tail += header.size;
        switch (header.type) {
            case PERF_RECORD_SAMPLE: {
                const auto sample = as(Sample{});
                take({Event::What::kTouched, sample.time, sample.thread, sample.address, 0});
                for (size_t at = 0; at < pieces_.size(); ++at) {
                    if (pieces_[at].address == sample.address && watched.left[at] > 0 &&
                        --watched.left[at] == 0)
                        take({Event::What::kMissed, sample.time, 0, 0, 0});
                }
                break;
            }
            case PERF_RECORD_FORK: {
                const auto begun = as(Begun{});
                if (begun.process == begun.parent)
                    take({Event::What::kBegun, begun.time, begun.thread, 0, 0});
                break;
            }
            case PERF_RECORD_MMAP: {
                const auto mapped = as(Mapped{});
                uint64_t time = 0;  // the record's last field
                std::memcpy(&time, record.data() + record.size() - sizeof time, sizeof time);
                take({Event::What::kMapped, time, mapped.thread, mapped.address, mapped.bytes});
                break;
            }
            case PERF_RECORD_LOST:
                take({Event::What::kMissed, 0, 0, 0, 0});
                break;
            default:
                break;
        }
    }
    std::atomic_ref(page->data_tail).store(tail, std::memory_order_release);
}

}  // namespace busfare::recorder
