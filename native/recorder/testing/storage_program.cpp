// A program to be recorded with its storage: `storage_program SCENARIO FILE [ANOTHER]`.
//
// What it noted of its own reads and writes goes to standard output, a line each: call, address, bytes,
// thread, file. Its GPU is the stand-in's.

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr size_t kChunk = 1 << 18;
constexpr int kUntouched = 77;  // what errno is before each call
alignas(4096) char g_buffer[kChunk * 4];
std::mutex g_said;
void* g_cupti = nullptr;

template <typename... Arguments>
uint32_t fake(const char* name, Arguments... arguments) {
    void* function = g_cupti ? dlsym(g_cupti, name) : nullptr;
    return function ? reinterpret_cast<uint32_t (*)(Arguments...)>(function)(arguments...) : 0;
}

void load_cuda() {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!driver) std::exit(3);
    reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"))(0);
    g_cupti = dlopen("libcupti.so.13", RTLD_NOW | RTLD_NOLOAD);
    fake("fake_setting");
}

constexpr int kPageable = 1, kPinned = 2, kDevice = 3;
void copy_in(const char* from, uint64_t bytes, int memory) {
    fake("fake_copy", 1, memory, kDevice, reinterpret_cast<void*>(0x7f0000000000),
         static_cast<const void*>(from), bytes);
}

/// Says what a call did, which must leave errno alone where it went well.
template <typename Result>
Result said(const char* call, const char* file, const void* address, Result result, size_t member = 1) {
    if (errno != kUntouched) std::exit(70);
    const std::lock_guard lock(g_said);
    std::printf("%s\t%lu\t%lu\t%ld\t%s\n", call, reinterpret_cast<unsigned long>(address),
                static_cast<unsigned long>(result) * member, syscall(SYS_gettid), file);
    std::fflush(stdout);
    return result;
}
#define SAID(CALL, FILE, ADDRESS, ...) said(CALL, FILE, ADDRESS, (errno = kUntouched, __VA_ARGS__))

int opened(const char* file, int flags = O_RDONLY) {
    const int descriptor = open(file, flags, 0666);
    if (descriptor < 0) std::exit(71);
    return descriptor;
}

/// Reads a file from its beginning to its end, in chunks of which the last is short.
void load(const char* file, int memory) {
    const int descriptor = opened(file);
    ssize_t bytes = 0;
    while ((bytes = (errno = kUntouched, read(descriptor, g_buffer, kChunk))) > 0) {
        said("read", file, g_buffer, bytes);
        copy_in(g_buffer, static_cast<uint64_t>(bytes), memory);
    }
    close(descriptor);
}

void every_call(const char* file, const char* another) {
    const int in = opened(file), out = opened(another, O_RDWR | O_CREAT | O_TRUNC);
    SAID("read", file, g_buffer, read(in, g_buffer, kChunk));
    SAID("read", file, g_buffer + kChunk, pread(in, g_buffer + kChunk, kChunk, 100));
    SAID("read", file, g_buffer, pread64(in, g_buffer, kChunk, 7));
    FILE* const stream = fopen(file, "r");
    said("read", file, g_buffer, (errno = kUntouched, fread(g_buffer, 1000, 200, stream)), 1000);
    fclose(stream);
    SAID("write", another, g_buffer, write(out, g_buffer, kChunk));
    SAID("write", another, g_buffer + 1, pwrite(out, g_buffer + 1, kChunk, 5));
    SAID("write", another, g_buffer + 2, pwrite64(out, g_buffer + 2, kChunk, 0));
    FILE* const to = fopen(another, "w");
    said("write", another, g_buffer, (errno = kUntouched, fwrite(g_buffer, 1, kChunk, to)));
    fclose(to);
    // Too small, or none of what was asked for is there.
    if (read(in, g_buffer, (1 << 16) - 1) != (1 << 16) - 1 || pread(in, g_buffer, kChunk, 1 << 30) != 0)
        std::exit(72);
    if (read(-1, g_buffer, kChunk) != -1 || errno != EBADF) std::exit(73);
}

