// Stands in for libcuda.so.1: `cuInit` loads the injected library as the driver does.

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

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
