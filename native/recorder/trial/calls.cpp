// Wrappers of driver calls, under the names of the driver: the copies that the library may change, and calls
// that limit how it may change them.

#define __CUDA_API_VERSION_INTERNAL  // the variants for the default stream of each thread
#include "calls.h"

#include <atomic>
#include <optional>
#include <utility>

#include "driver.h"
#include "pins.h"
#include "report.h"
#include "ring.h"

using namespace busfare::trial;

namespace {

/// Set when the program creates non-blocking streams, or shares GPU memory (IPC, GPUDirect): then a blocking
/// copy must have completed when it returns.
std::atomic<bool> g_must_arrive{false};

struct Copy {
    const void* host;
    size_t bytes;
    CUdeviceptr device;  ///< 0: an array, or rows
    bool to_gpu;
    bool blocking;
    CUstream stream;  ///< never 0, which differs between variants of a call
};

/// Whether the driver does not know the host memory.
bool pageable(const void* host) {
    const BesideCaptures beside;
    CUmemorytype type{};
    return REAL(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                       reinterpret_cast<CUdeviceptr>(host)) != CUDA_SUCCESS;
}

/// Whether the CPU cannot access this GPU memory.
bool hidden(CUdeviceptr device) {
    const BesideCaptures beside;
    CUmemorytype type{};
    bool managed = false;
    const auto ask = REAL(cuPointerGetAttribute);
    return device && ask(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device) == CUDA_SUCCESS &&
           type == CU_MEMORYTYPE_DEVICE &&
           ask(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, device) == CUDA_SUCCESS && !managed;
}

/// Whether a CUDA graph captures the copy.
bool captured(const Copy& copy) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    const CUresult result = REAL(cuStreamIsCapturing)(copy.stream, &status);
    return result != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/// Makes a copy of the program, unchanged (`call`) or through pinned memory.
template <typename Call>
CUresult moved(const Copy& copy, Call&& call) {
    begin();
    note_call();
    if (Inside::active() || !active()) return call();
    const Inside inside;
    if (!copy.bytes) return call();
    std::optional<PinUse> use(std::in_place, copy.host, copy.bytes, false);
    const bool earlier{*use};
    if (!earlier && !use->partly() && !pageable(copy.host)) return call();
    count_copy(kPageableCopies, copy.bytes);
    const auto kept = [&](Count why) {
        count_copy(why, copy.bytes);
        if (!earlier) release_pins(copy.host, copy.bytes);
        const CUresult result = call();
        if (result != CUDA_ERROR_INVALID_VALUE || !any_pins()) return result;
        release_pins(copy.host, copy.bytes);  // another thread may have pinned a part meanwhile
        return call();
    };
    const bool may_stage = changes().stage && copy.to_gpu && copy.device;
    if (!changes().pin && !may_stage) return call();
    if (!copy.blocking && captured(copy)) {
        use.reset();
        never_pin(copy.host, copy.bytes);  // replays of the graph copy it without a call
        return kept(kKeptCapture);
    }
    if (may_stage && !earlier && copy.bytes >= kLeastStaged) {
        if (!hidden(copy.device)) return kept(kKeptVisible);
        // The streams of threads do not wait for each other.
        const bool wait = copy.blocking && (g_must_arrive || copy.stream == CU_STREAM_PER_THREAD);
        if (!changes().dry && !staged(copy.device, copy.host, copy.bytes, copy.stream, wait))
            return kept(kKeptRefused);
        count_copy(kChangedCopies, copy.bytes);
        return changes().dry ? call() : CUDA_SUCCESS;
    }
    if (!changes().pin) return kept(kKeptSmall);
    use.emplace(copy.host, copy.bytes, true);
    if (!*use) return kept(use->why());
    CUresult result = call();
    // Copies of pageable memory return when the host memory may be reused or read.
    if (result == CUDA_SUCCESS && !copy.blocking && !changes().dry) {
        const BesideCaptures beside;
        result = REAL(cuStreamSynchronize)(copy.stream);
    }
    count_copy(kChangedCopies, copy.bytes);
    note_call();
    return result;
}

/// A 2D copy between host memory and the GPU; 0 bytes for other copies.
Copy of_rows(const CUDA_MEMCPY2D* rows, bool blocking, CUstream stream) {
    Copy copy{nullptr, 0, 0, true, blocking, stream};
    if (!rows || !rows->Height) return copy;
    if (rows->srcMemoryType == CU_MEMORYTYPE_UNIFIED || rows->dstMemoryType == CU_MEMORYTYPE_UNIFIED)
        release_all_pins();  // it may be host memory that is pinned, wholly or in part
    const bool from_host = rows->srcMemoryType == CU_MEMORYTYPE_HOST;
    if (from_host == (rows->dstMemoryType == CU_MEMORYTYPE_HOST)) return copy;
    const auto* const host = static_cast<const char*>(from_host ? rows->srcHost : rows->dstHost);
    const size_t pitch = from_host ? rows->srcPitch : rows->dstPitch;
    const size_t first =
        from_host ? rows->srcXInBytes + rows->srcY * pitch : rows->dstXInBytes + rows->dstY * pitch;
    copy.host = host + first;
    copy.bytes = (rows->Height - 1) * pitch + rows->WidthInBytes;
    copy.to_gpu = from_host;
    return copy;
}

/// A copy between unified addresses; 0 bytes unless exactly one of them is in GPU memory.
Copy of_any(CUdeviceptr to, CUdeviceptr from, size_t bytes, bool blocking, CUstream stream) {
    const Inside inside;
    Copy copy{nullptr, 0, 0, false, blocking, stream};
    if (!active()) return copy;
    const bool to_gpu = hidden(to), from_gpu = hidden(from);
    if (to_gpu == from_gpu) {  // to managed memory, or within the host's: as if nothing was pinned
        for (const CUdeviceptr host : {to, from}) {
            if (!to_gpu) release_pins(reinterpret_cast<const void*>(host), bytes);
        }
        return copy;
    }
    copy = {reinterpret_cast<const void*>(to_gpu ? from : to),
            bytes,
            to_gpu ? to : from,
            to_gpu,
            blocking,
            stream};
    return copy;
}

CUstream legacy(CUstream stream) {
    return stream ? stream : CU_STREAM_LEGACY;
}
CUstream of_thread(CUstream stream) {
    return stream ? stream : CU_STREAM_PER_THREAD;
}

void must_arrive() {
    if (!g_must_arrive.exchange(true)) wait_for_staged();
}

void note_stream(unsigned flags) {
    if (flags & CU_STREAM_NON_BLOCKING) must_arrive();
}

/// What a call releases first: pins, also the buffers of copies, or pins for good. Or it lets copies arrive.
enum class Releases { kNone, kPins, kAll, kForever, kCopies };

/// Wrapper that notes the time of a call, and releases memory first. `Number` makes it unique.
template <typename Function, size_t Number, Releases What>
struct Noted;
template <typename... Arguments, size_t Number, Releases What>
struct Noted<CUresult(Arguments...), Number, What> {
    static inline const char* name = nullptr;
    static CUresult call(Arguments... arguments) {
        static auto* const function = real<CUresult(Arguments...)>(name);
        if (What == Releases::kForever) stop_pinning();
        if (What == Releases::kCopies) must_arrive();
        if (What == Releases::kPins || What == Releases::kAll) release_all_pins();
        if (What == Releases::kAll) free_rings();
        note_call();
        const CUresult result = function(arguments...);
        note_call();
        return result;
    }
    static void* shown(const char* as) {
        name = as;
        return reinterpret_cast<void*>(&call);
    }
};

}  // namespace

