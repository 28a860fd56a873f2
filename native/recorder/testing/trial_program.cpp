// A program for tests of `busfare try`: `trial_program SCENARIO [dlsym]`. It finds driver functions with
// `cuGetProcAddress`, as the CUDA runtime does, or with `dlsym`. It prints whether the copied data are right,
// and exits with 1 if they are wrong.

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

void* g_driver = nullptr;
bool g_by_dlsym = false;

template <typename Function>
Function* call(const char* base, const char* symbol) {
    static const auto address =
        reinterpret_cast<decltype(&cuGetProcAddress_v2)>(dlsym(g_driver, "cuGetProcAddress_v2"));
    void* function = nullptr;
    if (!g_by_dlsym) address(base, &function, 13000, 0, nullptr);
    return reinterpret_cast<Function*>(g_by_dlsym ? dlsym(g_driver, symbol) : function);
}
#define CUDA(base, version) call<decltype(base##version)>(#base, #base #version)

int fake(const char* name, int value = 0) {
    return reinterpret_cast<int (*)(int)>(dlsym(g_driver, name))(value);
}

CUdeviceptr g_device = 0;
constexpr size_t kDeviceBytes = size_t{64} << 20;

void to_gpu(const char* host, size_t bytes) {
    CUDA(cuMemcpyHtoD, _v2)(g_device, host, bytes);
}

/// Whether the first `bytes` of GPU memory, which is host memory here, all have this value.
bool there(char value, size_t bytes) {
    CUDA(cuCtxSynchronize, )();
    const auto* const memory = reinterpret_cast<const char*>(g_device);
    return std::all_of(memory, memory + bytes, [value](char byte) { return byte == value; });
}

char* filled(char value, size_t bytes) {
    return static_cast<char*>(std::memset(std::malloc(bytes), value, bytes));
}

/// Copies a buffer three times: enough to pin it, if it is ever pinned.
bool three_times(char* host, size_t bytes) {
    bool right = true;
    for (char value = 1; value < 4; ++value) {
        std::memset(host, value, bytes);
        to_gpu(host, bytes);
        std::memset(host, 77, bytes);
        right &= there(value, bytes);
    }
    return right;
}

