// Copies back whose bytes are known: `hashes NAME` makes those of one scenario and prints a line a copy, as
// JSON: direction, bytes, what they hold (the same number: the same bytes), and how a recording with
// fingerprints must have hashed them. Then how many host functions it gave to streams. Needs a GPU; hashes.py
// checks.

#include <cuda.h>
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#define CHECK(call)                                                                                      \
    do {                                                                                                 \
        const auto status = (call);                                                                      \
        if (static_cast<int>(status) != 0) {                                                             \
            std::fprintf(stderr, "%s: error %d (line %d)\n", #call, static_cast<int>(status), __LINE__); \
            std::exit(1);                                                                                \
        }                                                                                                \
    } while (0)

namespace {

constexpr size_t kMost = size_t{64} << 20;
constexpr size_t kSizes[] = {1, 4096, 1 << 20, kMost};
int g_host_functions = 0;

/// `hashed`: in-stream, by-thread or not.
void tell(const char* direction, size_t bytes, int content, const char* hashed) {
    std::printf("{\"direction\": \"%s\", \"bytes\": %zu, \"content\": %d, \"hashed\": \"%s\"}\n", direction,
                bytes, content, hashed);
}

__global__ void spin(long long cycles) {
    for (const long long begin = clock64(); clock64() - begin < cycles;) {
    }
}
void occupy(cudaStream_t stream) {
    spin<<<1, 1, 0, stream>>>(20'000'000);  // some 10 ms
    CHECK(cudaGetLastError());
}
void host_function(cudaStream_t stream, cudaHostFn_t function, void* data) {
    CHECK(cudaLaunchHostFunc(stream, function, data));
    ++g_host_functions;
}

char* device_memory(size_t bytes = kMost) {
    void* memory;
    CHECK(cudaMalloc(&memory, bytes));
    return static_cast<char*>(memory);
}
char* pinned_memory(size_t bytes = kMost) {
    void* memory;
    CHECK(cudaMallocHost(&memory, bytes));
    return static_cast<char*>(memory);
}
void back(void* to, const void* from, size_t bytes, int content, cudaStream_t stream, const char* hashed) {
    CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream));
    tell("d2h", bytes, content, hashed);
}
void into(void* to, const void* from, size_t bytes, int content, cudaStream_t stream) {
    CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream));
    tell("h2d", bytes, content, "by-thread");
}
cudaStream_t new_stream() {
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

/// Pinned, by whichever way: what came back goes in again.
void returned(char* host, cudaStream_t stream) {
    char* const device = device_memory();
    int content = 0;
    for (const size_t bytes : kSizes) {
        for (int round = 0; round < 3; ++round) {
            CHECK(cudaMemsetAsync(device, ++content, bytes, stream));
            occupy(stream);
            back(host, device, bytes, content, stream, "in-stream");
            CHECK(cudaStreamSynchronize(stream));
            into(device, host, bytes, content, stream);
            CHECK(cudaStreamSynchronize(stream));
        }
    }
}

void changed() {
    char* const device = device_memory();
    char* const host = pinned_memory();
    const cudaStream_t stream = new_stream();
    CHECK(cudaMemset(device, 1, kMost));
    back(host, device, kMost, 1, stream, "in-stream");
    host_function(stream, [](void* memory) { std::memset(memory, 2, kMost); }, host);
    CHECK(cudaStreamSynchronize(stream));
    into(device, host, kMost, 2, stream);
    CHECK(cudaStreamSynchronize(stream));
    std::memset(host, 1, kMost);
    into(device, host, kMost, 1, stream);
}

void pageable() {
    char* const device = device_memory();
    std::vector<char> host(kMost);
    const cudaStream_t stream = new_stream();
    int content = 0;
    for (const size_t bytes : kSizes) {
        CHECK(cudaMemsetAsync(device, ++content, bytes, stream));
        occupy(stream);
        back(host.data(), device, bytes, content, stream, "by-thread");
        into(device, host.data(), bytes, content, stream);
        std::memset(host.data(), 0, bytes);
    }
}

void captured() {
    char* const device = device_memory();
    char* const host = pinned_memory();
    const cudaStream_t stream = new_stream(), other = new_stream();
    CHECK(cudaMemset(device, 1, kMost));
    cudaGraph_t graph;
    cudaGraphExec_t run;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK(cudaMemcpyAsync(host, device, 4096, cudaMemcpyDeviceToHost, stream));
    // Beside it a copy of another stream, which has its hash, by this thread and another.
    back(host + 8192, device, 4096, 1, other, "in-stream");
    std::thread([&] { back(host + 16384, device, 4096, 1, other, "in-stream"); }).join();
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&run, graph, 0));
    for (int launch = 0; launch < 2; ++launch) {
        CHECK(cudaGraphLaunch(run, stream));
        tell("d2h", 4096, 1, "not");
    }
    CHECK(cudaDeviceSynchronize());
    size_t nodes = 0;
    CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
    if (nodes != 1) std::exit(4);  // nothing but the copy is in the graph
}

