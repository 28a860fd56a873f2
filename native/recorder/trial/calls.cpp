// Wrappers of driver calls, with the driver's names: calls that the library may change, and calls that
// restrict these changes.

#define __CUDA_API_VERSION_INTERNAL  // the variants for the default stream of each thread
#include <atomic>
#include <optional>

#include "driver.h"
#include "managed.h"
#include "pins.h"
#include "report.h"
#include "ring.h"

using namespace busfare::trial;

namespace {

/// Set when the program creates non-blocking streams or shares GPU memory (IPC, GPUDirect). From then on, a
/// blocking copy must complete before it returns.
std::atomic<bool> g_must_arrive{false};

struct Copy {
    const void* host = nullptr;
    size_t bytes = 0;
    CUdeviceptr device = 0;  ///< 0 for array and 2D copies
    bool to_gpu = false;
    bool blocking = false;
    CUstream stream = nullptr;  ///< never 0, whose meaning depends on the variant of the call
};

/// Whether the host memory is unknown to the driver.
bool pageable(const void* host) {
    const RelaxedCapture relaxed;
    CUmemorytype type{};
    return REAL(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                       reinterpret_cast<CUdeviceptr>(host)) != CUDA_SUCCESS;
}

/// Whether the CPU cannot access this GPU memory.
bool hidden(CUdeviceptr device) {
    const RelaxedCapture relaxed;
    CUmemorytype type{};
    bool managed = false;
    const auto ask = REAL(cuPointerGetAttribute);
    return device && ask(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device) == CUDA_SUCCESS &&
           type == CU_MEMORYTYPE_DEVICE &&
           ask(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, device) == CUDA_SUCCESS && !managed;
}

/// Whether the memory may belong to another GPU. Streams of the current GPU do not wait for copies to it.
bool of_other_gpu(CUdeviceptr device) {
    CUdevice owner = 0, current = 0;
    return REAL(cuPointerGetAttribute)(&owner, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, device) != CUDA_SUCCESS ||
           REAL(cuCtxGetDevice)(&current) != CUDA_SUCCESS || owner != current;
}

/// Whether the copy is captured into a CUDA graph.
bool captured(const Copy& copy) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    const CUresult result = REAL(cuStreamIsCapturing)(copy.stream, &status);
    return result != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/// Copies in pieces that end at `boundaries`.
CUresult copied_in_pieces(const Copy& copy, std::vector<uintptr_t> boundaries) {
    const auto host = reinterpret_cast<uintptr_t>(copy.host);
    boundaries.push_back(host + copy.bytes);
    CUresult result = CUDA_SUCCESS;
    for (size_t piece = 0, done = 0; piece < boundaries.size() && result == CUDA_SUCCESS; ++piece) {
        const size_t bytes = boundaries[piece] - host - done;
        auto* const from = reinterpret_cast<void*>(host + done);
        result = copy.to_gpu ? REAL(cuMemcpyHtoDAsync_v2)(copy.device + done, from, bytes, copy.stream)
                             : REAL(cuMemcpyDtoHAsync_v2)(from, copy.device + done, bytes, copy.stream);
        done += bytes;
    }
    return result;
}

/// Performs a copy that the program requests: unchanged (`call`) or with pinned memory.
template <typename Call>
CUresult moved(const Copy& copy, Call&& call) {
    if (Inside::active() || !active()) return call();
    const Inside inside;
    if (copy.blocking) expect_host_access();
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
        release_pins(copy.host, copy.bytes);  // another thread may have pinned part of it
        return call();
    };
    const bool may_stage = changes().stage && copy.to_gpu && copy.device;
    if (!changes().pin && !may_stage) return call();
    if (!copy.blocking && captured(copy)) {
        use.reset();
        never_pin(copy.host, copy.bytes);  // graph launches copy it without a driver call
        return kept(kKeptCapture);
    }
    // The driver stages so few bytes and returns; a copy of pinned memory would wait for the GPU here.
    if (!copy.blocking && copy.to_gpu && copy.bytes <= kLeastStaged) {
        use.reset();
        if (earlier) never_pin(copy.host, copy.bytes);
        return kept(kKeptSmall);
    }
    if (may_stage && !earlier && copy.bytes >= kLeastStaged) {
        if (!hidden(copy.device)) return kept(kKeptVisible);
        // Per-thread default streams do not wait for each other.
        const bool wait = copy.blocking &&
                          (g_must_arrive || copy.stream == CU_STREAM_PER_THREAD || of_other_gpu(copy.device));
        if (!changes().dry && !staged(copy.device, copy.host, copy.bytes, copy.stream))
            return kept(kKeptRefused);
        count_copy(kChangedCopies, copy.bytes);
        if (changes().dry) return call();
        const RelaxedCapture relaxed;
        return wait ? REAL(cuStreamSynchronize)(copy.stream) : CUDA_SUCCESS;
    }
    if (!changes().pin) return kept(kKeptSmall);
    use.emplace(copy.host, copy.bytes, true);
    if (use->boundaries().size() > (copy.bytes >> 20) + 1) {  // many small ranges: pin them again as one
        use.reset();
        release_pins(copy.host, copy.bytes);
        use.emplace(copy.host, copy.bytes, true);
    }
    if (!*use) return kept(use->why());
    const bool whole = changes().dry || use->boundaries().empty();
    if (!whole && !copy.device) {
        use.reset();
        never_pin(copy.host, copy.bytes);
        return kept(kKeptRefused);
    }
    CUresult result = whole ? call() : copied_in_pieces(copy, use->boundaries());
    // A copy of pageable memory returns once the program may reuse or read the host memory.
    if (result == CUDA_SUCCESS && !(copy.blocking && whole) && !changes().dry) {
        const RelaxedCapture relaxed;
        result = REAL(cuStreamSynchronize)(copy.stream);
    }
    count_copy(kChangedCopies, copy.bytes);
    return result;
}

