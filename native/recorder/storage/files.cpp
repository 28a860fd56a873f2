// Where the bytes that a GPU gets come from, and where its results go: reads and writes of files, by POSIX, C
// and cuFile, and files that become memory. Each call is passed on, and noted where it is large. Before the
// recorder begins the first ones are kept for it; in a program that it is not in, nothing else happens.

// With it the headers would define functions of the names below themselves.
#undef _FORTIFY_SOURCE

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <tuple>

#include "../source/storage.h"

namespace {

using busfare::recorder::StorageKind;

constexpr size_t kLeastBytes = size_t{64} << 10;  ///< asked for: what is smaller is not looked at
constexpr size_t kMostEarly = 16384;
constexpr size_t kMostFiles = 65536;
constexpr size_t kLongestPath = PATH_MAX;
constexpr size_t kMostPieces = 16;  ///< of one call that are noted one by one

std::atomic<const BusfareStorageSink*> g_sink{nullptr};

/// Inside of a call that is noted: what it reads in turn is its own business.
[[gnu::tls_model("initial-exec")]] constinit thread_local bool t_inside = false;
[[gnu::tls_model("initial-exec")]] constinit thread_local uint32_t t_thread = 0;

constinit std::mutex g_mutex;  ///< guards what follows
constinit std::array<BusfareStorage, kMostEarly> g_early{};
constinit uint64_t g_early_count = 0;  ///< with those that found no room

/// A file on its disk; its birth tells it from a later one that got its number.
using FileId = std::tuple<uint32_t, uint32_t, uint64_t, int64_t, uint32_t>;
struct Known {
    std::map<FileId, std::string> paths;         ///< which stay where they are
    std::map<const void*, const char*> handles;  ///< of cuFile
    std::map<uint64_t, uint64_t> mapped;         ///< files: where their memory begins, and ends
};
Known& known() {
    static auto* const known = new Known;  // never destroyed: calls may come to the very end
    return *known;
}

uint64_t now() {
    timespec time{};
    ::clock_gettime(CLOCK_REALTIME, &time);
    return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(time.tv_nsec);
}

/// The file behind a descriptor, by the name under which it was first met.
struct File {
    bool is_one = false;         ///< and no pipe, socket or terminal
    const char* path = nullptr;  ///< null: not known
};
File file_of(int descriptor) {
    struct statx told{};
    if (::statx(descriptor, "", AT_EMPTY_PATH, STATX_TYPE | STATX_INO | STATX_BTIME, &told) != 0) return {};
    if (!S_ISREG(told.stx_mode) && !S_ISBLK(told.stx_mode)) return {};
    const bool born = told.stx_mask & STATX_BTIME;
    const FileId id{told.stx_dev_major, told.stx_dev_minor, told.stx_ino, born ? told.stx_btime.tv_sec : 0,
                    born ? told.stx_btime.tv_nsec : 0};
    const std::lock_guard lock(g_mutex);
    auto& paths = known().paths;
    if (const auto found = paths.find(id); found != paths.end()) return {true, found->second.c_str()};
    if (paths.size() >= kMostFiles) return {true, nullptr};
    char link[32], path[kLongestPath];
    std::snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    const ssize_t length = ::readlink(link, path, sizeof path);
    if (length <= 0) return {true, nullptr};
    return {true, paths.emplace(id, std::string(path, static_cast<size_t>(length))).first->second.c_str()};
}

File file_of_handle(const void* handle) {
    const std::lock_guard lock(g_mutex);
    const auto found = known().handles.find(handle);
    return {true, found == known().handles.end() ? nullptr : found->second};
}

void hand_over(const BusfareStorage& operation) {
    if (const BusfareStorageSink* const sink = g_sink.load(std::memory_order_acquire))
        return sink->operation(&operation);
    {
        const std::lock_guard lock(g_mutex);
        if (!g_sink.load(std::memory_order_relaxed)) {
            if (g_early_count < kMostEarly) g_early[g_early_count] = operation;
            ++g_early_count;
            return;
        }
    }
    g_sink.load(std::memory_order_relaxed)->operation(&operation);
}

/// What a call moved of a file, its first `bytes` into or out of these pieces of memory. Each has its share
/// of the call's time; of too many it is not said where they lie.
void note(StorageKind kind, const File& file, std::span<const iovec> pieces, uint64_t bytes, uint64_t start,
          uint64_t end) {
    if (!file.is_one) return;
    if (t_thread == 0) t_thread = static_cast<uint32_t>(::syscall(SYS_gettid));
    const iovec whole{nullptr, bytes};
    if (pieces.size() > kMostPieces) pieces = {&whole, 1};
    const double each = static_cast<double>(end - start) / static_cast<double>(bytes);
    uint64_t done = 0;
    const auto when = [&] { return start + static_cast<uint64_t>(each * static_cast<double>(done)); };
    for (const iovec& piece : pieces) {
        const uint64_t part = std::min<uint64_t>(piece.iov_len, bytes - done), from = when();
        if (part == 0) continue;
        done += part;
        hand_over({file.path, from, done == bytes ? end : when(), part,
                   reinterpret_cast<uint64_t>(piece.iov_base), t_thread, static_cast<uint32_t>(kind)});
    }
}

/// `call` passed on; `taken` gets its result, where that is above 0, and when it began and ended.
template <typename Call, typename Taken>
auto timed(size_t asked, Call call, Taken taken) {
    if (asked < kLeastBytes || t_inside) return call();
    t_inside = true;
    const uint64_t start = now();
    const auto result = call();
    const uint64_t end = now();
    const int error = errno;
    if (result > 0) {
        try {
            taken(static_cast<uint64_t>(result), start, end);
        } catch (...) {
            // The program's memory ran out, which is no reason to end it here.
        }
    }
    t_inside = false;
    errno = error;
    return result;
}

/// The same of a call that moves `asked` bytes into or out of memory at `address`, or fewer: as many as its
/// result times `member`.
template <typename Call, typename WhichFile>
auto noted(StorageKind kind, const void* address, size_t asked, size_t member, Call call, WhichFile file) {
    return timed(asked, call, [&](uint64_t result, uint64_t start, uint64_t end) {
        const iovec whole{const_cast<void*>(address), asked};
        note(kind, file(), {&whole, 1}, result * member, start, end);
    });
}

/// The functions that stand behind these. No static of a function: calls come before any constructor.
template <typename Function>
class Behind {
  public:
    constexpr explicit Behind(const char* name) : name_(name) {}
    Function* operator*() {
        void* found = found_.load(std::memory_order_relaxed);
        if (!found) {
            found = dlsym(RTLD_NEXT, name_);
            // One that was loaded for a module alone is none that the loader would find.
            for (const char* library : {"libcufile.so.0", "libcufile.so"}) {
                if (found || name_[0] != 'c') break;
                if (void* const opened = dlopen(library, RTLD_LAZY | RTLD_NOLOAD)) {
                    found = dlsym(opened, name_);
                    dlclose(opened);
                }
            }
            found_.store(found, std::memory_order_relaxed);
        }
        return reinterpret_cast<Function*>(found);
    }
    /// Null where nobody has asked for it yet.
    Function* found() const { return reinterpret_cast<Function*>(found_.load(std::memory_order_relaxed)); }

