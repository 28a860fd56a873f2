// A program to be recorded with the hashes of what its copies bring back: `hashes_program SCENARIO`.
//
// Its copies come from the GPU of fake_gpu.cpp, each fills its destination with one value; what it sends are
// such buffers. Prints how many captures were ended.

#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace {

constexpr uint64_t kBytes = 1 << 20;
constexpr double kCopy = 0.02;
enum Called { kAsynchronous, kDirectly };

void* const kStream = reinterpret_cast<void*>(0x5000);
void* const kSecondStream = reinterpret_cast<void*>(0x7000);
void* g_cupti = nullptr;

template <typename Result = void, typename... Arguments>
Result fake(const char* name, Arguments... arguments) {
    return reinterpret_cast<Result (*)(Arguments...)>(dlsym(g_cupti, name))(arguments...);
}

char* pinned() {
    return static_cast<char*>(fake<void*>("fake_pinned", kBytes));
}
void copy(char* to, int value, void* stream = kStream, bool per_thread = false,
          Called called = kAsynchronous) {
    fake<uint32_t>("fake_copy_in", stream, static_cast<int>(per_thread), static_cast<int>(called),
                   static_cast<void*>(to), kBytes, value, kCopy);
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

void play(const std::string& scenario) {
    std::vector<char> pageable(kBytes);
    if (scenario == "returned") {
        for (int round = 1; round <= 6; ++round) {
            copy(pageable.data(), round);
            send(pageable.data());
        }
    } else if (scenario == "streams") {
        copy(pageable.data(), 1, nullptr);
        copy(pageable.data(), 2, nullptr, true);
        copy(pageable.data(), 3, kSecondStream);
        for (const int value : {1, 2, 3}) send(value);
    } else if (scenario == "pinned") {
        copy(pinned(), 1);
        copy(static_cast<char*>(fake<void*>("fake_managed_memory", kBytes)), 1);
        synchronize();
    } else if (scenario == "coherent") {
        copy(pageable.data(), 1);
        synchronize();
    } else if (scenario == "captured") {
        fake("fake_capture_stream", kStream, 1);
        copy(pageable.data(), 1);
        copy(pageable.data(), 2, nullptr);
        copy(pageable.data(), 3, kSecondStream);
        fake("fake_capture_stream", kStream, 0);
        send(3);
    } else if (scenario == "directly") {
        copy(pageable.data(), 1, kStream, false, kDirectly);
    } else if (scenario == "window") {
        fake<uint32_t>("fake_profiler", 1);
        copy(pageable.data(), 1);
        fake<uint32_t>("fake_profiler", 0);
        copy(pageable.data(), 2);
    }
}

}  // namespace

int main(int argc, char** argv) {
    void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (argc != 2 || !driver) return 3;
    reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"))(0);
    g_cupti = dlopen("libcupti.so.13", RTLD_NOW);
    if (!g_cupti) return 3;
    fake<uint32_t>("fake_setting");
    play(argv[1]);
    std::printf("%d\n", fake<int>("fake_invalidated"));
    return 0;
}
