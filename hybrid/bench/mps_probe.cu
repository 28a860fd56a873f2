// One process on the GPU under whatever MPS daemon the environment names: a context, a copy each way, done.
// Run by run/with_mps.sh under a time limit, because a daemon that cannot serve lets its clients wait without
// end.
#include <cuda_runtime.h>

#include <chrono>
#include <cstdio>

int main() {
    const auto begin = std::chrono::steady_clock::now();
    const auto seconds = [&] {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    };
    int count = 0, there = 42, back = 0;
    int* device = nullptr;
    cudaError_t status = cudaGetDeviceCount(&count);
    if (status == cudaSuccess) status = cudaSetDevice(0);
    if (status == cudaSuccess) status = cudaMalloc(&device, sizeof there);
    if (status == cudaSuccess) status = cudaMemcpy(device, &there, sizeof there, cudaMemcpyHostToDevice);
    if (status == cudaSuccess) status = cudaMemcpy(&back, device, sizeof back, cudaMemcpyDeviceToHost);
    if (status != cudaSuccess || back != there) {
        std::fprintf(stderr, "mps_probe: %s\n",
                     status != cudaSuccess ? cudaGetErrorString(status) : "a copy came back wrong");
        return 1;
    }
    std::printf("mps_probe: %d GPUs, a context and two copies in %.2f s\n", count, seconds());
    return 0;
}
