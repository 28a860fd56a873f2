// A program to be recorded: `fake_program SCENARIO [COUNT [PROGRESS-FILE]]`.
//
// Links nothing of CUDA: it loads the driver as late as its scenario wants, then asks the stand-in CUPTI for
// records.

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr const char* kKernel = "_Z5scalePfi";
void* g_cupti = nullptr;

template <typename... Arguments>
uint32_t fake(const char* name, Arguments... arguments) {
    // Without a recorder nobody has loaded CUPTI, and the program just runs.
    void* function = g_cupti ? dlsym(g_cupti, name) : nullptr;
    return function ? reinterpret_cast<uint32_t (*)(Arguments...)>(function)(arguments...) : 0;
}

void load_cuda() {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!driver) {
        std::fprintf(stderr, "fake_program: %s\n", dlerror());
        std::exit(3);
    }
    reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"))(0);
    for (const char* name : {"libcupti.so.13", "libcupti.so.12"}) {
        if (!g_cupti) g_cupti = dlopen(name, RTLD_NOW | RTLD_NOLOAD);
    }
    fake("fake_setting");
}

/// One round: a copy to the device, a kernel, a copy back; `number` makes each distinct.
void round(int number) {
    static char host[1 << 16];
    auto* device = reinterpret_cast<char*>(0x7f0000000000);
    const auto bytes = static_cast<uint64_t>(1024 + number % 1000);
    std::memset(host, number % 2, sizeof host);
    fake("fake_copy", 1, 2, 3, static_cast<void*>(device), static_cast<const void*>(host), bytes);
    fake("fake_kernel", kKernel, uint64_t{0});
    fake("fake_copy", 2, 3, 1, static_cast<void*>(host), static_cast<const void*>(device), bytes);
}

void everything() {
    static char host[1 << 12];
    const void* device = reinterpret_cast<const void*>(0x7f0000000000);
    fake("fake_allocation", device, uint64_t{1 << 20}, 3, 0);
    fake("fake_allocation", static_cast<const void*>(host), uint64_t{sizeof host}, 2, 0);
    const uint32_t range = fake("fake_range", "step");
    round(0);
    fake("fake_kernel", kKernel, uint64_t{21});
    fake("fake_peer_copy", uint64_t{4096});
    fake("fake_set", uint64_t{8192});
    fake("fake_event");
    for (const int type : {2, 3, 4}) fake("fake_wait", type);
    fake("fake_query");
    fake("fake_range_end", range);
    fake("fake_managed", uint64_t{65536});
    fake("fake_overhead");
    fake("fake_nvlink");
    fake("fake_allocation", device, uint64_t{1 << 20}, 3, 1);
}

}  // namespace

int main(int argc, char** argv) {
    const std::string scenario = argc > 1 ? argv[1] : "";
    const int count = argc > 2 ? std::atoi(argv[2]) : 10;
    const auto nap = [](double seconds) {
        std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    };

    if (scenario == "no-cuda") return 0;
    if (scenario == "late") nap(0.3);
    if (scenario == "fork-first") {
        if (fork() != 0) return wait(nullptr) > 0 ? 0 : 1;
    }
    load_cuda();
    if (scenario == "everything") {
        everything();
    } else if (scenario == "rows") {
        static char host[1 << 12];
        auto* device = reinterpret_cast<void*>(0x7f0000000000);
        fake("fake_allocation", static_cast<const void*>(host), uint64_t{sizeof host}, 2, 0);
        fake("fake_rows", device, static_cast<const void*>(host), uint64_t{100}, uint64_t{5}, uint64_t{256});
    } else if (scenario == "forever") {
        const int file = open(argv[3], O_RDWR | O_CREAT, 0666);
        if (file < 0 || ftruncate(file, 8) != 0) return 4;
        auto* done =
            static_cast<volatile uint64_t*>(mmap(nullptr, 8, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
        for (int number = 0;; ++number) {
            round(number);
            *done = static_cast<uint64_t>(number) + 1;
            if (count > 0 && number % count == 0) nap(0.001);
        }
    } else if (scenario == "threads") {
        std::vector<std::thread> threads;
        for (int thread = 0; thread < 8; ++thread) {
            threads.emplace_back([count] {
                for (int number = 0; number < count; ++number) round(number);
            });
        }
        for (std::thread& thread : threads) thread.join();
    } else if (scenario == "profiler-calls" || scenario == "nvtx") {
        const bool nvtx = scenario == "nvtx";
        for (int part = 0; part < 3; ++part) {
            if (part == 1) nvtx ? fake("fake_nvtx", "epoch 1") : fake("fake_profiler", 1);
            if (nvtx) fake("fake_nvtx", "another");
            for (int number = 1; number < count; ++number) round(number);
            fake("fake_managed", uint64_t{65536} << part);
            round(0);
            if (nvtx) fake("fake_nvtx", static_cast<const char*>(nullptr));
            if (part == 1)
                nvtx ? fake("fake_nvtx", static_cast<const char*>(nullptr)) : fake("fake_profiler", 0);
        }
    } else if (scenario == "slow") {
        for (int number = 0; number < count; ++number) {
            round(number);
            nap(0.02);
        }
    } else {
        for (int number = 0; number < count; ++number) round(number);
    }
    if (scenario == "fork") {
        if (fork() == 0) {
            round(1);
            std::exit(0);
        }
        int status = 0;
        wait(&status);
        round(2);
        return status;
    }
    if (scenario == "exec") {
        execl("/proc/self/exe", argv[0], "rounds", argv[2], static_cast<char*>(nullptr));
        return 5;
    }
    if (scenario == "abort" || scenario == "quick-exit" || scenario == "hang") nap(0.5);
    if (scenario == "hang") std::puts("recorded"), std::fflush(stdout), nap(3600);
    if (scenario == "abort") std::abort();
    if (scenario == "quick-exit") _exit(7);
    if (scenario == "status") return 42;
    return 0;
}