void streams() {
    constexpr int kStreams = 8, kRounds = 4;
    constexpr size_t kPart = kMost / kStreams;
    char* const device = device_memory();
    char* const host = pinned_memory();
    std::vector<cudaStream_t> all;
    for (int n = 0; n < kStreams; ++n) all.push_back(new_stream());
    for (int round = 0; round < kRounds; ++round) {
        for (int n = 0; n < kStreams; ++n) {
            const int content = round * kStreams + n + 1;
            CHECK(cudaMemsetAsync(device + n * kPart, content, kPart, all[n]));
            back(host + n * kPart, device + n * kPart, kPart, content, all[n], "in-stream");
        }
        CHECK(cudaDeviceSynchronize());
        for (int n = 0; n < kStreams; ++n)
            into(device + n * kPart, host + n * kPart, kPart, round * kStreams + n + 1, all[n]);
        CHECK(cudaDeviceSynchronize());
    }
}

using DriverCopy = CUresult(void*, CUdeviceptr, size_t, CUstream);

/// A copy call of the driver itself, which no call of the runtime is around.
DriverCopy* driver_copy(const char* name) {
    const auto copy =
        reinterpret_cast<DriverCopy*>(dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), name));
    if (!copy) std::exit(5);
    return copy;
}
void by_driver(DriverCopy* copy, CUstream given, cudaStream_t stream) {
    char* const device = device_memory();
    char* const host = pinned_memory();
    for (int content = 1; content <= 3; ++content) {
        CHECK(cudaMemsetAsync(device, content, kMost, stream));
        occupy(stream);
        CHECK(copy(host, reinterpret_cast<CUdeviceptr>(device), kMost, given));
        tell("d2h", kMost, content, "in-stream");
        CHECK(cudaStreamSynchronize(stream));
        into(device, host, kMost, content, stream);
        CHECK(cudaStreamSynchronize(stream));
    }
}

void managed() {
    char* const device = device_memory();
    char* memory;
    CHECK(cudaMallocManaged(&memory, kMost));
    const cudaStream_t stream = new_stream();
    CHECK(cudaMemset(device, 1, kMost));
    back(memory, device, kMost, 1, stream, "not");
    CHECK(cudaStreamSynchronize(stream));
}

/// Ends before its stream.
void ending() {
    char* const device = device_memory();
    char* const host = pinned_memory();
    const cudaStream_t stream = new_stream();
    for (int each = 0; each < 20; ++each) {
        occupy(stream);
        CHECK(cudaMemcpyAsync(host, device, kMost, cudaMemcpyDeviceToHost, stream));
    }
}

}  // namespace

int main(int argc, char** argv) {
    const std::string name = argc > 1 ? argv[1] : "";
    CHECK(cudaFree(nullptr));
    if (name == "pinned") {
        returned(pinned_memory(), new_stream());
    } else if (name == "registered") {
        char* const host = static_cast<char*>(std::aligned_alloc(4096, kMost));
        CHECK(cudaHostRegister(host, kMost, cudaHostRegisterDefault));
        returned(host, new_stream());
    } else if (name == "null-stream") {
        returned(pinned_memory(), nullptr);
    } else if (name == "changed") {
        changed();
    } else if (name == "pageable") {
        pageable();
    } else if (name == "captured") {
        captured();
    } else if (name == "streams") {
        streams();
    } else if (name == "own-stream") {
        // The null stream is the thread's own here.
        by_driver(driver_copy("cuMemcpyDtoHAsync_v2_ptsz"), nullptr, cudaStreamPerThread);
    } else if (name == "driver") {
        const cudaStream_t stream = new_stream();
        by_driver(driver_copy("cuMemcpyDtoHAsync_v2"), stream, stream);
    } else if (name == "managed") {
        managed();
    } else if (name == "ending") {
        ending();
        std::printf("{\"host_functions\": 0}\n");
        return 0;
    } else {
        return 2;
    }
    CHECK(cudaDeviceSynchronize());
    std::printf("{\"host_functions\": %d}\n", g_host_functions);
    return 0;
}