/// Calls of several pieces, and what C++'s streams make of a large write.
void pieces(const char* file, const char* another) {
    const int in = opened(file), out = opened(another, O_RDWR | O_CREAT | O_TRUNC);
    const iovec two[] = {{g_buffer + 64, kChunk}, {g_buffer, 0}, {g_buffer + 2 * kChunk, kChunk}};
    const auto tell = [&](const char* call, const char* name, ssize_t bytes) {
        if (bytes != 2 * static_cast<ssize_t>(kChunk)) std::exit(80);
        for (const iovec& piece : {two[0], two[2]}) said(call, name, piece.iov_base, piece.iov_len);
    };
    tell("read", file, (errno = kUntouched, readv(in, two, 3)));
    tell("read", file, (errno = kUntouched, preadv(in, two, 3, 1)));
    tell("read", file, (errno = kUntouched, preadv64(in, two, 3, 2)));
    tell("read", file, (errno = kUntouched, preadv2(in, two, 3, 3, 0)));
    tell("read", file, (errno = kUntouched, preadv64v2(in, two, 3, 4, 0)));
    tell("write", another, (errno = kUntouched, writev(out, two, 3)));
    tell("write", another, (errno = kUntouched, pwritev(out, two, 3, 1)));
    tell("write", another, (errno = kUntouched, pwritev64(out, two, 3, 2)));
    tell("write", another, (errno = kUntouched, pwritev2(out, two, 3, 3, 0)));
    tell("write", another, (errno = kUntouched, pwritev64v2(out, two, 3, 4, 0)));
    // A short one fills what comes first; of many it is not said where they lie.
    errno = kUntouched;
    const ssize_t bytes = preadv(in, two, 3, lseek(in, 0, SEEK_END) - static_cast<off_t>(kChunk) - 5);
    said("read", file, two[0].iov_base, kChunk), said("read", file, two[2].iov_base, bytes - kChunk);
    std::vector<iovec> many(32, iovec{g_buffer, kChunk / 32});
    SAID("read", file, nullptr, preadv(in, many.data(), 32, 0));
    // Too little, and pieces that are none.
    const iovec small{g_buffer, 512};
    if (preadv(in, &small, 1, 0) != 512) std::exit(81);
    if (readv(in, nullptr, 2) != -1 || errno != EFAULT || readv(in, two, -1) != -1) std::exit(82);
    std::ofstream stream(another);
    errno = kUntouched;
    if (!stream.write(g_buffer + 8, kChunk).flush()) std::exit(83);
    said("write", another, g_buffer + 8, kChunk);
}

/// Files as memory, of which copies go to the GPU.
void mapped(const char* file, const char* another) {
    const auto map = [](const char* name, size_t bytes, void* at = nullptr) {
        const int descriptor = opened(name);
        const int how = MAP_PRIVATE | (at ? MAP_FIXED : 0);
        errno = kUntouched;
        void* const place = mmap(at, bytes, PROT_READ, how, descriptor, 0);
        if (place == MAP_FAILED) std::exit(84);
        close(descriptor);
        said("mapped", name, place, bytes);
        return static_cast<char*>(place);
    };
    char* const first = map(file, 3 * kChunk);
    copy_in(first, kChunk, kPageable);
    copy_in(first + kChunk, kChunk, kPageable);
    // Another file in a part of its place: what was the first's is nobody's any more.
    char* const second = map(another, kChunk, first + kChunk);
    copy_in(second + 512, 4096, kPageable);
    copy_in(first, kChunk, kPageable);
    munmap(second, kChunk);
    if (mmap(second, kChunk, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != second)
        std::exit(85);
    copy_in(second, kChunk, kPageable);
    if (mmap(nullptr, kChunk, PROT_READ, MAP_PRIVATE, -1, 0) != MAP_FAILED || errno != EBADF) std::exit(86);
    if (munmap(first + 1, kChunk) != -1 || errno != EINVAL) std::exit(87);
    map(file, 3 * kChunk);  // stays
}

/// Descriptors of no file; a read of one is interrupted, and another gets less than it asked for.
void no_files() {
    struct sigaction action{};
    action.sa_handler = [](int) {};
    sigaction(SIGALRM, &action, nullptr);
    int ends[2], pair[2];
    if (pipe(ends) != 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) std::exit(74);
    const itimerval soon{{0, 0}, {0, 20000}};
    setitimer(ITIMER_REAL, &soon, nullptr);
    if (read(ends[0], g_buffer, kChunk) != -1 || errno != EINTR) std::exit(75);
    for (const auto& [from, to] : {std::pair{ends[0], ends[1]}, std::pair{pair[0], pair[1]}}) {
        std::thread writer([to] { (void)!write(to, g_buffer, kChunk); });
        for (size_t left = kChunk; left > 0;) {
            const ssize_t bytes = read(from, g_buffer + kChunk, kChunk);
            if (bytes <= 0) std::exit(76);
            left -= static_cast<size_t>(bytes);
        }
        writer.join();
    }
}

/// Three files, one after the other under one descriptor; the third may get the number on disk of the second.
void reused(const char* file, const char* another) {
    const std::string third = std::string(another) + "-third";
    for (const char* name : {file, another, third.c_str()}) {
        const int descriptor = opened(name, O_RDWR | O_CREAT);
        SAID("write", name, g_buffer, write(descriptor, g_buffer, kChunk));
        SAID("read", name, g_buffer, pread(descriptor, g_buffer, kChunk, 0));
        close(descriptor);
        if (name == another) unlink(another);
        usleep(20000);
    }
}

}  // namespace

