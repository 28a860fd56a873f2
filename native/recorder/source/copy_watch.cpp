#include "copy_watch.h"

#include <pthread.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <vector>

#include "fingerprint.h"

namespace busfare::recorder {
namespace {

constexpr size_t kRingRows = 16384;
constexpr int kHostToDevice = 1;  // cudaMemcpyKind
constexpr int kDeviceToHost = 2;

/// Which side of a copy lies in memory that the host can read, and when its bytes are the ones copied.
enum class HostSide : uint8_t { kNone, kSource, kDestinationAfter, kAsKindSays, kAsKindSaysAsync };

/// Where the parameters of one call lie in its parameter structure.
struct CopyCall {
    uint16_t number;
    uint8_t destination;
    uint8_t source;
    uint8_t bytes;
    uint8_t rows;  ///< where the number of rows is, of a 2D copy; else 0
    uint8_t kind;  ///< where the cudaMemcpyKind is; else 0
    HostSide host;
    bool described = false;  ///< the first parameter points to a CUDA_MEMCPY2D instead
};

constexpr uint8_t kLinearKind = offsetof(cudaMemcpy_v3020_params, kind);
constexpr uint8_t k2dKind = offsetof(cudaMemcpy2D_v3020_params, kind);
static_assert(offsetof(cudaMemcpyAsync_v3020_params, kind) == kLinearKind);
static_assert(offsetof(cudaMemcpyAsync_v3020_params, src) == 8 &&
              offsetof(cudaMemcpyAsync_v3020_params, count) == 16);
static_assert(offsetof(cudaMemcpy2D_v3020_params, src) == 16 &&
              offsetof(cudaMemcpy2D_v3020_params, width) == 32);
static_assert(offsetof(cudaMemcpyPeer_v4000_params, src) == 16 &&
              offsetof(cudaMemcpyPeer_v4000_params, count) == 32);
static_assert(offsetof(cuMemcpyPeer_params, srcDevice) == 16 &&
              offsetof(cuMemcpyPeer_params, ByteCount) == 32);
static_assert(offsetof(cuMemcpyHtoDAsync_v2_params, srcHost) == 8);
static_assert(offsetof(cuMemcpyHtoDAsync_v2_params, ByteCount) == 16);

constexpr CopyCall linear(int number, HostSide host) {
    return {static_cast<uint16_t>(number), 0, 8, 16, 0, 0, host};
}
constexpr CopyCall linear_kind(int number, HostSide host) {
    return {static_cast<uint16_t>(number), 0, 8, 16, 0, kLinearKind, host};
}
constexpr CopyCall rows_kind(int number) {
    return {static_cast<uint16_t>(number), 0, 16, 32, 40, k2dKind, HostSide::kNone};
}
constexpr CopyCall peer(int number) {
    return {static_cast<uint16_t>(number), 0, 16, 32, 0, 0, HostSide::kNone};
}

constexpr CopyCall described(int number) {
    return {static_cast<uint16_t>(number), 0, 0, 0, 0, 0, HostSide::kNone, true};
}

constexpr CopyCall kRuntimeCalls[] = {
    linear_kind(CUPTI_RUNTIME_TRACE_CBID_cudaMemcpy_v3020, HostSide::kAsKindSays),
    linear_kind(CUPTI_RUNTIME_TRACE_CBID_cudaMemcpy_ptds_v7000, HostSide::kAsKindSays),
    linear_kind(CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyAsync_v3020, HostSide::kAsKindSaysAsync),
    linear_kind(CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyAsync_ptsz_v7000, HostSide::kAsKindSaysAsync),
    rows_kind(CUPTI_RUNTIME_TRACE_CBID_cudaMemcpy2D_v3020),
    rows_kind(CUPTI_RUNTIME_TRACE_CBID_cudaMemcpy2D_ptds_v7000),
    rows_kind(CUPTI_RUNTIME_TRACE_CBID_cudaMemcpy2DAsync_v3020),
    rows_kind(CUPTI_RUNTIME_TRACE_CBID_cudaMemcpy2DAsync_ptsz_v7000),
    peer(CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyPeer_v4000),
    peer(CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyPeerAsync_v4000),
};

constexpr CopyCall kDriverCalls[] = {
    linear(CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoD_v2, HostSide::kSource),
    linear(CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoD_v2_ptds, HostSide::kSource),
    linear(CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoDAsync_v2, HostSide::kSource),
    linear(CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoDAsync_v2_ptsz, HostSide::kSource),
    linear(CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoH_v2, HostSide::kDestinationAfter),
    linear(CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoH_v2_ptds, HostSide::kDestinationAfter),
    linear(CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoHAsync_v2, HostSide::kNone),
    linear(CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoHAsync_v2_ptsz, HostSide::kNone),
    linear(CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoD_v2, HostSide::kNone),
    linear(CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoD_v2_ptds, HostSide::kNone),
    linear(CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoDAsync_v2, HostSide::kNone),
    linear(CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoDAsync_v2_ptsz, HostSide::kNone),
    linear(CUPTI_DRIVER_TRACE_CBID_cuMemcpy, HostSide::kNone),
    linear(CUPTI_DRIVER_TRACE_CBID_cuMemcpy_ptds, HostSide::kNone),
    linear(CUPTI_DRIVER_TRACE_CBID_cuMemcpyAsync, HostSide::kNone),
    linear(CUPTI_DRIVER_TRACE_CBID_cuMemcpyAsync_ptsz, HostSide::kNone),
    described(CUPTI_DRIVER_TRACE_CBID_cuMemcpy2D_v2),
    described(CUPTI_DRIVER_TRACE_CBID_cuMemcpy2D_v2_ptds),
    described(CUPTI_DRIVER_TRACE_CBID_cuMemcpy2DUnaligned_v2),
    described(CUPTI_DRIVER_TRACE_CBID_cuMemcpy2DUnaligned_v2_ptds),
    described(CUPTI_DRIVER_TRACE_CBID_cuMemcpy2DAsync_v2),
    described(CUPTI_DRIVER_TRACE_CBID_cuMemcpy2DAsync_v2_ptsz),
    peer(CUPTI_DRIVER_TRACE_CBID_cuMemcpyPeer),
    peer(CUPTI_DRIVER_TRACE_CBID_cuMemcpyPeer_ptds),
    peer(CUPTI_DRIVER_TRACE_CBID_cuMemcpyPeerAsync),
    peer(CUPTI_DRIVER_TRACE_CBID_cuMemcpyPeerAsync_ptsz),
};

constexpr size_t kNumbers = 1024;
using Index = std::array<const CopyCall*, kNumbers>;

template <size_t N>
constexpr Index index_of(const CopyCall (&calls)[N]) {
    Index index{};
    for (const CopyCall& call : calls) index[call.number] = &call;
    return index;
}

constexpr Index kRuntimeIndex = index_of(kRuntimeCalls);
constexpr Index kDriverIndex = index_of(kDriverCalls);

/// One thread writes, the writer thread reads.
struct Ring {
    std::array<CopyAddresses, kRingRows> rows;
    std::atomic<uint64_t> written{0};
    std::atomic<uint64_t> read{0};
    std::atomic<uint64_t> lost{0};
    uint64_t last_correlation = ~uint64_t{0};