/// A 2D copy between host memory and the GPU; 0 bytes for other copies.
Copy of_rows(const CUDA_MEMCPY2D* rows, bool blocking, CUstream stream) {
    if (!rows || !rows->Height) return {};
    if (rows->srcMemoryType == CU_MEMORYTYPE_UNIFIED || rows->dstMemoryType == CU_MEMORYTYPE_UNIFIED)
        release_all_pins();  // it may be host memory that is fully or partly pinned
    const bool from_host = rows->srcMemoryType == CU_MEMORYTYPE_HOST;
    if (from_host == (rows->dstMemoryType == CU_MEMORYTYPE_HOST)) return {.blocking = blocking};
    const auto* const host = static_cast<const char*>(from_host ? rows->srcHost : rows->dstHost);
    const size_t pitch = from_host ? rows->srcPitch : rows->dstPitch;
    const size_t first =
        from_host ? rows->srcXInBytes + rows->srcY * pitch : rows->dstXInBytes + rows->dstY * pitch;
    const size_t bytes = (rows->Height - 1) * pitch + rows->WidthInBytes;
    return {host + first, bytes, 0, from_host, blocking, stream};
}

/// A copy between unified addresses; 0 bytes unless exactly one is in GPU memory.
Copy of_any(CUdeviceptr to, CUdeviceptr from, size_t bytes, bool blocking, CUstream stream) {
    const Inside inside;
    if (!active()) return {};
    const bool to_gpu = hidden(to), from_gpu = hidden(from);
    if (to_gpu == from_gpu) {  // not between host and GPU memory: unpin the host memory
        for (const CUdeviceptr host : {to, from}) {
            if (!to_gpu) release_pins(reinterpret_cast<const void*>(host), bytes);
        }
        return {.blocking = blocking};
    }
    const auto* const host = reinterpret_cast<const void*>(to_gpu ? from : to);
    return {host, bytes, to_gpu ? to : from, to_gpu, blocking, stream};
}

/// The stream of a call without a stream, or with a null stream.
constexpr auto kLegacy = [](CUstream stream = nullptr) { return stream ? stream : CU_STREAM_LEGACY; };
constexpr auto kPerThread = [](CUstream stream = nullptr) { return stream ? stream : CU_STREAM_PER_THREAD; };

