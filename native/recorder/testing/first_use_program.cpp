// A program to be recorded with its first uses: `first_use_program SCENARIO STAMPS`.
//
// Its copies come from the GPU of fake_gpu.cpp. What it computes goes to standard output, recorded or not;
// when it touched something, by its own clock, to the file STAMPS.

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace {

constexpr uint64_t kLarge = 1 << 20;
constexpr double kCopy = 0.005, kNap = 0.03;

void* g_cupti = nullptr;
FILE* g_stamps = nullptr;

template <typename Result, typename... Arguments>
Result fake(const char* name, Arguments... arguments) {
    return reinterpret_cast<Result (*)(Arguments...)>(dlsym(g_cupti, name))(arguments...);
}

uint64_t now_ns() {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}
void nap(double seconds = kNap) {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

char* map(void* at, uint64_t bytes, int access, int more) {
    return static_cast<char*>(mmap(at, bytes, access, MAP_PRIVATE | MAP_ANONYMOUS | more, -1, 0));
}
char* pinned(uint64_t bytes) {
    return static_cast<char*>(fake<void*>("fake_pinned", bytes));
}
uint32_t copy(char* destination, uint64_t bytes, int value) {
    return fake<uint32_t>("fake_copy_back", static_cast<void*>(destination), bytes, value, kCopy);
}
uint32_t copied(char* destination, uint64_t bytes, int value) {
    const uint32_t number = copy(destination, bytes, value);
    fake<uint32_t>("fake_synchronize");
    return number;
}

/// Does something that touches a destination, and says when: correlation, thread, before and after.
void touch(uint32_t number, const std::function<void()>& how) {
    const uint64_t before = now_ns();
    how();
    std::fprintf(g_stamps, "%u %ld %lu %lu\n", number, syscall(SYS_gettid), before, now_ns());
    std::fflush(g_stamps);
}
void sum(const char* from, uint64_t bytes) {
    uint64_t total = 0;
    for (uint64_t at = 0; at < bytes; ++at) total = total * 31 + static_cast<unsigned char>(from[at]);
    std::printf("%lu\n", total);
    std::fflush(stdout);
}
void touch(uint32_t number, const char* from, uint64_t bytes) {
    touch(number, [=] { sum(from, bytes); });
}

/// A thread that waits for work, all signals blocked, as many libraries have.
class Worker {
  public:
    Worker() : thread_([this] { run(); }) {}
    ~Worker() {
        hand({});
        thread_.join();
    }
    void hand(std::function<void()> work) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return !handed_; });
        work_ = std::move(work);
        handed_ = true;
        changed_.notify_all();
    }

  private:
    void run() {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, nullptr);
        std::unique_lock lock(mutex_);
        for (;;) {
            changed_.wait(lock, [this] { return handed_; });
            if (!work_) return;
            work_();
            handed_ = false;
            changed_.notify_all();
        }
    }
    std::mutex mutex_;
    std::condition_variable changed_;
    std::function<void()> work_;
    bool handed_ = false;
    std::thread thread_;
};

sigjmp_buf g_back;
void on_fault(int, siginfo_t*, void*) {
    siglongjmp(g_back, 1);
}