    /// True when the ring has just become half full: time to drain it.
    bool push(const CopyAddresses& row) {
        const uint64_t at = written.load(std::memory_order_relaxed);
        const uint64_t held = at - read.load(std::memory_order_acquire);
        if (held == kRingRows) {
            lost.fetch_add(1, std::memory_order_relaxed);
            return false;
        }
        rows[at % kRingRows] = row;
        written.store(at + 1, std::memory_order_release);
        return held + 1 == kRingRows / 2;
    }
};

/// Rings outlive their threads and are handed to later ones: their number is that of threads alive at once.
struct Rings {
    std::mutex mutex;
    std::vector<Ring*> all;
    std::vector<Ring*> unused;
};

Rings& rings() {
    static Rings* const rings = new Rings;  // never destroyed: threads may outlive static objects
    return *rings;
}

void release_ring(void* ring) {
    Rings& every = rings();
    const std::lock_guard lock(every.mutex);
    every.unused.push_back(static_cast<Ring*>(ring));
}

pthread_key_t release_key() {
    static const pthread_key_t key = [] {
        pthread_key_t made{};
        pthread_key_create(&made, release_ring);
        return made;
    }();
    return key;
}

thread_local Ring* t_ring = nullptr;

Ring& ring_of_thread() {
    if (t_ring) return *t_ring;
    Rings& every = rings();
    const std::lock_guard lock(every.mutex);
    if (!every.unused.empty()) {
        t_ring = every.unused.back();
        every.unused.pop_back();
    } else {
        t_ring = new Ring;
        every.all.push_back(t_ring);
    }
    pthread_setspecific(release_key(), t_ring);
    return *t_ring;
}

template <typename T>
T parameter(const void* parameters, size_t offset) {
    T value;
    std::memcpy(&value, static_cast<const char*>(parameters) + offset, sizeof value);
    return value;
}

/// Where one side of a 2D copy begins; 0 in an array.
uint64_t begin_of(CUmemorytype type, const void* host, CUdeviceptr device, size_t x, size_t y, size_t pitch) {
    if (type == CU_MEMORYTYPE_ARRAY) return 0;
    const uint64_t base = type == CU_MEMORYTYPE_HOST ? reinterpret_cast<uint64_t>(host) : device;
    return base + y * pitch + x;
}

void read_description(const void* parameters, CopyAddresses& row) {
    const auto* const copy = parameter<const CUDA_MEMCPY2D*>(parameters, 0);
    if (!copy) return;
    row.source = begin_of(copy->srcMemoryType, copy->srcHost, copy->srcDevice, copy->srcXInBytes, copy->srcY,
                          copy->srcPitch);
    row.destination = begin_of(copy->dstMemoryType, copy->dstHost, copy->dstDevice, copy->dstXInBytes,
                               copy->dstY, copy->dstPitch);
    row.bytes = copy->WidthInBytes * copy->Height;
}

bool hash_source(HostSide host, int kind) {
    return host == HostSide::kSource ||
           ((host == HostSide::kAsKindSays || host == HostSide::kAsKindSaysAsync) && kind == kHostToDevice);
}

bool hash_destination(HostSide host, int kind) {
    return host == HostSide::kDestinationAfter || (host == HostSide::kAsKindSays && kind == kDeviceToHost);
}

}  // namespace

void CopyWatch::subscribe(CUpti_SubscriberHandle subscriber, CallDomains domains) const {
    if (domains.runtime) {
        for (const CopyCall& call : kRuntimeCalls) {
            cupti_.enable_callback(1, subscriber, CUPTI_CB_DOMAIN_RUNTIME_API, call.number);
        }
    }
    if (domains.driver) {
        for (const CopyCall& call : kDriverCalls) {
            cupti_.enable_callback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, call.number);
        }
    }
}

