// Reads a file in steps, sends each to the GPU and works on it: `storage FILE MODE MIB KERNEL_MS`. Needs a
// GPU.
//
// MODE: `pageable` and `pinned`, by one thread that reads, sends, computes and waits in turn; `ahead`, where
// another thread reads the next step into a second pinned buffer meanwhile; `cufile`, straight to the GPU
// (built where cufile.h is, with -lcufile). Prints the seconds that all steps took together.

#include <cuda_runtime.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <string>
#if __has_include(<cufile.h>)
#include <cufile.h>
#define WITH_CUFILE
#endif

#define CHECK(CALL)                                                             \
    do {                                                                        \
        if (const cudaError_t error = (CALL); error != cudaSuccess) {           \
            std::fprintf(stderr, "%s: %s\n", #CALL, cudaGetErrorString(error)); \
            std::exit(1);                                                       \
        }                                                                       \
    } while (0)

__global__ void work(char* data, long long cycles) {
    const long long end = clock64() + cycles;
    // Whole before any part is stored: nvcc 13.0 reads a byte of the clock into a register that no GPU takes.
    long long now;
    do {
        now = clock64();
        *static_cast<volatile char*>(data + threadIdx.x) = static_cast<char>(now);
    } while (now < end);
}

int main(int argc, char** argv) {
    if (argc < 5) return 2;
    const std::string mode = argv[2];
    const size_t bytes = std::strtoul(argv[3], nullptr, 10) << 20;
    const bool direct = mode == "cufile";
    const int file = open(argv[1], O_RDONLY | (direct ? O_DIRECT : 0));
    struct stat told{};
    if (file < 0 || fstat(file, &told) != 0) return 3;
    const int steps = static_cast<int>(static_cast<size_t>(told.st_size) / bytes);
    int hertz = 0;
    CHECK(cudaDeviceGetAttribute(&hertz, cudaDevAttrClockRate, 0));  // in kHz: cycles a millisecond
    const auto cycles = static_cast<long long>(hertz * std::atof(argv[4]));
    char *host[2], *device;
    CHECK(cudaMalloc(&device, bytes));
    for (char*& buffer : host) {
        if (mode == "pageable") {
            buffer = static_cast<char*>(std::malloc(bytes));
        } else {
            CHECK(cudaMallocHost(&buffer, bytes));
        }
    }
    const auto read_step = [&](int step) {
        char* const to = host[mode == "ahead" ? step % 2 : 0];
        for (size_t done = 0; done < bytes;) {
            const ssize_t got = pread(file, to + done, bytes - done, static_cast<off_t>(step * bytes + done));
            if (got <= 0) std::exit(4);
            done += static_cast<size_t>(got);
        }
        return to;
    };
#ifdef WITH_CUFILE
    CUfileHandle_t handle{};
    if (direct) {
        CUfileDescr_t description{};
        description.type = CU_FILE_HANDLE_TYPE_OPAQUE_FD;
        description.handle.fd = file;
        if (cuFileHandleRegister(&handle, &description).err != CU_FILE_SUCCESS) return 5;
    }
#else
    if (direct) return 6;
#endif
    const auto begun = std::chrono::steady_clock::now();
    std::future<char*> next;
    for (int step = 0; step < steps; ++step) {
        if (direct) {
#ifdef WITH_CUFILE
            if (cuFileRead(handle, device, bytes, static_cast<off_t>(step * bytes), 0) !=
                static_cast<ssize_t>(bytes))
                return 7;
#endif
        } else {
            char* const from = next.valid() ? next.get() : read_step(step);
            CHECK(cudaMemcpyAsync(device, from, bytes, cudaMemcpyHostToDevice));
            if (mode == "ahead" && step + 1 < steps)
                next = std::async(std::launch::async, read_step, step + 1);
        }
        work<<<1, 32>>>(device, cycles);
        CHECK(cudaGetLastError());
        CHECK(cudaDeviceSynchronize());
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
#ifdef WITH_CUFILE
    if (direct) cuFileHandleDeregister(handle);
#endif
    std::printf("%s: %d steps of %zu bytes in %.4f s\n", mode.c_str(), steps, bytes, took.count());
    return 0;
}
