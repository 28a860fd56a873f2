// Stands in for libcuda.so.1: `cuInit` loads the injected library as the driver does.

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <initializer_list>

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
    constexpr int kUsesHostPageTables = 100;
    *value = which == kUsesHostPageTables ? std::getenv("FAKE_COHERENT") != nullptr : which;
    return 0;
}

extern "C" int cuDriverGetVersion(int* version) {
    const char* setting = std::getenv("FAKE_DRIVER_VERSION");
    *version = setting ? std::atoi(setting) : 13000;
    return 0;
}

// Streams and memory are with the GPU, in the stand-in for CUPTI (fake_gpu.cpp).
template <typename... Arguments>
int of_gpu(const char* name, Arguments... arguments) {
    for (const char* library : {"libcupti.so.13", "libcupti.so.12"}) {
        void* const loaded = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
        void* const function = loaded ? dlsym(loaded, name) : nullptr;
        if (function) return reinterpret_cast<int (*)(Arguments...)>(function)(arguments...);
    }
    return 100;  // no device
}

extern "C" int cuStreamIsCapturing(void* stream, int* status) {
    return of_gpu("fake_is_capturing", stream, 0, status);
}
extern "C" int cuStreamIsCapturing_ptsz(void* stream, int* status) {
    return of_gpu("fake_is_capturing", stream, 1, status);
}
extern "C" int cuThreadExchangeStreamCaptureMode(int* mode) {
    return of_gpu("fake_exchange_mode", mode);
}
extern "C" int cuPointerGetAttribute(void* value, int which, void* pointer) {
    return of_gpu("fake_pointer_attribute", value, which, pointer);
}