// The copy that a call requests. A call without a stream blocks.
constexpr auto kToGpu = [](auto stream_of, CUdeviceptr to, const void* from, size_t bytes, auto... stream) {
    return Copy{from, bytes, to, true, !sizeof...(stream), stream_of(stream...)};
};
constexpr auto kFromGpu = [](auto stream_of, void* to, CUdeviceptr from, size_t bytes, auto... stream) {
    return Copy{to, bytes, from, false, !sizeof...(stream), stream_of(stream...)};
};
constexpr auto kEither = [](auto stream_of, CUdeviceptr to, CUdeviceptr from, size_t bytes, auto... stream) {
    return of_any(to, from, bytes, !sizeof...(stream), stream_of(stream...));
};
constexpr auto kRows = [](auto stream_of, const CUDA_MEMCPY2D* rows, auto... stream) {
    return of_rows(rows, !sizeof...(stream), stream_of(stream...));
};

void must_arrive() {
    if (!g_must_arrive.exchange(true)) wait_for_staged();
}

// The actions of wrappers. Each takes the driver's call and its arguments.

constexpr auto kNoted = [](auto call, auto...) {
    const CUresult result = call();
    note_call();
    return result;
};
template <const auto& CopyOf, const auto& StreamOf>
constexpr auto kMoves = [](auto call, auto... arguments) {
    begin();
    if (!counted(kFirstWork)) note_call(kFirstWork);
    return kNoted([&] { return moved(CopyOf(StreamOf, arguments...), call); });
};
template <void (*First)()>
constexpr auto kAfter = [](auto call, auto...) {
    if (!Inside::active()) First();
    return kNoted(call);
};

void end_context() {
    release_all_pins();
    free_rings();
}

/// Prefetches the managed memory of a kernel, then launches the kernel.
CUresult launched(CUfunction kernel, void** arguments, CUstream stream, auto call) {
    note_call(kFirstWork);
    if (changes().prefetch && !Inside::active()) prefetch(kernel, arguments, stream);
    return call();
}
template <const auto& StreamOf>
constexpr auto kLaunches = [](auto call, CUfunction kernel, auto, auto, auto, auto, auto, auto, auto,
                              CUstream stream, void** arguments,
                              void**) { return launched(kernel, arguments, StreamOf(stream), call); };
template <const auto& StreamOf>
constexpr auto kLaunchesEx =
    [](auto call, const CUlaunchConfig* how, CUfunction kernel, void** arguments, void**) {
        return launched(kernel, arguments, StreamOf(how ? how->hStream : nullptr), call);
    };

constexpr auto kCreatesStream = [](auto call, CUstream*, unsigned flags, auto...) {
    if (flags & CU_STREAM_NON_BLOCKING) must_arrive();
    return call();
};
constexpr auto kRegisters = [](auto call, void* memory, size_t bytes, unsigned) {
    if (!Inside::active()) release_pins(memory, bytes);
    return call();
};
constexpr auto kAllocatesManaged = [](auto call, CUdeviceptr* memory, size_t bytes, unsigned flags) {
    const CUresult result = kNoted(call);
    if (result == CUDA_SUCCESS && flags == CU_MEM_ATTACH_GLOBAL) note_managed(*memory, bytes);
    return result;
};
constexpr auto kFrees = [](auto call, CUdeviceptr memory) {
    forget_managed(memory);
    return kNoted(call);
};
/// `cuGetProcAddress` (CUDA 11.3 to 11.8), `cuGetProcAddress_v2`.
constexpr auto kFinds = [](auto call, const char* name, void** function, auto...) {
    const CUresult result = call();
    if (result == CUDA_SUCCESS) replace(name, function);
    return result;
};
constexpr auto kSetsFlags = [](auto, CUdevice device, unsigned flags) {
    const unsigned wanted = changes().scheduling;
    return REAL(cuDevicePrimaryCtxSetFlags_v2)(device, wanted ? (flags & ~7u) | wanted : flags);
};
constexpr auto kInitialises = [](auto call, unsigned) {
    begin();
    note_call();
    const CUresult result = call();
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
};

