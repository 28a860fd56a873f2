// Kernels that get pinned memory of the host in every manner, and what they do with it: `mapped MIB`.
//
// Prints a line a kernel: its name, launches, bytes that its arguments reach, and bytes that it takes over
// the link.
//     busfare record --mapped -o run.bf -- build/mapped 512 && busfare report run.bf

#include <cooperative_groups.h>
#include <cuda.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#define CHECK(call)                                                               \
    if (const auto status = (call); status != 0) {                                \
        std::fprintf(stderr, "%s: %d (line %d)\n", #call, int(status), __LINE__); \
        std::exit(1);                                                             \
    }

struct Job {
    int times;
    const uint4* from;
    uint4* to;
};

__device__ uint32_t summed(const uint4* from, size_t words) {
    uint32_t sum = 0;
    for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < words;
         i += size_t{gridDim.x} * blockDim.x) {
        const uint4 word = from[i];
        sum += word.x ^ word.y ^ word.z ^ word.w;
    }
    return sum;
}
__global__ void once(const uint4* from, size_t words, uint32_t* sum) {
    atomicAdd(sum, summed(from, words));
}
__global__ void tenth(const uint4* from, size_t words, uint32_t* sum) {
    atomicAdd(sum, summed(from, words / 10));
}
__global__ void several(Job job, size_t words, uint32_t* sum) {
    for (int n = 0; n < job.times; ++n) atomicAdd(sum, summed(job.from, words));
}
__global__ void written(Job job, size_t words) {
    for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < words;
         i += size_t{gridDim.x} * blockDim.x)
        job.to[i] = make_uint4(i, i, i, i);
}
__global__ void together(const uint4* from, size_t words, uint32_t* sum) {
    cooperative_groups::this_grid().sync();
    atomicAdd(sum, summed(from, words));
}
__global__ void from_table(const uint4* const* table, size_t words, uint32_t* sum) {
    atomicAdd(sum, summed(table[0], words));
}
__global__ void on_gpu(const uint4* from, size_t words, uint32_t* sum) {
    atomicAdd(sum, summed(from, words));
}

int main(int argc, char** argv) {
    const size_t bytes = (argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 256) << 20;
    size_t words = bytes / sizeof(uint4);
    uint4 *host, *registered, *device;
    const uint4** table;
    uint32_t* sum;
    CHECK(cudaHostAlloc(&host, bytes, cudaHostAllocMapped));
    registered = static_cast<uint4*>(std::aligned_alloc(4096, bytes));
    for (size_t i = 0; i < words; ++i) host[i] = registered[i] = make_uint4(i, 1, 2, 3);
    CHECK(cudaHostRegister(registered, bytes, cudaHostRegisterMapped));
    CHECK(cudaMalloc(&device, bytes));
    CHECK(cudaMalloc(&sum, 4));
    CHECK(cudaMallocManaged(&table, 8));
    table[0] = host;
    CHECK(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice));
    const auto told = [&](const char* name, int launches, double reached, double taken) {
        CHECK(cudaDeviceSynchronize());
        std::printf("%s %d %.0f %.0f\n", name, launches, reached * bytes, taken * bytes);
    };
    const dim3 blocks(528), threads(256);
    for (int n = 0; n < 3; ++n) once<<<blocks, threads>>>(host, words, sum);
    told("once", 3, 3, 3);
    once<<<blocks, threads>>>(registered + words / 2, words / 2, sum);
    told("once", 1, 0.5, 0.5);
    tenth<<<blocks, threads>>>(host, words, sum);
    told("tenth", 1, 1, 0.1);
    several<<<blocks, threads>>>(Job{8, host, nullptr}, words, sum);
    told("several", 1, 1, 8);
    written<<<blocks, threads>>>(Job{1, device, registered}, words);
    told("written", 1, 1, 1);
    void* arguments[] = {&host, &words, &sum};
    CHECK(
        cudaLaunchCooperativeKernel(reinterpret_cast<void*>(together), dim3(132), threads, arguments, 0, 0));
    told("together", 1, 1, 1);
    cudaLaunchConfig_t configuration{};
    configuration.gridDim = blocks;
    configuration.blockDim = threads;
    CHECK(cudaLaunchKernelEx(&configuration, once, static_cast<const uint4*>(host), words, sum));
    told("once", 1, 1, 1);
    from_table<<<blocks, threads>>>(table, words, sum);
    told("from_table", 1, 0, 1);
    on_gpu<<<blocks, threads>>>(device, words, sum);
    told("on_gpu", 1, 0, 0);
    CHECK(cudaFreeHost(host));
    on_gpu<<<blocks, threads>>>(device, words, sum);
    told("on_gpu", 1, 0, 0);
    return 0;
}