// Before the constructor of any library.
static void before_all(int argc, char** argv, char**) {
    if (argc < 3 || std::strcmp(argv[1], "first") != 0) return;
    const int descriptor = open(argv[2], O_RDONLY);
    if (descriptor < 0 || read(descriptor, g_buffer, kChunk) != kChunk) _exit(77);
    close(descriptor);
}
[[gnu::section(".preinit_array"), gnu::used]] static void (*const g_before_all)(int, char**,
                                                                                char**) = before_all;

int main(int argc, char** argv) {
    if (argc < 3) return 2;
    const std::string scenario = argv[1];
    const char* const file = argv[2];
    if (scenario == "first") said("read", file, g_buffer, (errno = kUntouched, kChunk));
    if (scenario == "no-cuda") return load(file, kPageable), 0;
    if (scenario == "early") load(file, kPageable);
    if (scenario == "many-early") {
        const int descriptor = opened(file);
        for (int number = 0; number < 16384 + 5; ++number)
            if (pread(descriptor, g_buffer, 1 << 16, 0) != 1 << 16) return 78;
    }
    if (scenario == "fork-first") {
        load(file, kPageable);
        std::puts("forks");
        std::fflush(stdout);
        if (fork() != 0) return wait(nullptr) > 0 ? 0 : 1;
        load(file, kPageable);
    }
    load_cuda();
    copy_in(g_buffer + 2 * kChunk, 512, kPageable);
    if (scenario == "pageable") load(file, kPageable);
    if (scenario == "pinned") load(file, kPinned);
    if (scenario == "every-call") every_call(file, argv[3]);
    if (scenario == "pieces") pieces(file, argv[3]);
    if (scenario == "mapped") mapped(file, argv[3]);
    if (scenario == "no-files") no_files();
    if (scenario == "reused") reused(file, argv[3]);
    if (scenario == "threads") {
        std::vector<std::thread> threads;
        for (int number = 0; number < 8; ++number) {
            threads.emplace_back([=] {
                std::vector<char> own(kChunk);
                for (int time = 0; time < 200; ++time) {
                    const int descriptor = opened(file);
                    SAID("read", file, own.data(), pread(descriptor, own.data(), kChunk, time));
                    close(descriptor);
                }
            });
        }
        for (std::thread& thread : threads) thread.join();
    }
    if (scenario == "fork") {
        load(file, kPageable);
        const pid_t child = fork();
        if (child == 0) {
            const int descriptor = opened(file);
            for (int time = 0; time < 40000; ++time)
                if (pread(descriptor, g_buffer, 1 << 16, 0) != 1 << 16) _exit(79);
            std::exit(0);
        }
        int status = 0;
        waitpid(child, &status, 0);
        load(file, kPageable);
        return status;
    }
    copy_in(g_buffer + 2 * kChunk, 512, kPageable);
    return 0;
}
