// A CUDA runtime for tests of slow_link: device memory and pinned memory lie in arrays, copies are made at
// once, and `report` prints the bytes copied in each direction.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
static char device[80 << 20], pinned[80 << 20];
static size_t on_device, on_host, crossed[5];
static bool in(const void* p, const char* array) {
    return p >= array && p < array + (80 << 20);
}
static cudaError_t moved(void* to, const void* from, size_t n, cudaMemcpyKind kind) {
    memmove(to, from, n);
    crossed[kind] += n;
    return cudaSuccess;
}
extern "C" {
cudaError_t cudaMalloc(void** p, size_t n) {
    *p = device + on_device;
    on_device += n;
    return cudaSuccess;
}
cudaError_t cudaMallocHost(void** p, size_t n) {
    *p = pinned + on_host;
    on_host += n;
    return cudaSuccess;
}
cudaError_t cudaMemset(void*, int, size_t n) {
    printf("set %zu\n", n);
    return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
    return cudaSuccess;
}
cudaError_t cudaPeekAtLastError() {
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) {
    return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t*, unsigned) {
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) {
    return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t) {
    return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t n, cudaMemcpyKind kind) {
    return moved(to, from, n, kind);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t n, cudaMemcpyKind kind, cudaStream_t) {
    return moved(to, from, n, kind);
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* a, const void* p) {
    a->type = in(p, device)   ? cudaMemoryTypeDevice
              : in(p, pinned) ? cudaMemoryTypeHost
                              : cudaMemoryTypeUnregistered;
    return cudaSuccess;
}
void report() {
    printf("in %zu out %zu\n", crossed[1], crossed[2]);
}
}
