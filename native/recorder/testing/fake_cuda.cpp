// Stands in for libcuda.so.1: `cuInit` loads the injected library as the driver does.

#include <dlfcn.h>

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

extern "C" int cuCtxSynchronize() { return 0; }

extern "C" int cuDriverGetVersion(int* version) {
    const char* asked = std::getenv("FAKE_DRIVER_VERSION");
    *version = asked ? std::atoi(asked) : 13000;
    return 0;
}
