// Stands in for libcuda.so.1: `cuInit` loads the injected library as the driver does.

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

extern "C" int cuInit(unsigned) {
    static bool done = false;
    if (done) return 0;
    done = true;
    const char* path = std::getenv("CUDA_INJECTION64_PATH");
    void* library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
    auto initialize = library ? reinterpret_cast<int (*)()>(dlsym(library, "InitializeInjection")) : nullptr;
    if (initialize) initialize();
    return 0;
}

extern "C" int cuCtxSynchronize() {
    return 0;
}

// One device, of which a recording asks that begins late.
extern "C" int cuDeviceGetCount(int* count) {
    *count = 1;
    return 0;
}

extern "C" int cuDeviceGetName(char* name, int size, int) {
    std::snprintf(name, static_cast<size_t>(size), "NVIDIA H100 80GB HBM3");
    return 0;
}

extern "C" int cuDeviceTotalMem_v2(size_t* bytes, int) {
    *bytes = size_t{80} << 30;
    return 0;
}

extern "C" int cuDeviceGetAttribute(int* value, int which, int) {
    *value = which;
    return 0;
}

extern "C" int cuDriverGetVersion(int* version) {
    const char* asked = std::getenv("FAKE_DRIVER_VERSION");
    *version = asked ? std::atoi(asked) : 13000;
    return 0;
}

#ifndef FAKE_CUDA_WITHOUT_ARGUMENTS
// What arguments a kernel has: `void fake_given(uint32_t, char*, struct {uint32_t, char*, char*}, char*)`;
// any other none.
extern "C" int cuFuncGetParamInfo(const char* function, size_t index, size_t* offset, size_t* size) {
    static constexpr size_t kOffsets[] = {0, 8, 16, 40}, kSizes[] = {4, 8, 24, 8};
    if (std::strcmp(function, "fake_given") != 0 || index >= 4) return 1;
    *offset = kOffsets[index];
    *size = kSizes[index];
    return 0;
}

extern "C" int cuKernelGetParamInfo(const char*, size_t, size_t*, size_t*) {
    return 1;
}
#endif
