#include "copy_calls.h"

#include <cupti.h>

#include <array>
#include <cstddef>
#include <cstring>

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

constexpr CopyCall kCalls[] = {
    linear(CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoD_v2, HostSide::kSource),
    linear(CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoD_v2_ptds, HostSide::kSource),
    linear(CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoDAsync_v2, HostSide::kSource),
    linear(CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoDAsync_v2_ptsz, HostSide::kSource),
    linear(CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoH_v2, HostSide::kDestination),
    linear(CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoH_v2_ptds, HostSide::kDestination),
    linear(CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoHAsync_v2, HostSide::kDestinationLater),
    linear(CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoHAsync_v2_ptsz, HostSide::kDestinationLater),
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

constexpr std::array<const CopyCall*, kNumbers> kIndex = [] {
    std::array<const CopyCall*, kNumbers> index{};
    for (const CopyCall& call : kCalls) index[call.number] = &call;
    return index;
}();

uint64_t word(const void* parameters, size_t offset) {
    uint64_t value;
    std::memcpy(&value, static_cast<const char*>(parameters) + offset, sizeof value);
    return value;
}

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
        note.first = word(parameters, call.source);
        note.second = word(parameters, call.destination);
        note.third = word(parameters, call.bytes);
        return;
    }
    const auto* const copy = reinterpret_cast<const CUDA_MEMCPY2D*>(word(parameters, 0));
    if (!copy) return;
    note.first = begin_of(copy->srcMemoryType, copy->srcHost, copy->srcDevice, copy->srcXInBytes, copy->srcY,
                          copy->srcPitch);
    note.second = begin_of(copy->dstMemoryType, copy->dstHost, copy->dstDevice, copy->dstXInBytes, copy->dstY,
                           copy->dstPitch);
    note.third = copy->WidthInBytes * copy->Height;
}

}  // namespace busfare::recorder