bool CopyWatch::note(CUpti_CallbackDomain domain, CUpti_CallbackId number, const CUpti_CallbackData& data) {
    if (number >= kNumbers) return false;
    const CopyCall* call =
        domain == CUPTI_CB_DOMAIN_RUNTIME_API ? kRuntimeIndex[number] : kDriverIndex[number];
    if (!call) return false;
    if (!on_.load(std::memory_order_relaxed)) return true;
    Ring& ring = ring_of_thread();
    const bool enter = data.callbackSite == CUPTI_API_ENTER;
    // A runtime call's own driver call bears the same number, and has nothing to add.
    if (enter && ring.last_correlation == data.correlationId) return true;
    const void* parameters = data.functionParams;
    const int kind = call->kind ? parameter<int>(parameters, call->kind) : 0;
    const bool after = fingerprint_ && hash_destination(call->host, kind);
    if (enter == after) return true;  // noted once: before the call, or after it where its result is hashed
    ring.last_correlation = data.correlationId;
    CopyAddresses row{};
    row.correlation = data.correlationId;
    if (call->described) {
        read_description(parameters, row);
    } else {
        row.destination = parameter<uint64_t>(parameters, call->destination);
        row.source = parameter<uint64_t>(parameters, call->source);
        row.bytes = parameter<uint64_t>(parameters, call->bytes);
        if (call->rows) row.bytes *= parameter<uint64_t>(parameters, call->rows);
    }
    if (after) take_fingerprint(row, row.destination);
    if (fingerprint_ && hash_source(call->host, kind)) take_fingerprint(row, row.source);
    if (ring.push(row)) wake_writer_();
    return true;
}

void CopyWatch::take_fingerprint(CopyAddresses& row, uint64_t address) const {
    cupti_.timestamp(&row.fingerprint_start);
    row.fingerprint = fingerprint(reinterpret_cast<const void*>(address), row.bytes);
    uint64_t end = 0;
    cupti_.timestamp(&end);
    row.fingerprint_duration = end > row.fingerprint_start ? end - row.fingerprint_start : 0;
}

uint64_t CopyWatch::drain(const std::function<void(const CopyAddresses&)>& take) {
    Rings& every = rings();
    const std::lock_guard lock(every.mutex);
    uint64_t lost = 0;
    for (Ring* ring : every.all) {
        const uint64_t end = ring->written.load(std::memory_order_acquire);
        for (uint64_t at = ring->read.load(std::memory_order_relaxed); at != end; ++at)
            take(ring->rows[at % kRingRows]);
        ring->read.store(end, std::memory_order_release);
        lost += ring->lost.exchange(0, std::memory_order_relaxed);
    }
    return lost;
}

}  // namespace busfare::recorder
