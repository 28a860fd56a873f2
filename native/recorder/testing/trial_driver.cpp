// Stands in for libcuda.so.1 in tests of `busfare try`. Its GPU memory is host memory. It defers asynchronous
// copies until the program synchronises. It logs its calls to the file FAKE_LOG, and ends the program if
// registered memory is unmapped, or is unpinned before its copy.

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <dlfcn.h>
#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using Address = uintptr_t;
std::map<Address, size_t> g_device, g_registered, g_allocated;
std::vector<std::function<void()>> g_queue;  ///< pending work of all streams, in order
bool g_captured = false;
bool g_allocating = false;
std::atomic<bool> g_waiting{false}, g_copying{false};  ///< the GPU, a copy wait for the program
void* g_internal = nullptr;                            ///< allocated by the driver
unsigned g_scheduling = 0;

/// The start of the range that contains the memory; 0 if there is none.
Address within(const std::map<Address, size_t>& ranges, const void* memory) {
    const auto at = ranges.upper_bound(reinterpret_cast<Address>(memory));
    if (at == ranges.begin()) return 0;
    const auto& [begin, bytes] = *std::prev(at);
    return reinterpret_cast<Address>(memory) < begin + bytes ? begin : 0;
}
bool pinned(const void* memory) {
    return within(g_registered, memory) || within(g_allocated, memory);
}

[[noreturn]] void fail(const char* what) {
    std::fprintf(stderr, "stand-in: %s\n", what);
    std::_Exit(99);
}

bool mapped(Address begin, size_t bytes) {
    std::vector<unsigned char> pages(bytes / 4096 + 1);
    return mincore(reinterpret_cast<void*>(begin), bytes, pages.data()) == 0;
}

void check() {
    for (const auto& [begin, bytes] : g_registered) {
        if (!mapped(begin, bytes)) fail("registered memory was unmapped");
    }
}

void log(const std::string& line) {
    static FILE* const file = std::getenv("FAKE_LOG") ? std::fopen(std::getenv("FAKE_LOG"), "a") : nullptr;
    if (file) std::fprintf(file, "%s\n", line.c_str()), std::fflush(file);
    check();
}

void drain() {
    if (g_waiting) fail("a wait for a GPU that waits for the program");
    auto queue = std::move(g_queue);
    g_queue.clear();
    for (const auto& work : queue) work();
}

