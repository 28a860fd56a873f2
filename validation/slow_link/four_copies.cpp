// A program for tests of slow_link: in and out of pageable and of pinned memory; status 1 where bytes differ.
#include <cuda_runtime_api.h>

#include <cstring>
#include <vector>
extern "C" void report();
int main() {
    size_t n = (9 << 20) + 5;
    std::vector<char> sent(n), back(n);
    for (size_t at = 0; at < n; ++at) sent[at] = static_cast<char>(at * 7 + at / 251);
    char *there, *fixed;
    cudaMalloc(reinterpret_cast<void**>(&there), n);
    cudaMallocHost(reinterpret_cast<void**>(&fixed), n);
    cudaMemcpy(there, sent.data(), n, cudaMemcpyHostToDevice);
    cudaMemcpyAsync(fixed, there, n, cudaMemcpyDefault, nullptr);
    cudaMemcpy(back.data(), there, n, cudaMemcpyDeviceToHost);
    cudaMemcpy(there, fixed, 100, cudaMemcpyHostToDevice);
    report();
    return sent != back || memcmp(fixed, sent.data(), n);
}
