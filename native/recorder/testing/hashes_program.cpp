// A program to be recorded with the hashes of what its copies bring back: `hashes_program SCENARIO`.
//
// Its copies come from the GPU of fake_gpu.cpp, each fills its destination with one value; what it sends are
// such buffers. Prints how many host functions streams were given, and how many captures were ended.

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr uint64_t kBytes = 1 << 20;
constexpr double kCopy = 0.02;
enum Called { kBlocking, kAsynchronous, kDirectly };

void* const kStream = reinterpret_cast<void*>(0x5000);
void* const kOther = reinterpret_cast<void*>(0x7000);
void* g_cupti = nullptr;
void* g_driver = nullptr;

template <typename Result = void, typename... Arguments>
Result fake(const char* name, Arguments... arguments) {
    return reinterpret_cast<Result (*)(Arguments...)>(dlsym(g_cupti, name))(arguments...);
}

char* pinned(uint64_t bytes = kBytes) {
    return static_cast<char*>(fake<void*>("fake_pinned", bytes));
}
void copy(char* to, int value, void* stream = kStream, bool per_thread = false, Called called = kAsynchronous,
          double seconds = kCopy, uint64_t bytes = kBytes) {
    fake<uint32_t>("fake_copy_in", stream, static_cast<int>(per_thread), static_cast<int>(called),
                   static_cast<void*>(to), bytes, value, seconds);
}
void synchronize() {
    fake<uint32_t>("fake_synchronize_all");
}
void send(const char* from) {
    fake<uint32_t>("fake_copy", 1, 2, 3, reinterpret_cast<void*>(0x7f0000000000),
                   static_cast<const void*>(from), kBytes);
}
/// A buffer full of a value goes in.
void send(int value) {
    const std::vector<char> full(kBytes, static_cast<char>(value));
    send(full.data());
}
void nap(double seconds) {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

void play(const std::string& scenario) {
    char* const one = pinned();
    char* const two = pinned();
    std::vector<char> pageable(kBytes);
    if (scenario == "returned") {
        for (int round = 1; round <= 6; ++round) {
            copy(one, round);
            synchronize();
            send(one);
        }
    } else if (scenario == "changed") {
        copy(one, 1);
        const auto launch =
            reinterpret_cast<int (*)(void*, void (*)(void*), void*)>(dlsym(g_driver, "cuLaunchHostFunc"));
        launch(kStream, [](void* memory) { std::memset(memory, 2, kBytes); }, one);
        synchronize();
        send(1);
        send(one);
    } else if (scenario == "pageable") {
        copy(pageable.data(), 1);
        std::ranges::fill(pageable, 2);
        send(1);
    } else if (scenario == "coherent") {
        copy(pageable.data(), 1);
        synchronize();
        send(pageable.data());
    } else if (scenario == "managed") {
        copy(static_cast<char*>(fake<void*>("fake_managed_memory", kBytes)), 1);
        synchronize();
    } else if (scenario == "captured") {
        fake("fake_capture_stream", kStream, 1);
        copy(one, 1);
        copy(pageable.data(), 1);
        copy(one, 1, nullptr);
        copy(two, 2, kOther);
        fake("fake_capture_stream", kStream, 0);
        fake("fake_launch_graph", kStream);
        synchronize();
        send(2);
    } else if (scenario == "streams") {
        char* const three = pinned();
        char* const four = pinned();
        copy(one, 1, kStream, false, kAsynchronous, 0.04);
        copy(two, 2, kOther);
        copy(three, 3, nullptr, false, kAsynchronous, 0.03);
        copy(four, 4, nullptr, true, kAsynchronous, 0.06);
        synchronize();
        for (const int value : {1, 2, 3, 4}) send(value);
    } else if (scenario == "directly") {
        copy(one, 1, kStream, false, kDirectly);
        copy(pageable.data(), 2, kStream, false, kDirectly);
        synchronize();
    } else if (scenario == "window") {
        fake<uint32_t>("fake_profiler", 1);
        copy(one, 1, kStream, false, kAsynchronous, 0.3);
        fake<uint32_t>("fake_profiler", 0);
        fake<uint32_t>("fake_profiler", 1);
        copy(two, 2);
        synchronize();
        fake<uint32_t>("fake_profiler", 0);
        copy(two, 3);
        synchronize();
    } else if (scenario == "pending") {
        copy(one, 1, kStream, false, kAsynchronous, 0.3);
        copy(two, 2, kStream);
    } else if (scenario == "hashing") {
        constexpr uint64_t kLarge = 256 << 20;
        char* const large = pinned(kLarge);
        copy(large, 1, kStream, false, kAsynchronous, 0, kLarge);
        while (static_cast<volatile char*>(large)[kLarge - 1] != 1) nap(0.0005);
    }
}

}  // namespace

int main(int argc, char** argv) {
    g_driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (argc != 2 || !g_driver) return 3;
    reinterpret_cast<int (*)(unsigned)>(dlsym(g_driver, "cuInit"))(0);
    g_cupti = dlopen("libcupti.so.13", RTLD_NOW);
    if (!g_cupti) return 3;
    fake<uint32_t>("fake_setting");
    play(argv[1]);
    std::printf("%d %d\n", fake<int>("fake_host_functions"), fake<int>("fake_invalidated"));
    return 0;
}