CUresult copied(const char* what, void* to, const void* from, size_t bytes, const void* host, bool blocking) {
    const bool fast = pinned(host);
    const void* const last = static_cast<const char*>(host) + bytes - 1;
    if (within(g_registered, host) != within(g_registered, last)) return CUDA_ERROR_INVALID_VALUE;
    const char* const kind = within(g_allocated, host) ? "staged" : fast ? "pinned" : "pageable";
    log(std::string(what) + " " + kind + " " + std::to_string(bytes));
    if (g_captured) return CUDA_SUCCESS;
    const bool small = !blocking && !fast && host == from && bytes <= 65536;  // is staged
    const std::string staged(small ? static_cast<const char*>(from) : "", small ? bytes : 0);
    const auto work = [=] {
        if (fast && !pinned(host)) fail("memory was unpinned before its copy");
        std::memcpy(to, small ? staged.data() : from, bytes);
    };
    if (blocking || (!fast && !small)) {
        while (blocking && g_waiting) g_copying = true, std::this_thread::yield();
        drain();
        work();
    } else {
        g_queue.push_back(work);
    }
    return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

int fake_registered() {
    return static_cast<int>(g_registered.size());
}
unsigned fake_scheduling() {
    return g_scheduling;
}
void fake_internal() {
    g_internal = std::malloc(100);
}
int fake_wait(int on) {
    g_waiting = on;
    return g_copying;
}
void fake_capture(int on) {
    g_captured = on;
}

CUresult cuInit(unsigned) {
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int* count) {
    *count = 1;
    return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice* device, int) {
    *device = 0;
    return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice, unsigned flags) {
    g_scheduling = flags;
    return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext* context) {
    *context = reinterpret_cast<CUcontext>(1);
    return CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext) {
    return CUDA_SUCCESS;
}
CUresult cuCtxDestroy_v2(CUcontext) {
    if (!g_registered.empty()) fail("memory is still registered in a destroyed context");
    if (!g_allocated.empty()) fail("memory is still allocated in a destroyed context");
    return CUDA_SUCCESS;
}
CUresult cuMemAlloc_v2(CUdeviceptr* memory, size_t bytes) {
    g_allocating = true;
    dlclose(dlopen("libm.so.6", RTLD_NOW));  // as the driver may
    g_allocating = false;
    void* const made = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    g_device[reinterpret_cast<Address>(made)] = bytes;
    *memory = reinterpret_cast<CUdeviceptr>(made);
    return CUDA_SUCCESS;
}
CUresult cuMemAllocManaged(CUdeviceptr* memory, size_t bytes, unsigned) {
    return cuMemAlloc_v2(memory, bytes);
}
CUresult cuMemFree_v2(CUdeviceptr memory) {
    g_device.erase(static_cast<Address>(memory));
    std::free(reinterpret_cast<void*>(memory));
    return CUDA_SUCCESS;
}
CUresult cuMemAdvise_v2(CUdeviceptr, size_t, CUmem_advise, CUmemLocation) {
    return CUDA_SUCCESS;
}
CUresult cuMemPrefetchAsync_v2(CUdeviceptr memory, size_t bytes, CUmemLocation, unsigned, CUstream) {
    if (g_captured) fail("a prefetch was captured");
    if (!within(g_device, reinterpret_cast<void*>(memory + bytes - 1))) fail("a prefetch of freed memory");
    log("prefetch " + std::to_string(bytes));
    return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice* device) {
    *device = 0;
    return CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice) {
    *bytes = size_t{16} << 20;
    return CUDA_SUCCESS;
}
/// The test's kernels take a number, and a structure of a number and a pointer.
CUresult cuFuncGetParamInfo(CUfunction, size_t number, size_t* offset, size_t* bytes) {
    *offset = 16 * number;
    *bytes = number == 0 ? 4 : 16;
    return number < 2 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuKernelGetParamInfo(CUkernel, size_t, size_t*, size_t*) {
    return CUDA_ERROR_INVALID_VALUE;
}
CUresult cuLaunchKernel(CUfunction kernel, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                        unsigned, CUstream, void**, void**) {
    log("kernel");
    if (kernel) reinterpret_cast<void (*)()>(kernel)();
    return CUDA_SUCCESS;
}
CUresult cuLaunchHostFunc(CUstream, CUhostFn function, void* argument) {
    function(argument);
    return CUDA_SUCCESS;
}
CUresult cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
    *memory = std::aligned_alloc(4096, bytes);
    g_allocated[reinterpret_cast<Address>(*memory)] = bytes;
    return CUDA_SUCCESS;
}
CUresult cuMemFreeHost(void* memory) {
    g_allocated.erase(reinterpret_cast<Address>(memory));
    std::free(memory);
    return CUDA_SUCCESS;
}
CUresult cuMemHostRegister_v2(void* memory, size_t bytes, unsigned) {
    if (std::getenv("FAKE_REFUSE")) return CUDA_ERROR_OUT_OF_MEMORY;
    const auto begin = reinterpret_cast<Address>(memory);
    if (!mapped(begin, bytes)) return CUDA_ERROR_INVALID_VALUE;
    // Another thread, which holds a lock that this thread waits for, frees memory of the driver.
    std::thread([] { std::free(std::exchange(g_internal, nullptr)); }).join();
    for (const auto& [other, size] : g_registered) {
        if (begin < other + size && other < begin + bytes) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    }
    g_registered[begin] = bytes;
    log("register " + std::to_string(bytes));
    return CUDA_SUCCESS;
}
CUresult cuMemHostUnregister(void* memory) {
    if (g_allocating) fail("a call from inside the driver");
    log("unregister");
    errno = EINVAL;
    return g_registered.erase(reinterpret_cast<Address>(memory)) ? CUDA_SUCCESS
                                                                 : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}
CUresult cuPointerGetAttribute(void* value, CUpointer_attribute which, CUdeviceptr pointer) {
    const void* const memory = reinterpret_cast<void*>(pointer);
    const bool device = within(g_device, memory);
    if (!device && !pinned(memory)) return CUDA_ERROR_INVALID_VALUE;
    const unsigned type = device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
    const unsigned managed = device && std::getenv("FAKE_MANAGED");
    const unsigned owner = std::getenv("FAKE_OTHER_GPU") ? 1 : 0;
    const bool is_managed = which == CU_POINTER_ATTRIBUTE_IS_MANAGED;
    const bool is_owner = which == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
    std::memcpy(value, is_managed ? &managed : is_owner ? &owner : &type, is_managed ? 1 : sizeof type);
    return CUDA_SUCCESS;
}
CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
    static CUstreamCaptureMode now = CU_STREAM_CAPTURE_MODE_GLOBAL;
    std::swap(*mode, now);
    return CUDA_SUCCESS;
}
CUresult cuStreamIsCapturing(CUstream, CUstreamCaptureStatus* status) {
    *status = g_captured ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}
