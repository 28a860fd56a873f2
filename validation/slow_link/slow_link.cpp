// A slower link between host and GPU for programs with a shared CUDA runtime (nvcc -cudart shared), by
// LD_PRELOAD.
//
// SLOW_LINK=k: each cudaMemcpy and cudaMemcpyAsync between host and device sends k times its bytes over the
// link, on the same stream and copy engine: k = 2 is half the lanes. Packets keep their sizes. Latencies
// stay, but for the start of a second copy, about 1 µs; copies of less than SHORT_BYTES are left alone.
// Pageable memory is staged here, in pieces of SLOW_LINK_PIECE bytes through pinned buffers, as the driver
// does: its staging cannot be slowed without its memcpy. k = 1 shows how near that comes to the driver. k = 0
// leaves all copies alone.
//
// The first copy sets up the buffers and ends with a cudaMemset of MARK_BYTES: what comes after it is the
// program's. SLOW_LINK_LOG: a file of 'direction memory bytes rows' for each copy; rows: copies that a
// profiler sees of it.
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <mutex>

namespace {

constexpr size_t SHORT_BYTES = 64 << 10, BESIDE_BYTES = 64 << 20, MARK_BYTES = 12345, RING = 4;

template <class Function>
Function runtime(const char* name, Function) {
    void* symbol = dlsym(RTLD_NEXT, name);
    for (const char* library : {"libcudart.so.13", "libcudart.so.12"})
        if (void* handle = symbol ? nullptr : dlopen(library, RTLD_LAZY | RTLD_NOLOAD))
            symbol = dlsym(handle, name);
    return reinterpret_cast<Function>(symbol);
}

size_t setting(const char* name, size_t otherwise) {
    const char* text = std::getenv(name);
    return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

struct Link {
    size_t times = setting("SLOW_LINK", 0), piece = setting("SLOW_LINK_PIECE", 1 << 20);
    std::FILE* log = std::getenv("SLOW_LINK_LOG") ? std::fopen(std::getenv("SLOW_LINK_LOG"), "w") : nullptr;
    decltype(&cudaMemcpyAsync) copy = runtime("cudaMemcpyAsync", &cudaMemcpyAsync);
    decltype(&cudaMemcpy) blocking = runtime("cudaMemcpy", &cudaMemcpy);
    void *host = nullptr, *device = nullptr;  // what crosses the link beside the program's bytes
    char* ring[RING] = {};
    cudaEvent_t passed[RING] = {};

    Link() {
        cudaMalloc(&device, BESIDE_BYTES);
        cudaMallocHost(&host, BESIDE_BYTES);
        for (size_t slot = 0; slot < RING; ++slot) {
            cudaMallocHost(reinterpret_cast<void**>(&ring[slot]), piece);
            std::memset(ring[slot], 0, piece);
            cudaEventCreateWithFlags(&passed[slot], cudaEventDisableTiming);
        }
        cudaMemset(device, 0, MARK_BYTES);
        cudaDeviceSynchronize();
    }

    // Sends (times - 1) * bytes over the link; the number of copies.
    int burden(size_t bytes, bool in, cudaStream_t stream) {
        int rows = 0;
        for (size_t left = (times - 1) * bytes; left; ++rows) {
            size_t part = std::min(left, BESIDE_BYTES);
            if (in) copy(device, host, part, cudaMemcpyHostToDevice, stream);
            if (!in) copy(host, device, part, cudaMemcpyDeviceToHost, stream);
            left -= part;
        }
        return rows;
    }

    // A pageable copy, staged; the number of copies.
    int staged(char* to, const char* from, size_t bytes, bool in, cudaStream_t stream) {
        size_t pieces = (bytes + piece - 1) / piece, sent = 0;
        int rows = 0;
        auto size = [&](size_t number) { return std::min(piece, bytes - number * piece); };
        auto send = [&] {
            size_t at = sent * piece, slot = sent % RING, count = size(sent);
            cudaEventSynchronize(passed[slot]);
            if (in) std::memcpy(ring[slot], from + at, count);
            if (in) copy(to + at, ring[slot], count, cudaMemcpyHostToDevice, stream);
            if (!in) copy(ring[slot], from + at, count, cudaMemcpyDeviceToHost, stream);
            rows += 1 + burden(count, in, stream);
            cudaEventRecord(passed[slot], stream);
            ++sent;
        };
        cudaStreamSynchronize(stream);
        while (sent < (in ? pieces : std::min(pieces, RING - 1))) send();
        for (size_t number = 0; !in && number < pieces; ++number) {
            cudaEventSynchronize(passed[number % RING]);
            if (sent < pieces) send();
            std::memcpy(to + number * piece, ring[number % RING], size(number));
        }
        return rows;
    }
};

cudaError_t slowed(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream,
                   bool waits) {
    static std::mutex single;
    std::lock_guard<std::mutex> guard(single);
    static Link link;
    auto plain = [&] {
        return waits ? link.blocking(to, from, bytes, kind) : link.copy(to, from, bytes, kind, stream);
    };
    cudaPointerAttributes target{}, source{};
    cudaPointerGetAttributes(&target, to);
    cudaPointerGetAttributes(&source, from);
    bool in = target.type == cudaMemoryTypeDevice && source.type <= cudaMemoryTypeHost;
    bool out = source.type == cudaMemoryTypeDevice && target.type <= cudaMemoryTypeHost;
    if (!in && !out) return plain();
    bool pinned = (in ? source.type : target.type) == cudaMemoryTypeHost;
    int rows = 1;
    cudaError_t result = cudaSuccess;
    if (!link.times || bytes < SHORT_BYTES) {
        result = plain();
    } else if (pinned) {
        rows += link.burden(bytes, in, stream);
        result = plain();
    } else {
        rows = link.staged(static_cast<char*>(to), static_cast<const char*>(from), bytes, in, stream);
        result = cudaPeekAtLastError();
    }
    if (link.log) {
        std::fprintf(link.log, "%s %s %zu %d\n", in ? "h2d" : "d2h", pinned ? "pinned" : "pageable", bytes,
                     rows);
        std::fflush(link.log);
    }
    return result;
}

}  // namespace

extern "C" {
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
    return slowed(to, from, bytes, kind, stream, false);
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    return slowed(to, from, bytes, kind, nullptr, true);
}
}  // extern "C"