bool run(const std::string& scenario) {
    constexpr size_t kBytes = size_t{1} << 20;
    if (scenario == "repeat" || scenario == "large") {
        const size_t bytes = scenario == "large" ? 20 * kBytes : kBytes;
        char* const host = filled(0, bytes);
        const bool right = three_times(host, bytes);
        std::printf("registered %d\n", fake("fake_registered"));
        std::free(host);
        std::printf("registered %d\n", fake("fake_registered"));
        return right;
    }
    if (scenario == "small" || scenario == "stack") {
        char host[1 << 18];
        return three_times(host, scenario == "small" ? 1000 : sizeof host);
    }
    if (scenario == "stack-of-thread") {
        std::atomic<char*> array{nullptr};
        std::atomic<bool> copied{false};
        std::thread thread([&] {
            char host[1 << 18];
            array = host;
            while (!copied) std::this_thread::yield();
        });
        while (!array) std::this_thread::yield();
        const bool right = three_times(array, 1 << 18);
        copied = true;
        thread.join();
        return right && fake("fake_registered") == 0;
    }
    if (scenario == "stacks") {  // of threads, of any size and guard; then, memory around one
        static char* const around = static_cast<char*>(std::aligned_alloc(4096, 5 * kBytes));
        static bool right = true;
        const auto run = [](void* memory) -> void* {
            char host[1 << 18];
            right &= three_times(host, sizeof host) && fake("fake_registered") == 0;
            if (memory) right &= three_times(around, kBytes) && three_times(around + 4 * kBytes, kBytes);
            pthread_exit(nullptr);
        };
        for (size_t number = 0; number < 4; ++number) {
            pthread_t thread{};
            pthread_attr_t attributes;
            pthread_attr_init(&attributes);
            pthread_attr_setstacksize(&attributes, kBytes << (2 * number + 1));
            pthread_attr_setguardsize(&attributes, number * 16384);
            if (number == 3) pthread_attr_setstack(&attributes, around + kBytes, 3 * kBytes);
            pthread_create(&thread, &attributes, run, number == 3 ? around : nullptr);
            pthread_join(thread, nullptr);
        }
        return right;
    }
    if (scenario == "flag" || scenario == "host-function") {  // while the GPU waits for the program
        const size_t bytes = scenario == "flag" ? kBytes / 32 : kBytes;
        char* const host = filled(0, bytes);
        bool right = three_times(host, bytes);
        std::memset(host, 9, bytes);
        fake("fake_wait", 1);
        std::atomic<bool> copied{false};
        std::thread thread([&] {
            scenario == "flag" ? CUDA(cuMemcpyHtoDAsync, _v2)(g_device, host, bytes, nullptr)
                               : CUDA(cuMemcpyHtoD, _v2)(g_device, host, bytes);
            copied = true;
        });
        while (!copied && !fake("fake_wait", 1)) std::this_thread::yield();
        CUDA(cuLaunchHostFunc, )(nullptr, [](void*) { fake("fake_wait", 0); }, nullptr);
        thread.join();
        std::memset(host, 77, bytes);
        return right && there(9, bytes) && fake("fake_registered") == 0;
    }
    if (scenario == "purge") {  // an allocator gives pages back while the driver launches a kernel
        static char* const host = static_cast<char*>(std::aligned_alloc(4096, kBytes));
        static bool refused = false;
        bool right = three_times(host, kBytes);
        const bool pinned = fake("fake_registered");
        const auto kernel = [] {
            refused = madvise(host, kBytes, MADV_DONTNEED) != 0 && errno == EAGAIN &&
                      munmap(host, kBytes) != 0 && mmap(host, kBytes, 0, MAP_FIXED, -1, 0) == MAP_FAILED &&
                      mremap(host, kBytes, 2 * kBytes, MREMAP_MAYMOVE) == MAP_FAILED && errno == ENOMEM;
        };
        CUDA(cuLaunchKernel, )(reinterpret_cast<CUfunction>(+kernel), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr,
                               nullptr);
        right &= refused == pinned && three_times(host, kBytes);
        std::free(host);
        return right && fake("fake_registered") == 0;
    }
    if (scenario == "async" || scenario == "any" || scenario == "captured") {
        char* const host = filled(0, kBytes);
        CUstream stream = nullptr;
        CUDA(cuStreamCreate, )(&stream, 0);
        bool right = true;
        for (char value = 1; value < 6; ++value) {
            std::memset(host, value, kBytes);
            const bool captured = scenario == "captured" && value == 4;
            if (captured) fake("fake_capture", 1);
            if (scenario == "any") {
                CUDA(cuMemcpyAsync, )(g_device, reinterpret_cast<CUdeviceptr>(host), kBytes, stream);
            } else {
                CUDA(cuMemcpyHtoDAsync, _v2)(g_device, host, kBytes, stream);
            }
            std::memset(host, 77, kBytes);
            if (captured) fake("fake_capture", 0);
            CUDA(cuStreamSynchronize, )(stream);
            right &= captured || there(value, kBytes);
        }
        CUDA(cuMemcpyDtoHAsync, _v2)(host, g_device, kBytes, stream);
        right &= host[0] == 5 && host[kBytes - 1] == 5;
        std::free(host);
        return right;
    }
    if (scenario == "back") {
        char* const host = filled(8, kBytes);
        to_gpu(host, kBytes);
        bool right = true;
        for (int time = 0; time < 3; ++time) {
            std::memset(host, 0, kBytes);
            CUDA(cuMemcpyDtoH, _v2)(host, g_device, kBytes);
            right &= host[0] == 8 && host[kBytes - 1] == 8;
        }
        std::free(host);
        return right;
    }
    if (scenario == "rows") {
        char* const host = filled(9, kBytes);
        CUDA_MEMCPY2D rows{};
        rows.srcMemoryType = CU_MEMORYTYPE_HOST, rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
        rows.srcHost = host, rows.dstDevice = g_device;
        rows.srcPitch = rows.dstPitch = 1024, rows.WidthInBytes = 1000, rows.Height = 1024;
        for (int time = 0; time < 3; ++time) CUDA(cuMemcpy2D, _v2)(&rows);
        return true;
    }
    if (scenario == "growing") {  // overlapping parts of a buffer
        char* const host = filled(1, 4 * kBytes);
        bool right = true;
        for (size_t part = 0; part < 8; ++part) {
            std::memset(host, static_cast<int>(part), 4 * kBytes);
            const size_t bytes = kBytes + part * (kBytes / 4);
            to_gpu(host + part * 100, bytes);
            right &= there(static_cast<char>(part), bytes);
        }
        std::free(host);
        std::printf("registered %d\n", fake("fake_registered"));
        return right;
    }
    if (scenario == "neighbours") {  // copies of memory that shares a page with pinned memory
        char* const host = filled(0, 5 * kBytes);
        bool right = three_times(host + kBytes, kBytes + 100);
        for (const size_t bytes : {size_t{5000}, size_t{20000}, 2 * kBytes}) {
            for (const size_t at : {2 * kBytes + 200, kBytes - bytes / 2}) {
                std::memset(host, 5, 5 * kBytes);
                right &=
                    CUDA(cuMemcpyHtoD, _v2)(g_device, host + at, bytes) == CUDA_SUCCESS && there(5, bytes);
                right &= three_times(host + kBytes, kBytes + 100);
            }
        }
        std::free(host);
        return right && fake("fake_registered") == 0;
    }
    if (scenario == "shared-page") {  // adjacent heap blocks, of which one is freed first
        mallopt(M_MMAP_THRESHOLD, 64 * kBytes);
        char *const low = filled(0, kBytes), *const high = filled(0, kBytes), *const top = filled(0, kBytes);
        bool right = three_times(low, kBytes) && three_times(high, kBytes);
        std::free(high);
        std::memset(low, 9, kBytes);
        to_gpu(low, kBytes);
        right &= there(9, kBytes);
        std::free(low);
        std::free(top);
        return right;
    }
    if (scenario == "driver-closes-library") {
        char* const host = filled(0, kBytes);
        bool right = three_times(host, kBytes);
        CUdeviceptr memory = 0;
        CUDA(cuMemAlloc, _v2)(&memory, kBytes);
        right &= three_times(host, kBytes);
        std::free(host);
        return right;
    }
    if (scenario == "churn") {  // copies that unpin all memory
        char* const host = filled(0, 20 * kBytes);
        CUDA_MEMCPY3D array{};
        for (int time = 0; time < 9; ++time) {
            to_gpu(host, 20 * kBytes);
            CUDA(cuMemcpy3D, _v2)(&array);
        }
        std::free(host);
        return true;
    }
    if (scenario == "tiles") {  // small parts of a buffer, then all of it
        constexpr size_t kTile = size_t{16} << 10;
        char* const host = static_cast<char*>(std::aligned_alloc(4096, kBytes));
        for (size_t at = 0; at < 2 * kBytes; at += kTile) to_gpu(host + at % kBytes, kTile);
        const bool right = three_times(host, kBytes);
        std::free(host);
        return right;
    }
    if (scenario == "shared-memory") {
        const int segment = shmget(IPC_PRIVATE, kBytes, IPC_CREAT | 0600);
        char* const host = static_cast<char*>(shmat(segment, nullptr, 0));
        const bool right = three_times(host, kBytes);
        shmdt(host);
        shmctl(segment, IPC_RMID, nullptr);
        return right && fake("fake_registered") == 0;
    }
    if (scenario == "slices") {  // consecutive slices of a large buffer
        constexpr size_t kSlice = size_t{17} << 20;
        char* const host = filled(0, 20 * kSlice);
        bool right = true;
        for (size_t slice = 0; slice < 20; ++slice) {
            std::memset(host + slice * kSlice, static_cast<int>(slice), kSlice);
            to_gpu(host + slice * kSlice, kSlice);
            right &= there(static_cast<char>(slice), kBytes);
        }
        std::free(host);
        std::printf("registered %d\n", fake("fake_registered"));
        return right;
    }
    if (scenario == "brief") {  // memory that is freed after each copy
        bool right = true;
        for (int time = 0; time < 9; ++time) {
            void* const made = mmap(reinterpret_cast<void*>(0x700000000000), 20 * kBytes,
                                    PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
            std::memset(made, time, 20 * kBytes);
            to_gpu(static_cast<char*>(made), 20 * kBytes);
            right &= there(static_cast<char>(time), kBytes);
            munmap(made, 20 * kBytes);
        }
        return right;
    }
    if (scenario == "given-back") {  // by every call that frees or remaps memory
        bool right = true;
        const auto mapped = [&] {
            void* const made =
                mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            right &= three_times(static_cast<char*>(made), kBytes);
            return made;
        };
        void* moved = mapped();
        errno = 0;
        munmap(moved, kBytes);
        right &= errno == 0 && fake("fake_registered") == 0;
        moved = mremap(mapped(), kBytes, 3 * kBytes, MREMAP_MAYMOVE);
        right &= fake("fake_registered") == 0;
        munmap(moved, 3 * kBytes);
        void* const kept = mapped();
        madvise(kept, kBytes, MADV_DONTNEED);
        right &= fake("fake_registered") == 0 && three_times(static_cast<char*>(kept), kBytes);
        mmap(kept, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        right &= fake("fake_registered") == 0;
        char* const host = filled(0, kBytes);
        right &= three_times(host, kBytes);
        std::free(std::realloc(host, 40 * kBytes));
        right &= fake("fake_registered") == 0;
        auto* const made = new char[kBytes];
        right &= three_times(made, kBytes);
        delete[] made;
        return right && fake("fake_registered") == 0;
    }
    if (scenario == "own-pins") {  // memory that the program pins
        char* const host = static_cast<char*>(std::aligned_alloc(4096, kBytes));
        bool right = three_times(host, kBytes);
        right &= CUDA(cuMemHostRegister, _v2)(host, kBytes, 0) == CUDA_SUCCESS;
        right &= three_times(host, kBytes);
        return right && CUDA(cuMemHostUnregister, )(host) == CUDA_SUCCESS;
    }
    if (scenario == "destroyed") {
        char* const host = filled(0, kBytes);
        bool right = three_times(host, kBytes);
        CUDA(cuCtxDestroy, _v2)(nullptr);
        right &= fake("fake_registered") == 0 && three_times(host, kBytes);
        return right;
    }
    if (scenario == "non-blocking" || scenario == "late-stream") {
        char* const host = filled(3, kBytes);
        if (scenario == "late-stream") to_gpu(host, kBytes);
        CUstream stream = nullptr;
        CUDA(cuStreamCreate, )(&stream, CU_STREAM_NON_BLOCKING);
        if (scenario == "non-blocking") to_gpu(host, kBytes);
        return *reinterpret_cast<char*>(g_device + kBytes - 1) == 3;  // without waiting
    }
    if (scenario == "unknown-side") {  // an asynchronous copy to memory that may be managed
        char* const host = filled(0, kBytes);
        bool right = three_times(host, kBytes);
        std::memset(host, 9, kBytes);
        CUDA(cuMemcpyAsync, )(g_device, reinterpret_cast<CUdeviceptr>(host), kBytes, nullptr);
        std::memset(host, 77, kBytes);
        right &= there(9, kBytes);
        std::free(host);
        return right;
    }
    if (scenario == "locked") {  // the driver frees memory that lies between pinned ranges
        char* const low = filled(0, kBytes / 16);
        fake("fake_internal");
        bool right = three_times(low, kBytes / 16);
        for (int time = 0; time < 2; ++time) {
            right &= three_times(filled(0, kBytes), kBytes);
            fake("fake_internal");
        }
        return right;
    }
    if (scenario == "fork") {
        char* const host = filled(0, kBytes);
        bool right = three_times(host, kBytes);
        if (fork() == 0) {
            std::free(host);
            std::_Exit(0);
        }
        int status = 0;
        wait(&status);
        right &= status == 0 && three_times(host, kBytes);
        std::free(host);
        return right;
    }
    if (scenario == "threads") {  // each with its own buffer; the stand-in driver is not thread-safe
        std::vector<std::thread> threads;
        for (int thread = 0; thread < 4; ++thread) {
            threads.emplace_back([] {
                for (int time = 0; time < 200; ++time) std::free(filled(1, kBytes / 4));
            });
        }
        char* const host = filled(0, kBytes);
        const bool right = three_times(host, kBytes);
        for (std::thread& thread : threads) thread.join();
        std::free(host);
        return right;
    }
    if (scenario == "managed" || scenario == "placed" || scenario == "crowded") {
        const size_t bytes = scenario == "crowded" ? 9 * kBytes : kBytes;
        CUdeviceptr memory = 0, unused = 0;
        CUDA(cuMemAllocManaged, )(&memory, bytes, CU_MEM_ATTACH_GLOBAL);
        CUDA(cuMemAllocManaged, )(&unused, kBytes, CU_MEM_ATTACH_GLOBAL);
        if (scenario == "placed") CUDA(cuMemAdvise, _v2)(memory, bytes, CU_MEM_ADVISE_SET_READ_MOSTLY, {});
        int count = 1;
        struct {
            int64_t count;
            CUdeviceptr values;
        } values{9, memory + bytes / 2};
        void* arguments[] = {&count, &values};
        const auto launch = [&] {
            CUDA(cuLaunchKernel, )(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr);
        };
        launch();
        launch();
        CUDA(cuCtxSynchronize, )();
        launch();
        fake("fake_capture", 1);
        CUDA(cuCtxSynchronize, )();
        launch();
        fake("fake_capture", 0);
        CUDA(cuMemFree, _v2)(memory);
        launch();
        return true;
    }
    if (scenario == "scheduling") {
        CUDA(cuDevicePrimaryCtxSetFlags, _v2)(0, CU_CTX_SCHED_YIELD | CU_CTX_MAP_HOST);
        std::printf("flags %d\n", fake("fake_scheduling"));
        return true;
    }
    if (scenario == "killed") {
        char* const host = filled(0, kBytes);
        three_times(host, kBytes);
        raise(SIGKILL);
    }
    if (scenario == "next") {  // RTLD_NEXT must search the libraries after the caller
        return dlsym(RTLD_NEXT, "qsort") == reinterpret_cast<void*>(&std::qsort) && !dlsym(RTLD_NEXT, "main");
    }
    return false;
}

}  // namespace

int main(int argc, char** argv) {
    for (int time = 0; time < 2; ++time) dlopen("libmissing.so", RTLD_NOW);  // dlerror frees its message
    g_driver = dlopen("libcuda.so.1", RTLD_NOW);
    g_by_dlsym = argc > 2;
    if (argc < 2 || !g_driver) return 3;
    CUDA(cuInit, )(0);
    CUDA(cuMemAlloc, _v2)(&g_device, kDeviceBytes);
    const bool right = run(argv[1]);
    std::printf("%s\n", right ? "right" : "WRONG");
    return right ? 0 : 1;
}
