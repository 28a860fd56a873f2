// Programs that know what they do: `programs NAME` runs one and prints, as one line of JSON, the copies, sets
// and kernels that a recorder must have seen. Needs a GPU.

#include <cuda.h>
#include <cuda_runtime.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#define CHECK(call)                                                                  \
    do {                                                                             \
        const auto status = (call);                                                  \
        if (static_cast<int>(status) != 0) {                                         \
            std::fprintf(stderr, "%s: error %d\n", #call, static_cast<int>(status)); \
            std::exit(1);                                                            \
        }                                                                            \
    } while (0)

struct Tally {
    long long count = 0, bytes = 0;
    void add(size_t size) { count += 1, bytes += static_cast<long long>(size); }
};

struct Done {
    Tally h2d, d2h, d2d, sets;
    long long kernels = 0;
    void print() const {
        std::printf(
            "{\"h2d\": [%lld, %lld], \"d2h\": [%lld, %lld], \"d2d\": [%lld, %lld], \"sets\": [%lld, %lld], "
            "\"kernels\": %lld}\n",
            h2d.count, h2d.bytes, d2h.count, d2h.bytes, d2d.count, d2d.bytes, sets.count, sets.bytes,
            kernels);
        std::fflush(stdout);
    }
};

__global__ void scale(float* data, size_t count) {
    const size_t index = blockIdx.x * size_t{blockDim.x} + threadIdx.x;
    if (index < count) data[index] = data[index] * 2 + 1;
}

void launch(float* data, size_t count, cudaStream_t stream, Done& done) {
    scale<<<static_cast<unsigned>(count / 256 + 1), 256, 0, stream>>>(data, count);
    CHECK(cudaGetLastError());
    done.kernels += 1;
}

Done runtime_calls() {
    Done done;
    const size_t most = size_t{16} << 20;
    float *device, *device_copy, *pinned;
    std::vector<char> pageable(most);
    CHECK(cudaMalloc(&device, most));
    CHECK(cudaMalloc(&device_copy, most));
    CHECK(cudaMallocHost(&pinned, most));
    for (size_t bytes = 1; bytes <= most; bytes *= 4) {
        CHECK(cudaMemcpy(device, pageable.data(), bytes, cudaMemcpyHostToDevice));
        CHECK(cudaMemcpy(device, pinned, bytes, cudaMemcpyHostToDevice));
        CHECK(cudaMemcpyAsync(device, pinned, bytes, cudaMemcpyHostToDevice));
        for (int round = 0; round < 3; ++round) done.h2d.add(bytes);
        launch(device, bytes / 4, nullptr, done);
        CHECK(cudaMemcpy(device_copy, device, bytes, cudaMemcpyDeviceToDevice));
        done.d2d.add(bytes);
        CHECK(cudaMemcpy(pageable.data(), device, bytes, cudaMemcpyDeviceToHost));
        CHECK(cudaMemcpyAsync(pinned, device, bytes, cudaMemcpyDefault));
        done.d2h.add(bytes), done.d2h.add(bytes);
        CHECK(cudaMemsetAsync(device_copy, 0, bytes));
        done.sets.add(bytes);
    }
    CHECK(cudaMemcpy2D(device, 4096, pinned, 2048, 1000, 64, cudaMemcpyHostToDevice));
    done.h2d.add(1000 * 64);
    CHECK(cudaDeviceSynchronize());
    return done;
}

Done driver_calls() {
    static const char* ptx =
        ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry nothing() { ret; }\n";
    Done done;
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction nothing;
    CUdeviceptr a, b;
    void* pinned;
    const size_t bytes = size_t{1} << 20;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuModuleLoadData(&module, ptx));
    CHECK(cuModuleGetFunction(&nothing, module, "nothing"));
    CHECK(cuMemAlloc(&a, bytes));
    CHECK(cuMemAlloc(&b, bytes));
    CHECK(cuMemAllocHost(&pinned, bytes));
    CUstream stream;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int round = 0; round < 50; ++round) {
        CHECK(cuMemcpyHtoDAsync(a, pinned, bytes, stream));
        CHECK(cuMemcpyDtoDAsync(b, a, bytes, stream));
        CHECK(cuLaunchKernel(nothing, 1, 1, 1, 32, 1, 1, 0, stream, nullptr, nullptr));
        CHECK(cuMemsetD8Async(a, 1, bytes, stream));
        CHECK(cuMemcpyDtoHAsync(pinned, b, bytes, stream));
        CHECK(cuStreamSynchronize(stream));
        CHECK(cuMemcpyHtoD(a, pinned, 100));
        done.h2d.add(bytes), done.h2d.add(100), done.d2d.add(bytes), done.d2h.add(bytes),
            done.sets.add(bytes);
        done.kernels += 1;
    }
    CHECK(cuCtxSynchronize());
    return done;
}

