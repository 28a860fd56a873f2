#include "copy_calls.h"

#include <array>
#include <cstddef>

#include "cupti_library.h"

namespace busfare::recorder {
namespace {

static_assert(offsetof(cuMemcpyPeer_params, srcDevice) == 16 &&
              offsetof(cuMemcpyPeer_params, ByteCount) == 32);
static_assert(offsetof(cuMemcpyHtoDAsync_v2_params, srcHost) == 8 &&
              offsetof(cuMemcpyHtoDAsync_v2_params, ByteCount) == 16);

constexpr CopyCall linear(int number, HostSide host) {
    return {static_cast<uint16_t>(number), 0, 8, 16, host, false};
}
constexpr CopyCall peer(int number) {
    return {static_cast<uint16_t>(number), 0, 16, 32, HostSide::kNone, false};
}
constexpr CopyCall described(int number) {
    return {static_cast<uint16_t>(number), 0, 0, 0, HostSide::kNone, true};
}

/// A call, and its variant for the default stream of each thread.
#define BOTH(make, name, variant, ...)                               \
    make(CUPTI_DRIVER_TRACE_CBID_##name __VA_OPT__(, ) __VA_ARGS__), \
        make(CUPTI_DRIVER_TRACE_CBID_##name##variant __VA_OPT__(, ) __VA_ARGS__)
constexpr CopyCall kCalls[] = {
    BOTH(linear, cuMemcpyHtoD_v2, _ptds, HostSide::kSource),
    BOTH(linear, cuMemcpyHtoDAsync_v2, _ptsz, HostSide::kSource),
    BOTH(linear, cuMemcpyDtoH_v2, _ptds, HostSide::kDestination),
    BOTH(linear, cuMemcpyDtoHAsync_v2, _ptsz, HostSide::kDestinationLater),
    BOTH(linear, cuMemcpyDtoD_v2, _ptds, HostSide::kNone),
    BOTH(linear, cuMemcpyDtoDAsync_v2, _ptsz, HostSide::kNone),
    BOTH(linear, cuMemcpy, _ptds, HostSide::kNone),
    BOTH(linear, cuMemcpyAsync, _ptsz, HostSide::kNone),
    BOTH(described, cuMemcpy2D_v2, _ptds),
    BOTH(described, cuMemcpy2DUnaligned_v2, _ptds),
    BOTH(described, cuMemcpy2DAsync_v2, _ptsz),
    BOTH(peer, cuMemcpyPeer, _ptds),
    BOTH(peer, cuMemcpyPeerAsync, _ptsz),
};

constexpr size_t kNumbers = 1024;

constexpr std::array<const CopyCall*, kNumbers> kIndex = [] {
    std::array<const CopyCall*, kNumbers> index{};
    for (const CopyCall& call : kCalls) index[call.number] = &call;
    return index;
}();

/// Where one side of a 2D copy begins.
uint64_t begin_of(CUmemorytype type, const void* host, CUdeviceptr device, size_t x, size_t y, size_t pitch) {
    if (type == CU_MEMORYTYPE_ARRAY) return 0;
    const uint64_t base = type == CU_MEMORYTYPE_HOST ? reinterpret_cast<uint64_t>(host) : device;
    return base + y * pitch + x;
}

}  // namespace

const CopyCall* copy_call(uint32_t number) {
    return number < kNumbers ? kIndex[number] : nullptr;
}

void read_copy(const CopyCall& call, const void* parameters, Note& note) {
    if (!call.described) {
        note.first = at<uint64_t>(parameters, call.source);
        note.second = at<uint64_t>(parameters, call.destination);
        note.third = at<uint64_t>(parameters, call.bytes);
        return;
    }
    const auto* const copy = reinterpret_cast<const CUDA_MEMCPY2D*>(at<uint64_t>(parameters, 0));
    if (!copy) return;
    note.first = begin_of(copy->srcMemoryType, copy->srcHost, copy->srcDevice, copy->srcXInBytes, copy->srcY,
                          copy->srcPitch);
    note.second = begin_of(copy->dstMemoryType, copy->dstHost, copy->dstDevice, copy->dstXInBytes, copy->dstY,
                           copy->dstPitch);
    note.third = copy->WidthInBytes * copy->Height;
}

}  // namespace busfare::recorder
