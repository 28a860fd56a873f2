// Kernels whose bytes and operations are known, each launched three times: `counted`.
//
// Prints a line of JSON a kernel: its name, what one launch reads and writes in memory, goes through L2 and
// computes, and how long its third launch took.

#include <cuda_runtime.h>

#include <cstdio>

namespace {

constexpr size_t kCount = size_t{256} << 20;  // floats: 1 GiB, far beyond any L2
constexpr size_t kInL2 = size_t{4} << 20;     // floats: 16 MiB
constexpr int kTimes = 64;                    // that the small buffer is read
constexpr int kBlock = 256;
constexpr int kThreads = 132 * 8 * kBlock;
constexpr int kSteps = 20000;

__global__ void copy(float* to, const float* from) {
    const size_t i = blockIdx.x * size_t{kBlock} + threadIdx.x;
    to[i] = from[i];
}

__global__ void triad(float* to, const float* a, const float* b) {
    const size_t i = blockIdx.x * size_t{kBlock} + threadIdx.x;
    to[i] = a[i] + 3.0f * b[i];
}

/// 8 independent chains a thread.
template <typename Number>
__global__ void multiply_add(Number* to, Number factor) {
    Number chain[8];
    for (int c = 0; c < 8; ++c) chain[c] = static_cast<Number>(threadIdx.x + c);
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
        for (int c = 0; c < 8; ++c) chain[c] = chain[c] * factor + static_cast<Number>(1);
    }
    Number sum = 0;
    for (int c = 0; c < 8; ++c) sum += chain[c];
    to[blockIdx.x * kBlock + threadIdx.x] = sum;
}

/// Past L1, so that every reading is of L2.
__global__ void read_small(float* to, const float* from) {
    float sum = 0;
    const size_t thread = blockIdx.x * size_t{kBlock} + threadIdx.x;
    for (int time = 0; time < kTimes; ++time) {
        for (size_t i = thread; i < kInL2; i += kThreads) sum += __ldcg(from + (i + time * 4096) % kInL2);
    }
    to[thread] = sum;
}

template <typename Launch>
void thrice(const char* name, double dram_read, double dram_write, double l2, double fp32, double fp64,
            Launch launch) {
    cudaEvent_t begin, end;
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
    for (int time = 0; time < 3; ++time) {
        cudaEventRecord(begin);
        launch();
        cudaEventRecord(end);
        cudaDeviceSynchronize();
    }
    float ms = 0;
    cudaEventElapsedTime(&ms, begin, end);
    const cudaError_t error = cudaGetLastError();
    std::printf(
        "{\"name\": \"%s\", \"error\": \"%s\", \"dram_read_bytes\": %.0f, \"dram_write_bytes\": %.0f, "
        "\"l2_bytes\": %.0f, \"fp32_flops\": %.0f, \"fp64_flops\": %.0f, \"seconds\": %.9f}\n",
        name, error == cudaSuccess ? "" : cudaGetErrorString(error), dram_read, dram_write, l2, fp32, fp64,
        ms * 1e-3);
}

}  // namespace

int main() {
    float *a = nullptr, *b = nullptr, *c = nullptr;
    for (float** buffer : {&a, &b, &c}) {
        cudaMalloc(buffer, kCount * sizeof(float));
        cudaMemset(*buffer, 0, kCount * sizeof(float));
    }
    const double bytes = kCount * sizeof(float);
    const double flops = 2.0 * 8 * kSteps * kThreads;
    const double small = double(kInL2) * sizeof(float);
    const int blocks = kCount / kBlock;
    thrice("copy", bytes, bytes, 2 * bytes, 0, 0, [&] { copy<<<blocks, kBlock>>>(a, b); });
    thrice("triad", 2 * bytes, bytes, 3 * bytes, 2.0 * kCount, 0,
           [&] { triad<<<blocks, kBlock>>>(a, b, c); });
    thrice("multiply_add<float>", 0, 0, 0, flops, 0,
           [&] { multiply_add<float><<<kThreads / kBlock, kBlock>>>(a, 0.5f); });
    thrice("multiply_add<double>", 0, 0, 0, 0, flops,
           [&] { multiply_add<double><<<kThreads / kBlock, kBlock>>>(reinterpret_cast<double*>(a), 0.5); });
    thrice("read_small", small, 0, small * kTimes, 0, 0,
           [&] { read_small<<<kThreads / kBlock, kBlock>>>(a, b); });
    return 0;
}