Done graphs() {
    Done done;
    const size_t bytes = size_t{1} << 20;
    float *device, *pinned;
    CHECK(cudaMalloc(&device, bytes));
    CHECK(cudaMallocHost(&pinned, bytes));
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    cudaGraph_t graph;
    cudaGraphExec_t run;
    Done captured;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK(cudaMemcpyAsync(device, pinned, bytes, cudaMemcpyHostToDevice, stream));
    for (int round = 0; round < 5; ++round) launch(device, bytes / 4, stream, captured);
    CHECK(cudaMemcpyAsync(pinned, device, bytes, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaMemsetAsync(device, 0, bytes, stream));
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&run, graph, 0));
    for (int round = 0; round < 100; ++round) {
        CHECK(cudaGraphLaunch(run, stream));
        done.h2d.add(bytes), done.d2h.add(bytes), done.sets.add(bytes);
        done.kernels += 5;
    }
    CHECK(cudaStreamSynchronize(stream));
    return done;
}

Done streams_and_events() {
    Done done;
    const size_t bytes = size_t{256} << 10;
    const int count = 16;
    int least, greatest;
    CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    std::vector<cudaStream_t> streams(count);
    std::vector<cudaEvent_t> events(count);
    float *device, *pinned;
    CHECK(cudaMalloc(&device, bytes * count));
    CHECK(cudaMallocHost(&pinned, bytes * count));
    for (int index = 0; index < count; ++index) {
        CHECK(cudaStreamCreateWithPriority(&streams[index], cudaStreamNonBlocking,
                                           index % 2 ? greatest : least));
        CHECK(cudaEventCreateWithFlags(&events[index], cudaEventDisableTiming));
    }
    for (int round = 0; round < 20; ++round) {
        for (int index = 0; index < count; ++index) {
            float* to = device + index * bytes / 4;
            if (index > 0) CHECK(cudaStreamWaitEvent(streams[index], events[index - 1], 0));
            CHECK(cudaMemcpyAsync(to, pinned + index * bytes / 4, bytes, cudaMemcpyHostToDevice,
                                  streams[index]));
            launch(to, bytes / 4, streams[index], done);
            CHECK(cudaEventRecord(events[index], streams[index]));
            done.h2d.add(bytes);
        }
    }
    CHECK(cudaEventSynchronize(events[count - 1]));
    CHECK(cudaDeviceSynchronize());
    return done;
}

Done threads() {
    const int count = 8;
    std::vector<Done> of_threads(count);
    std::vector<std::thread> running;
    for (int index = 0; index < count; ++index) {
        running.emplace_back([&done = of_threads[index], index] {
            const size_t bytes = size_t{64} << 10;
            cudaStream_t stream;
            float *device, *pinned;
            CHECK(cudaStreamCreate(&stream));
            CHECK(cudaMalloc(&device, bytes));
            CHECK(cudaMallocHost(&pinned, bytes));
            for (int round = 0; round < 200 + index; ++round) {
                CHECK(cudaMemcpyAsync(device, pinned, bytes, cudaMemcpyHostToDevice, stream));
                launch(device, bytes / 4, stream, done);
                CHECK(cudaMemcpyAsync(pinned, device, bytes, cudaMemcpyDeviceToHost, stream));
                done.h2d.add(bytes), done.d2h.add(bytes);
            }
            CHECK(cudaStreamSynchronize(stream));
        });
    }
    for (std::thread& thread : running) thread.join();
    Done sum;
    for (const Done& done : of_threads) {
        sum.kernels += done.kernels;
        sum.h2d.count += done.h2d.count, sum.h2d.bytes += done.h2d.bytes;
        sum.d2h.count += done.d2h.count, sum.d2h.bytes += done.d2h.bytes;
    }
    return sum;
}

/// Managed memory: no copy call at all; the page migrations to the GPU cover every byte touched, and back.
Done managed() {
    Done done;
    const size_t bytes = size_t{64} << 20;
    float* data;
    CHECK(cudaMallocManaged(&data, bytes));
    std::memset(data, 1, bytes);
    launch(data, bytes / 4, nullptr, done);
    CHECK(cudaDeviceSynchronize());
    volatile float sum = 0;
    for (size_t index = 0; index < bytes / 4; index += 1024) sum = sum + data[index];
    CHECK(cudaFree(data));
    return done;
}

Done batched() {
    Done done;
#if CUDART_VERSION >= 13000
    const size_t bytes = size_t{64} << 10, count = 32;
    char *device, *pinned;
    CHECK(cudaMalloc(&device, bytes * count));
    CHECK(cudaMallocHost(&pinned, bytes * count));
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    std::vector<void*> to(count);
    std::vector<const void*> from(count);
    std::vector<size_t> sizes(count, bytes);
    for (size_t index = 0; index < count; ++index)
        to[index] = device + index * bytes, from[index] = pinned + index * bytes;
    cudaMemcpyAttributes attributes{};
    attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    size_t first = 0;
    for (int round = 0; round < 10; ++round) {
        CHECK(cudaMemcpyBatchAsync(to.data(), from.data(), sizes.data(), count, &attributes, &first, 1,
                                   stream));
        for (size_t index = 0; index < count; ++index) done.h2d.add(bytes);
    }
    CHECK(cudaStreamSynchronize(stream));
#endif
    return done;
}