CUresult cuStreamCreate(CUstream* stream, unsigned) {
    *stream = reinterpret_cast<CUstream>(0x99);
    return CUDA_SUCCESS;
}
CUresult cuStreamSynchronize(CUstream) {
    if (g_captured) fail("a wait for a captured stream");
    log("synchronize");
    drain();
    return CUDA_SUCCESS;
}
CUresult cuCtxSynchronize() {
    drain();
    return CUDA_SUCCESS;
}
CUresult cuEventCreate(CUevent* event, unsigned) {
    *event = reinterpret_cast<CUevent>(2);
    return CUDA_SUCCESS;
}
CUresult cuEventDestroy_v2(CUevent) {
    return CUDA_SUCCESS;
}
CUresult cuEventRecord(CUevent, CUstream) {
    return CUDA_SUCCESS;
}
CUresult cuEventSynchronize(CUevent) {
    log("event");
    drain();
    return CUDA_SUCCESS;
}
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
    return copied("h2d", reinterpret_cast<void*>(to), from, bytes, from, true);
}
CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
    return copied("d2h", to, reinterpret_cast<void*>(from), bytes, to, true);
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream) {
    return copied("h2d-async", reinterpret_cast<void*>(to), from, bytes, from, false);
}
CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream) {
    return copied("d2h-async", to, reinterpret_cast<void*>(from), bytes, to, false);
}
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream) {
    const auto *const into = reinterpret_cast<void*>(to), *const out = reinterpret_cast<void*>(from);
    return copied("any-async", const_cast<void*>(into), out, bytes, within(g_device, into) ? out : into,
                  false);
}
CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D*) {
    return CUDA_SUCCESS;
}
CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* rows) {
    for (size_t row = 0; row < rows->Height; ++row)
        std::memcpy(reinterpret_cast<char*>(rows->dstDevice) + row * rows->dstPitch,
                    static_cast<const char*>(rows->srcHost) + row * rows->srcPitch, rows->WidthInBytes);
    log(std::string("rows ") + (pinned(rows->srcHost) ? "pinned" : "pageable"));
    return CUDA_SUCCESS;
}
CUresult cuGetProcAddress_v2(const char* base, void** function, int, cuuint64_t,
                             CUdriverProcAddressQueryResult*) {
    *function = nullptr;
    for (const char* version : {"_v2", ""}) {
        if (!*function)
            *function =
                dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), (std::string(base) + version).c_str());
    }
    return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

}  // extern "C"