void run(const std::string& scenario) {
    char* const large = pinned(kLarge);
    if (scenario == "pinned") {
        const uint32_t number = copied(large, kLarge, 1);
        nap();
        touch(number, large, kLarge);
    } else if (scenario == "at-once") {
        const uint32_t number = copied(large, kLarge, 1);
        touch(number, large, kLarge);
    } else if (scenario == "written") {
        const uint32_t number = copied(large, kLarge, 1);
        nap();
        touch(number, [=] { std::memset(large, 2, kLarge); });
        sum(large, kLarge);
    } else if (scenario == "backwards") {
        const uint32_t number = copied(large, kLarge, 1);
        nap();
        touch(number, [=] {
            for (uint64_t at = kLarge; at-- > 0;) large[at]++;
        });
        sum(large, kLarge);
    } else if (scenario == "pageable") {
        char* const memory = static_cast<char*>(std::malloc(kLarge));
        const uint32_t number = copy(memory, kLarge, 3);
        nap();
        touch(number, memory, kLarge);
        std::free(memory);
    } else if (scenario == "beside") {
        // Memory that is mapped beside the destination becomes one with it.
        char* const memory = map(nullptr, 2 * kLarge, PROT_NONE, 0);
        map(memory, kLarge, PROT_READ | PROT_WRITE, MAP_FIXED);
        const uint32_t number = copy(memory, kLarge, 3);
        nap(0.2);  // long enough to be looked at on a busy machine
        map(memory + kLarge, kLarge, PROT_READ | PROT_WRITE, MAP_FIXED);
        touch(number, memory, kLarge);
    } else if (scenario == "small") {
        // Neighbours of an unaligned destination are touched first.
        const uint32_t number = copied(large + 101, 13, 4);
        nap();
        large[100]++, large[114]++;
        nap();
        touch(number, large + 101, 13);
        sum(large, kLarge);
    } else if (scenario == "polled") {
        const uint32_t number = copy(large, kLarge, 5);
        while (static_cast<volatile char*>(large)[kLarge - 1] != 5) {
        }
        fake<uint32_t>("fake_synchronize");
        touch(number, large, kLarge);
    } else if (scenario == "system-call") {
        const uint32_t number = copied(large, kLarge, 6);
        const int file = memfd_create("file", 0);
        nap();
        touch(number, [=] { std::printf("%zd\n", write(file, large, kLarge)); });
        nap();
        sum(large, kLarge);
    } else if (scenario == "fork") {
        const uint32_t number = copied(large, kLarge, 7);
        std::fflush(stdout);
        if (fork() == 0) {
            sum(large, kLarge);
            std::exit(0);
        }
        wait(nullptr);
        nap();
        touch(number, large, kLarge);
    } else if (scenario == "free") {
        char* const memory = static_cast<char*>(std::malloc(kLarge));
        copy(memory, kLarge, 8);
        std::free(memory);
        nap();
        char* const again = static_cast<char*>(std::malloc(kLarge));
        std::memset(again, 1, kLarge);
        std::fprintf(stderr, "%s place\n", again == memory ? "same" : "another");
        sum(again, kLarge);
    } else if (scenario == "replaced") {
        // Other memory takes the place at once, and has bytes before anyone can look.
        char* const memory = map(nullptr, kLarge, PROT_READ | PROT_WRITE, 0);
        copy(memory, kLarge, 8);
        nap();
        map(memory, kLarge, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_POPULATE);
        sum(memory, kLarge);
    } else if (scenario == "free-pinned") {
        copied(large, kLarge, 8);
        nap();
        fake<void>("fake_free_pinned", static_cast<void*>(large));
    } else if (scenario == "realloc") {
        char* memory = static_cast<char*>(std::malloc(kLarge));
        copy(memory, kLarge, 9);
        nap();
        memory = static_cast<char*>(std::realloc(memory, 3 * kLarge));
        nap();
        sum(memory, kLarge);
    } else if (scenario == "twice") {
        copied(large, kLarge, 10);
        nap();
        copied(large, kLarge, 11);
        sum(large, kLarge);
    } else if (scenario == "sent") {
        copied(large, kLarge, 10);
        nap();
        fake<uint32_t>("fake_copy", 1, 2, 3, reinterpret_cast<void*>(0x7f0000000000),
                       static_cast<const void*>(large + 4096), uint64_t{8192});
        nap();
        sum(large, kLarge);
    } else if (scenario == "handler") {
        struct sigaction act{};
        act.sa_sigaction = on_fault;
        act.sa_flags = SA_SIGINFO;
        sigaction(SIGSEGV, &act, nullptr);
        const uint32_t number = copied(large, kLarge, 12);
        mprotect(large, kLarge, PROT_NONE);
        nap();
        if (sigsetjmp(g_back, 1) == 0) {
            sum(large, kLarge);
        } else {
            std::puts("fault");
        }
        mprotect(large, kLarge, PROT_READ | PROT_WRITE);
        nap();
        touch(number, large, kLarge);
    } else if (scenario == "threads") {
        Worker worker;
        const uint32_t number = copied(large, kLarge, 13);
        nap();
        worker.hand([=] { touch(number, large, kLarge); });
    } else if (scenario == "begun") {
        const uint32_t number = copied(large, kLarge, 14);
        std::thread([=] { sum(large, kLarge); }).join();
        nap();
        touch(number, large, kLarge);
    } else if (scenario == "closed") {
        for (int file = 3; file < 1024; ++file) {
            if (file != fileno(g_stamps)) close(file);
        }
        const int next = open("/dev/null", O_RDONLY);
        const uint32_t number = copied(large, kLarge, 15);
        nap();
        touch(number, large, kLarge);
        std::printf("%d\n", next);
    } else if (scenario == "never") {
        copied(large, kLarge, 16);
        nap();
    } else if (scenario == "late") {
        for (int round = 0; round < 20; ++round) {
            const uint32_t number = copied(large, kLarge, round);
            nap(0.01);
            touch(number, large, kLarge);
        }
    } else if (scenario == "many") {
        for (int round = 0; round < 300; ++round) {
            const uint32_t number = copied(large, kLarge, round);
            if (round % 3 == 0) nap(0.002);
            touch(number, large, 64);
        }
    }
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3) return 2;
    g_stamps = std::fopen(argv[2], "w");
    void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!g_stamps || !driver) return 3;
    reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"))(0);
    g_cupti = dlopen("libcupti.so.13", RTLD_NOW);
    if (!g_cupti) return 3;
    fake<uint32_t>("fake_setting");
    run(argv[1]);
    return 0;
}