extern "C" {

#define SHOWN [[gnu::visibility("default")]] CUresult CUDAAPI

SHOWN cuInit(unsigned flags) {
    begin();
    note_call();
    const CUresult result = REAL(cuInit)(flags);
    if (result != CUDA_SUCCESS || !changes().scheduling || Inside::active()) return result;
    const Inside inside;
    int devices = 0;
    REAL(cuDeviceGetCount)(&devices);
    for (int number = 0; number < devices; ++number) {
        CUdevice device = 0;
        if (REAL(cuDeviceGet)(&device, number) == CUDA_SUCCESS)
            REAL(cuDevicePrimaryCtxSetFlags_v2)(device, changes().scheduling);
    }
    return result;
}

SHOWN cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) {
    const unsigned wanted = changes().scheduling;
    return REAL(cuDevicePrimaryCtxSetFlags_v2)(device, wanted ? (flags & ~7u) | wanted : flags);
}

// The copies, with the legacy and the per-thread default stream.
#define COPIES(suffix, async_suffix, meant)                                                               \
    SHOWN cuMemcpyHtoD_v2##suffix(CUdeviceptr to, const void* from, size_t bytes) {                       \
        return moved({from, bytes, to, true, true, meant(nullptr)},                                       \
                     [&] { return REAL(cuMemcpyHtoD_v2##suffix)(to, from, bytes); });                     \
    }                                                                                                     \
    SHOWN cuMemcpyDtoH_v2##suffix(void* to, CUdeviceptr from, size_t bytes) {                             \
        return moved({to, bytes, from, false, true, meant(nullptr)},                                      \
                     [&] { return REAL(cuMemcpyDtoH_v2##suffix)(to, from, bytes); });                     \
    }                                                                                                     \
    SHOWN cuMemcpyHtoDAsync_v2##async_suffix(CUdeviceptr to, const void* from, size_t bytes,              \
                                             CUstream stream) {                                           \
        return moved({from, bytes, to, true, false, meant(stream)},                                       \
                     [&] { return REAL(cuMemcpyHtoDAsync_v2##async_suffix)(to, from, bytes, stream); });  \
    }                                                                                                     \
    SHOWN cuMemcpyDtoHAsync_v2##async_suffix(void* to, CUdeviceptr from, size_t bytes, CUstream stream) { \
        return moved({to, bytes, from, false, false, meant(stream)},                                      \
                     [&] { return REAL(cuMemcpyDtoHAsync_v2##async_suffix)(to, from, bytes, stream); });  \
    }                                                                                                     \
    SHOWN cuMemcpy##suffix(CUdeviceptr to, CUdeviceptr from, size_t bytes) {                              \
        return moved(of_any(to, from, bytes, true, meant(nullptr)),                                       \
                     [&] { return REAL(cuMemcpy##suffix)(to, from, bytes); });                            \
    }                                                                                                     \
    SHOWN cuMemcpyAsync##async_suffix(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {  \
        return moved(of_any(to, from, bytes, false, meant(stream)),                                       \
                     [&] { return REAL(cuMemcpyAsync##async_suffix)(to, from, bytes, stream); });         \
    }                                                                                                     \
    SHOWN cuMemcpy2D_v2##suffix(const CUDA_MEMCPY2D* rows) {                                              \
        return moved(of_rows(rows, true, meant(nullptr)),                                                 \
                     [&] { return REAL(cuMemcpy2D_v2##suffix)(rows); });                                  \
    }                                                                                                     \
    SHOWN cuMemcpy2DUnaligned_v2##suffix(const CUDA_MEMCPY2D* rows) {                                     \
        return moved(of_rows(rows, true, meant(nullptr)),                                                 \
                     [&] { return REAL(cuMemcpy2DUnaligned_v2##suffix)(rows); });                         \
    }                                                                                                     \
    SHOWN cuMemcpy2DAsync_v2##async_suffix(const CUDA_MEMCPY2D* rows, CUstream stream) {                  \
        return moved(of_rows(rows, false, meant(stream)),                                                 \
                     [&] { return REAL(cuMemcpy2DAsync_v2##async_suffix)(rows, stream); });               \
    }
COPIES(, , legacy)
COPIES(_ptds, _ptsz, of_thread)

SHOWN cuStreamCreate(CUstream* stream, unsigned flags) {
    note_stream(flags);
    return REAL(cuStreamCreate)(stream, flags);
}
SHOWN cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
    note_stream(flags);
    return REAL(cuStreamCreateWithPriority)(stream, flags, priority);
}
SHOWN cuPointerSetAttribute(const void* value, CUpointer_attribute attribute, CUdeviceptr pointer) {
    must_arrive();
    return REAL(cuPointerSetAttribute)(value, attribute, pointer);
}
SHOWN cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr pointer) {
    must_arrive();
    return REAL(cuIpcGetMemHandle)(handle, pointer);
}

SHOWN cuMemHostRegister_v2(void* memory, size_t bytes, unsigned flags) {
    if (!Inside::active()) release_pins(memory, bytes);
    return REAL(cuMemHostRegister_v2)(memory, bytes, flags);
}

}  // extern "C"

namespace busfare::trial {

extern "C" CUresult cuGetProcAddress_v1(const char*, void**, int, cuuint64_t);

#define CALL(name, base)                              \
    Shown {                                           \
        #name, base, reinterpret_cast<void*>(&::name) \
    }
#define COPY(name, version) CALL(name##version, #name), CALL(name##version##_ptds, #name)
#define ASYNC_COPY(name, version) CALL(name##version, #name), CALL(name##version##_ptsz, #name)
#define WRAPPED(name, base, releases)                                             \
    Shown {                                                                       \
        #name, base, Noted<decltype(::name), __COUNTER__, releases>::shown(#name) \
    }
#define NOTED(name, base) WRAPPED(name, base, Releases::kNone)
#define RELEASING(name, base) WRAPPED(name, base, Releases::kPins)
#define ENDING(name, base) WRAPPED(name, base, Releases::kAll)
#define CALLING_BACK(name, base) WRAPPED(name, base, Releases::kForever)
#define SHARING(name, base) WRAPPED(name, base, Releases::kCopies)

std::span<const Shown> calls() {
    static const Shown all[] = {
        CALL(cuGetProcAddress_v2, "cuGetProcAddress"),
        Shown{"cuGetProcAddress", "cuGetProcAddress", reinterpret_cast<void*>(&cuGetProcAddress_v1)},
        CALL(cuInit, "cuInit"),
        CALL(cuDevicePrimaryCtxSetFlags_v2, "cuDevicePrimaryCtxSetFlags"),
        COPY(cuMemcpyHtoD, _v2),
        COPY(cuMemcpyDtoH, _v2),
        COPY(cuMemcpy, ),
        COPY(cuMemcpy2D, _v2),
        COPY(cuMemcpy2DUnaligned, _v2),
        ASYNC_COPY(cuMemcpyHtoDAsync, _v2),
        ASYNC_COPY(cuMemcpyDtoHAsync, _v2),
        ASYNC_COPY(cuMemcpyAsync, ),
        ASYNC_COPY(cuMemcpy2DAsync, _v2),
        CALL(cuStreamCreate, "cuStreamCreate"),
        CALL(cuStreamCreateWithPriority, "cuStreamCreateWithPriority"),
        CALL(cuPointerSetAttribute, "cuPointerSetAttribute"),
        CALL(cuIpcGetMemHandle, "cuIpcGetMemHandle"),
        CALL(cuMemHostRegister_v2, "cuMemHostRegister"),
        // Calls that end registrations, and copies of host memory that may be partly pinned.
        ENDING(cuCtxDestroy_v2, "cuCtxDestroy"),
        ENDING(cuDevicePrimaryCtxRelease_v2, "cuDevicePrimaryCtxRelease"),
        ENDING(cuDevicePrimaryCtxReset_v2, "cuDevicePrimaryCtxReset"),
        RELEASING(cuMemcpyHtoA_v2, "cuMemcpyHtoA"),
        RELEASING(cuMemcpyHtoA_v2_ptds, "cuMemcpyHtoA"),
        RELEASING(cuMemcpyAtoH_v2, "cuMemcpyAtoH"),
        RELEASING(cuMemcpyAtoH_v2_ptds, "cuMemcpyAtoH"),
        RELEASING(cuMemcpyHtoAAsync_v2, "cuMemcpyHtoAAsync"),
        RELEASING(cuMemcpyHtoAAsync_v2_ptsz, "cuMemcpyHtoAAsync"),
        RELEASING(cuMemcpyAtoHAsync_v2, "cuMemcpyAtoHAsync"),
        RELEASING(cuMemcpyAtoHAsync_v2_ptsz, "cuMemcpyAtoHAsync"),
        RELEASING(cuMemcpy3D_v2, "cuMemcpy3D"),
        RELEASING(cuMemcpy3D_v2_ptds, "cuMemcpy3D"),
        RELEASING(cuMemcpy3DAsync_v2, "cuMemcpy3DAsync"),
        RELEASING(cuMemcpy3DAsync_v2_ptsz, "cuMemcpy3DAsync"),
        RELEASING(cuMemcpyBatchAsync_v2, "cuMemcpyBatchAsync"),
        RELEASING(cuMemcpyBatchAsync_v2_ptsz, "cuMemcpyBatchAsync"),
        RELEASING(cuGraphAddMemcpyNode, "cuGraphAddMemcpyNode"),
        RELEASING(cuGraphMemcpyNodeSetParams, "cuGraphMemcpyNodeSetParams"),
        RELEASING(cuGraphExecMemcpyNodeSetParams, "cuGraphExecMemcpyNodeSetParams"),
        // Callbacks that free memory could neither unpin it nor wait for copies.
        CALLING_BACK(cuLaunchHostFunc, "cuLaunchHostFunc"),
        CALLING_BACK(cuLaunchHostFunc_ptsz, "cuLaunchHostFunc"),
        CALLING_BACK(cuStreamAddCallback, "cuStreamAddCallback"),
        CALLING_BACK(cuStreamAddCallback_ptsz, "cuStreamAddCallback"),
        CALLING_BACK(cuGraphAddHostNode, "cuGraphAddHostNode"),
        SHARING(cuCtxEnablePeerAccess, "cuCtxEnablePeerAccess"),
        SHARING(cuMemExportToShareableHandle, "cuMemExportToShareableHandle"),
        SHARING(cuMemGetHandleForAddressRange, "cuMemGetHandleForAddressRange"),
        NOTED(cuMemAlloc_v2, "cuMemAlloc"),
        NOTED(cuMemFree_v2, "cuMemFree"),
        NOTED(cuLaunchKernel, "cuLaunchKernel"),
        NOTED(cuLaunchKernel_ptsz, "cuLaunchKernel"),
        NOTED(cuCtxSynchronize, "cuCtxSynchronize"),
        NOTED(cuStreamSynchronize, "cuStreamSynchronize"),
        NOTED(cuStreamSynchronize_ptsz, "cuStreamSynchronize"),
        NOTED(cuEventSynchronize, "cuEventSynchronize"),
    };
    return all;
}

}  // namespace busfare::trial