  private:
    const char* const name_;
    std::atomic<void*> found_{nullptr};
};

/// Across a fork nobody else holds the lock. What the child does is not the parent's recording.
void lock_for_fork() {
    g_mutex.lock();
}
void unlock_in_parent() {
    g_mutex.unlock();
}
void begin_in_child() {
    g_sink = nullptr;
    g_early_count = 0;
    t_thread = 0;
    g_mutex.unlock();
}
[[gnu::constructor]] void register_for_forks() {
    pthread_atfork(lock_for_fork, unlock_in_parent, begin_in_child);
}

}  // namespace

#define EXPORTED extern "C" [[gnu::visibility("default")]]

// NAME(descriptor, buffer, bytes, …), which gives how many it moved or -1.
#define POSIX(NAME, KIND, PARAMETERS, ARGUMENTS)                                   \
    constinit static Behind<ssize_t PARAMETERS> behind_##NAME{#NAME};              \
    EXPORTED ssize_t NAME PARAMETERS {                                             \
        return noted(                                                              \
            StorageKind::KIND, b, n, 1, [&] { return (*behind_##NAME)ARGUMENTS; }, \
            [&] { return file_of(d); });                                           \
    }
POSIX(read, kRead, (int d, void* b, size_t n), (d, b, n))
POSIX(pread, kRead, (int d, void* b, size_t n, off_t at), (d, b, n, at))
POSIX(pread64, kRead, (int d, void* b, size_t n, off64_t at), (d, b, n, at))
POSIX(write, kWrite, (int d, const void* b, size_t n), (d, b, n))
POSIX(pwrite, kWrite, (int d, const void* b, size_t n, off_t at), (d, b, n, at))
POSIX(pwrite64, kWrite, (int d, const void* b, size_t n, off64_t at), (d, b, n, at))
POSIX(__read_chk, kRead, (int d, void* b, size_t n, size_t room), (d, b, n, room))
POSIX(__pread_chk, kRead, (int d, void* b, size_t n, off_t at, size_t room), (d, b, n, at, room))
POSIX(__pread64_chk, kRead, (int d, void* b, size_t n, off64_t at, size_t room), (d, b, n, at, room))

// NAME(descriptor, pieces, their number, …). What was asked for is read only where the call has found it
// sound.
#define VECTORED(NAME, KIND, PARAMETERS, ARGUMENTS)                                                  \
    constinit static Behind<ssize_t PARAMETERS> behind_##NAME{#NAME};                                \
    EXPORTED ssize_t NAME PARAMETERS {                                                               \
        return timed(                                                                                \
            SIZE_MAX, [&] { return (*behind_##NAME)ARGUMENTS; },                                     \
            [&](uint64_t bytes, uint64_t start, uint64_t end) {                                      \
                if (bytes < kLeastBytes) return;                                                     \
                note(StorageKind::KIND, file_of(d), {v, static_cast<size_t>(n)}, bytes, start, end); \
            });                                                                                      \
    }
VECTORED(readv, kRead, (int d, const iovec* v, int n), (d, v, n))
VECTORED(preadv, kRead, (int d, const iovec* v, int n, off_t at), (d, v, n, at))
VECTORED(preadv64, kRead, (int d, const iovec* v, int n, off64_t at), (d, v, n, at))
VECTORED(preadv2, kRead, (int d, const iovec* v, int n, off_t at, int how), (d, v, n, at, how))
VECTORED(preadv64v2, kRead, (int d, const iovec* v, int n, off64_t at, int how), (d, v, n, at, how))
VECTORED(writev, kWrite, (int d, const iovec* v, int n), (d, v, n))
VECTORED(pwritev, kWrite, (int d, const iovec* v, int n, off_t at), (d, v, n, at))
VECTORED(pwritev64, kWrite, (int d, const iovec* v, int n, off64_t at), (d, v, n, at))
VECTORED(pwritev2, kWrite, (int d, const iovec* v, int n, off_t at, int how), (d, v, n, at, how))
VECTORED(pwritev64v2, kWrite, (int d, const iovec* v, int n, off64_t at, int how), (d, v, n, at, how))

// Those of C's streams, which reach the system past the names above. What is too large to be is theirs to
// refuse.
#define STREAM(NAME, KIND, PARAMETERS, ARGUMENTS)                                         \
    constinit static Behind<size_t PARAMETERS> behind_##NAME{#NAME};                      \
    EXPORTED size_t NAME PARAMETERS {                                                     \
        size_t bytes = 0;                                                                 \
        if (__builtin_mul_overflow(size, n, &bytes)) bytes = 0;                           \
        return noted(                                                                     \
            StorageKind::KIND, b, bytes, size, [&] { return (*behind_##NAME)ARGUMENTS; }, \
            [&] { return file_of(::fileno(stream)); });                                   \
    }
STREAM(fread, kRead, (void* b, size_t size, size_t n, FILE* stream), (b, size, n, stream))
STREAM(fwrite, kWrite, (const void* b, size_t size, size_t n, FILE* stream), (b, size, n, stream))
STREAM(__fread_chk, kRead, (void* b, size_t room, size_t size, size_t n, FILE* stream),
       (b, room, size, n, stream))

/// Whether there were files in this memory, which is theirs no more.
bool forget_mapped(uint64_t begin, uint64_t end) {
    const std::lock_guard lock(g_mutex);
    auto& mapped = known().mapped;
    auto first = mapped.lower_bound(begin);
    if (first != mapped.begin() && std::prev(first)->second > begin) --first;
    const auto behind = mapped.lower_bound(end);
    const bool some = first != behind;
    mapped.erase(first, behind);
    return some;
}

/// Memory at `at` is a file now (`descriptor`), or something else (-1), or no more.
void note_mapped(const void* at, size_t bytes, int descriptor, uint64_t when) {
    const auto begin = reinterpret_cast<uint64_t>(at);
    const iovec whole{const_cast<void*>(at), bytes};
    if (forget_mapped(begin, begin + bytes))
        note(StorageKind::kUnmapped, {true, nullptr}, {&whole, 1}, bytes, when, when);
    if (descriptor < 0) return;
    const File file = file_of(descriptor);
    if (!file.is_one) return;
    {
        const std::lock_guard lock(g_mutex);
        if (known().mapped.size() >= kMostFiles) return;
        known().mapped[begin] = begin + bytes;
    }
    note(StorageKind::kMapped, file, {&whole, 1}, bytes, when, when);
}

/// A call of `mmap`. Where the name behind it is looked up, memory may be mapped in turn: by the kernel then.
using Map = void*(void*, size_t, int, int, int, off_t);
void* map_noted(Behind<Map>& behind, void* at, size_t n, int access, int how, int d, off_t from) {
    if (t_inside) {
        if (Map* const found = behind.found()) return found(at, n, access, how, d, from);
        return reinterpret_cast<void*>(::syscall(SYS_mmap, at, n, access, how, d, from));
    }
    t_inside = true;
    void* const result = (*behind)(at, n, access, how, d, from);
    const int error = errno;
    const bool of_file = !(how & MAP_ANONYMOUS) && n >= kLeastBytes;
    if (result != MAP_FAILED && (of_file || how & MAP_FIXED)) {
        try {
            note_mapped(result, n, of_file ? d : -1, now());
        } catch (...) {
            // The program's memory ran out, which is no reason to end it here.
        }
    }
    t_inside = false;
    errno = error;
    return result;
}

#define MAPPED(NAME)                                                                  \
    constinit static Behind<Map> behind_##NAME{#NAME};                                \
    EXPORTED void* NAME(void* at, size_t n, int access, int how, int d, off_t from) { \
        return map_noted(behind_##NAME, at, n, access, how, d, from);                 \
    }
MAPPED(mmap)
MAPPED(mmap64)

constinit static Behind<int(void*, size_t)> behind_munmap{"munmap"};
EXPORTED int munmap(void* at, size_t n) {
    auto* const before = behind_munmap.found();
    if (t_inside) return before ? before(at, n) : static_cast<int>(::syscall(SYS_munmap, at, n));
    t_inside = true;
    // Before: behind it another thread may get that memory.
    const uint64_t when = now();
    try {
        note_mapped(at, n, -1, when);
    } catch (...) {
        // The program's memory ran out, which is no reason to end it here.
    }
    const int result = (*behind_munmap)(at, n);
    const int error = errno;
    t_inside = false;
    errno = error;
    return result;
}

// cuFile, from NVIDIA's documentation of its interface: needs no header of it to be built.
struct CufileError {
    int error, driver_error;
};
struct CufileDescription {
    int type;  ///< 1: a descriptor of Linux
    union {
        int descriptor;
        void* handle;
    };
    const void* operations;
};
constexpr int kOfLinux = 1, kNotInitialized = 5001;

constinit static Behind<CufileError(void**, CufileDescription*)> behind_register{"cuFileHandleRegister"};
EXPORTED CufileError cuFileHandleRegister(void** handle, CufileDescription* description) {
    auto* const behind = *behind_register;
    if (!behind) return {kNotInitialized, 0};
    const CufileError result = behind(handle, description);
    if (result.error != 0 || description->type != kOfLinux) return result;
    const int error = errno;
    try {
        const File file = file_of(description->descriptor);
        const std::lock_guard lock(g_mutex);
        known().handles[*handle] = file.path;
    } catch (...) {
        // Then its path is not known.
    }
    errno = error;
    return result;
}

constinit static Behind<void(void*)> behind_deregister{"cuFileHandleDeregister"};
EXPORTED void cuFileHandleDeregister(void* handle) {
    {
        const std::lock_guard lock(g_mutex);
        known().handles.erase(handle);
    }
    if (auto* const behind = *behind_deregister) behind(handle);
}

#define CUFILE(NAME, KIND, BUFFER)                                                               \
    constinit static Behind<ssize_t(void*, BUFFER, size_t, off_t, off_t)> behind_##NAME{#NAME};  \
    EXPORTED ssize_t NAME(void* handle, BUFFER base, size_t n, off_t in_file, off_t in_buffer) { \
        auto* const behind = *behind_##NAME;                                                     \
        if (!behind) {                                                                           \
            errno = ENOSYS;                                                                      \
            return -1;                                                                           \
        }                                                                                        \
        return noted(                                                                            \
            StorageKind::KIND, static_cast<const char*>(base) + in_buffer, n, 1,                 \
            [&] { return behind(handle, base, n, in_file, in_buffer); },                         \
            [&] { return file_of_handle(handle); });                                             \
    }
CUFILE(cuFileRead, kCufileRead, void*)
CUFILE(cuFileWrite, kCufileWrite, const void*)

/// The recorder has begun: gets what was kept for it, and how many found no room.
EXPORTED uint64_t busfare_storage_begin(const BusfareStorageSink* sink) {
    const std::lock_guard lock(g_mutex);
    const uint64_t kept = g_early_count < kMostEarly ? g_early_count : kMostEarly;
    const uint64_t lost = g_early_count - kept;
    for (uint64_t at = 0; at < kept; ++at) sink->operation(&g_early[at]);
    g_early_count = 0;
    g_sink.store(sink, std::memory_order_release);
    return lost;
}