/// So many rounds of a copy and a kernel.
Done rounds(int count) {
    Done done;
    const size_t bytes = size_t{4} << 10;
    float *device, *pinned;
    CHECK(cudaMalloc(&device, bytes));
    CHECK(cudaMallocHost(&pinned, bytes));
    for (int round = 0; round < count; ++round) {
        CHECK(cudaMemcpyAsync(device, pinned, bytes, cudaMemcpyHostToDevice));
        launch(device, bytes / 4, nullptr, done);
        done.h2d.add(bytes);
        if (round % 100 == 99) CHECK(cudaDeviceSynchronize());
    }
    CHECK(cudaDeviceSynchronize());
    return done;
}

/// Nanoseconds of host time an operation, of each of `parts` stretches.
/// `kernels` and `copies` fill a stream; `waited-kernels` and `waited-copies` (4 KiB, pageable) wait after
/// each, and `queries` ask for the device: nothing of that is recorded.
std::vector<double> loop(const std::string& what, int count) {
    float *device, *pinned;
    CHECK(cudaMalloc(&device, 4096));
    CHECK(cudaMallocHost(&pinned, 4096));
    std::vector<char> pageable(4096);
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    constexpr int kBlock = 256;  // fewer than the queue holds, so that the host is timed and not the GPU
    const auto block = [&] {
        const auto start = std::chrono::steady_clock::now();
        for (int index = 0; index < kBlock; ++index) {
            if (what == "kernels") scale<<<1, 32, 0, stream>>>(device, 32);
            if (what == "copies") cudaMemcpyAsync(device, pinned, 4, cudaMemcpyHostToDevice, stream);
            if (what == "waited-kernels")
                scale<<<1, 32, 0, stream>>>(device, 32), cudaStreamSynchronize(stream);
            if (what == "waited-copies") {
                cudaMemcpyAsync(device, pageable.data(), pageable.size(), cudaMemcpyHostToDevice, stream);
                cudaStreamSynchronize(stream);
            }
            if (int number; what == "queries") cudaGetDevice(&number);
        }
        const std::chrono::duration<double> host = std::chrono::steady_clock::now() - start;
        CHECK(cudaStreamSynchronize(stream));
        return host.count() / kBlock * 1e9;
    };
    for (int index = 0; index < 16; ++index) block();
    const int parts = 20, blocks = std::max(1, count / parts / kBlock);
    std::vector<double> means;
    for (int part = 0; part < parts; ++part) {
        double sum = 0;
        for (int index = 0; index < blocks; ++index) sum += block();
        means.push_back(sum / blocks);
    }
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaFree(device));
    return means;
}

void loops(const std::string& what, int count, int threads) {
    std::vector<std::vector<double>> means(static_cast<size_t>(threads));
    std::vector<std::thread> running;
    for (auto& thread_means : means) running.emplace_back([&] { thread_means = loop(what, count); });
    for (std::thread& thread : running) thread.join();
    for (const auto& thread_means : means) {
        for (const double mean : thread_means) std::printf("%.1f ", mean);
    }
    std::printf("\n");
}

/// `WHAT COUNT THREADS` a line: runs that loop and prints its figures as a line.
void serve() {
    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream words(line);
        std::string what;
        int count = 0, threads = 1;
        words >> what >> count >> threads;
        loops(what, count, threads);
        std::fflush(stdout);
    }
}

int main(int argc, char** argv) {
    const std::string name = argc > 1 ? argv[1] : "";
    const int count = argc > 2 ? std::atoi(argv[2]) : 1000;
    if (name == "runtime-calls") runtime_calls().print();
    if (name == "driver-calls") driver_calls().print();
    if (name == "graphs") graphs().print();
    if (name == "streams") streams_and_events().print();
    if (name == "threads") threads().print();
    if (name == "managed") managed().print();
    if (name == "batched") batched().print();
    if (name == "late") {
        std::this_thread::sleep_for(std::chrono::milliseconds(500));
        rounds(count).print();
    }
    if (name == "reset") {
        Done done = rounds(count);
        CHECK(cudaDeviceReset());
        const Done more = rounds(count);
        done.kernels += more.kernels;
        done.h2d.count += more.h2d.count, done.h2d.bytes += more.h2d.bytes;
        done.print();
    }
    if (name == "fork") {
        rounds(count).print();
        if (fork() == 0) std::exit(0);
    }
    if (name == "quick-exit") {
        rounds(count).print();
        std::this_thread::sleep_for(std::chrono::milliseconds(1500));
        _exit(0);
    }
    if (name == "abort") {
        rounds(count).print();
        std::this_thread::sleep_for(std::chrono::milliseconds(1500));
        std::abort();
    }
    if (name == "serve") serve();
    return 0;
}