/// The wrapper of the driver function `Call`. It performs `What`.
template <typename Call, const auto& What, typename Function = typename Call::Function>
struct Wrapper;
template <typename Call, const auto& What, typename... Arguments>
struct Wrapper<Call, What, CUresult(Arguments...)> {
    static CUresult call(Arguments... arguments) {
        static std::atomic<CUresult (*)(Arguments...)> resolved;
        auto* const function = real(resolved, Call::kSymbol);
        if (!function) return CUDA_ERROR_NOT_FOUND;
        const auto call = [&] {
            const Inside inside;  // the driver also frees memory
            return function(arguments...);
        };
        return What(call, arguments...);
    }
};

}  // namespace

/// Applies `X` to the names of calls, whose action is `kAfter<first>`.
#define AFTER(X, first, ...) RESCAN(RESCAN(RESCAN(EACH(X, first, __VA_ARGS__))))
#define EACH(X, first, name, ...) X(name, kAfter<first>) __VA_OPT__(EACH_ PARENS(X, first, __VA_ARGS__))
#define EACH_() EACH
#define PARENS ()
#define RESCAN(...) RESCAN_(RESCAN_(RESCAN_(__VA_ARGS__)))
#define RESCAN_(...) RESCAN__(RESCAN__(RESCAN__(__VA_ARGS__)))
#define RESCAN__(...) __VA_ARGS__
#define OF_STREAM(X, name, variant, what, ...)        \
    X(name, what<__VA_ARGS__ __VA_OPT__(, ) kLegacy>) \
    X(name##variant, what<__VA_ARGS__ __VA_OPT__(, ) kPerThread>)

/// Applies `X` to each wrapped call and its action.
#define CALLS(X)                                                                                             \
    X(cuGetProcAddress, kFinds)                                                                              \
    X(cuGetProcAddress_v2, kFinds)                                                                           \
    X(cuInit, kInitialises)                                                                                  \
    X(cuDevicePrimaryCtxSetFlags_v2, kSetsFlags)                                                             \
    OF_STREAM(X, cuMemcpyHtoD_v2, _ptds, kMoves, kToGpu)                                                     \
    OF_STREAM(X, cuMemcpyDtoH_v2, _ptds, kMoves, kFromGpu)                                                   \
    OF_STREAM(X, cuMemcpyHtoDAsync_v2, _ptsz, kMoves, kToGpu)                                                \
    OF_STREAM(X, cuMemcpyDtoHAsync_v2, _ptsz, kMoves, kFromGpu)                                              \
    OF_STREAM(X, cuMemcpy, _ptds, kMoves, kEither)                                                           \
    OF_STREAM(X, cuMemcpyAsync, _ptsz, kMoves, kEither)                                                      \
    OF_STREAM(X, cuMemcpy2D_v2, _ptds, kMoves, kRows)                                                        \
    OF_STREAM(X, cuMemcpy2DUnaligned_v2, _ptds, kMoves, kRows)                                               \
    OF_STREAM(X, cuMemcpy2DAsync_v2, _ptsz, kMoves, kRows)                                                   \
    OF_STREAM(X, cuLaunchKernel, _ptsz, kLaunches)                                                           \
    OF_STREAM(X, cuLaunchKernelEx, _ptsz, kLaunchesEx)                                                       \
    X(cuMemAlloc_v2, kNoted)                                                                                 \
    X(cuMemAllocManaged, kAllocatesManaged)                                                                  \
    X(cuMemFree_v2, kFrees)                                                                                  \
    X(cuMemHostRegister_v2, kRegisters)                                                                      \
    X(cuStreamCreate, kCreatesStream)                                                                        \
    X(cuStreamCreateWithPriority, kCreatesStream)                                                            \
    /* after these, blocking copies must complete before they return */                                      \
    AFTER(X, must_arrive, cuPointerSetAttribute, cuMemcpyPeer, cuMemcpyPeer_ptds, cuMemcpyPeerAsync,         \
          cuMemcpyPeerAsync_ptsz, cuGreenCtxStreamCreate, cuIpcOpenMemHandle_v2,                             \
          cuMemImportFromShareableHandle, cuIpcGetMemHandle, cuCtxEnablePeerAccess,                          \
          cuMemExportToShareableHandle, cuMemGetHandleForAddressRange, cuMemPoolSetAccess, cuMemSetAccess)   \
    /* these end the pinning of host memory */                                                               \
    AFTER(X, end_context, cuCtxDestroy_v2, cuCtxDetach, cuDevicePrimaryCtxRelease_v2,                        \
          cuDevicePrimaryCtxReset_v2)                                                                        \
    /* these may copy host memory that is partly pinned */                                                   \
    AFTER(X, release_all_pins, cuMemcpyHtoA_v2, cuMemcpyHtoA_v2_ptds, cuMemcpyAtoH_v2, cuMemcpyAtoH_v2_ptds, \
          cuMemcpyHtoAAsync_v2, cuMemcpyHtoAAsync_v2_ptsz, cuMemcpyAtoHAsync_v2, cuMemcpyAtoHAsync_v2_ptsz,  \
          cuMemcpy3D_v2, cuMemcpy3D_v2_ptds, cuMemcpy3DAsync_v2, cuMemcpy3DAsync_v2_ptsz,                    \
          cuMemcpyBatchAsync, cuMemcpyBatchAsync_ptsz, cuMemcpyBatchAsync_v2, cuMemcpyBatchAsync_v2_ptsz,    \
          cuMemcpy3DBatchAsync, cuMemcpy3DBatchAsync_ptsz, cuMemcpy3DBatchAsync_v2,                          \
          cuMemcpy3DBatchAsync_v2_ptsz, cuGraphAddMemcpyNode, cuGraphMemcpyNodeSetParams,                    \
          cuGraphExecMemcpyNodeSetParams)                                                                    \
    /* callbacks that free memory could neither unpin it nor wait for copies */                              \
    AFTER(X, stop_pinning, cuLaunchHostFunc, cuLaunchHostFunc_ptsz, cuStreamAddCallback,                     \
          cuStreamAddCallback_ptsz, cuUserObjectCreate, cuGraphAddHostNode, cuGraphAddNode,                  \
          cuGraphAddNode_v2)                                                                                 \
    /* with these, the program places managed memory itself */                                               \
    AFTER(X, stop_prefetching, cuMemAdvise, cuMemAdvise_v2, cuMemPrefetchAsync, cuMemPrefetchAsync_ptsz,     \
          cuMemPrefetchAsync_v2, cuMemPrefetchAsync_v2_ptsz, cuStreamAttachMemAsync,                         \
          cuStreamAttachMemAsync_ptsz)                                                                       \
    /* after these, the CPU may touch managed memory */                                                      \
    AFTER(X, expect_host_access, cuCtxSynchronize, cuStreamSynchronize, cuStreamSynchronize_ptsz,            \
          cuStreamQuery, cuStreamQuery_ptsz, cuEventSynchronize, cuEventQuery)

// Each wrapper is exported with the name of its call, for programs that link with the driver. The exported
// symbol is an `ifunc`, because a macro cannot name the parameters of a function.
#define EXPORTED(name, ...)                                                             \
    namespace {                                                                         \
    struct Call_##name {                                                                \
        using Function = decltype(::name);                                              \
        static constexpr const char* kSymbol = #name;                                   \
    };                                                                                  \
    }                                                                                   \
    extern "C" {                                                                        \
    static decltype(::name)* wrapper_##name() {                                         \
        return &Wrapper<Call_##name, __VA_ARGS__>::call;                                \
    }                                                                                   \
    [[gnu::visibility("default"), gnu::ifunc("wrapper_" #name)]] decltype(::name) name; \
    }
CALLS(EXPORTED)

namespace busfare::trial {

std::span<const Wrapped> calls() {
#define ROW(name, ...) Wrapped{#name, reinterpret_cast<void*>(wrapper_##name())},
    static const Wrapped all[] = {CALLS(ROW)};
    return all;
}

}  // namespace busfare::trial
