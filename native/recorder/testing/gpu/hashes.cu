// Copies back whose bytes are known: `hashes NAME` makes those of one scenario and prints a line a copy, as
// JSON: direction, bytes, what they hold (the same number: the same bytes), and how a recording with
// fingerprints must have hashed them. Needs a GPU; hashes.py checks.

#include <cuda.h>
#include <cuda_runtime.h>

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

/// `hashed`: by-thread or not.
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
            back(host, device, bytes, content, stream, "not");
            CHECK(cudaStreamSynchronize(stream));
            into(device, host, bytes, content, stream);
            CHECK(cudaStreamSynchronize(stream));
        }
    }
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
    std::vector<char> host(2 * 4096);
    const cudaStream_t stream = new_stream(), second_stream = new_stream();
    CHECK(cudaMemset(device, 1, kMost));
    cudaGraph_t graph;
    cudaGraphExec_t run;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    spin<<<1, 1, 0, stream>>>(1000);
    CHECK(cudaGetLastError());
    // Beside it a copy of another stream, which has its hash, by this thread and another.
    back(host.data(), device, 4096, 1, second_stream, "by-thread");
    std::thread([&] { back(host.data() + 4096, device, 4096, 1, second_stream, "by-thread"); }).join();
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&run, graph, 0));
    CHECK(cudaGraphLaunch(run, stream));
    CHECK(cudaDeviceSynchronize());
    size_t nodes = 0;
    CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
    if (nodes != 1) std::exit(4);  // nothing but the kernel is in the graph
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
    } else if (name == "pageable") {
        pageable();
    } else if (name == "captured") {
        captured();
    } else if (name == "managed") {
        managed();
    } else {
        return 2;
    }
    CHECK(cudaDeviceSynchronize());
    return 0;
}
