#pragma once

#include <cupti.h>

#include <cstddef>
#include <cstdint>
#include <functional>

/// A `Call` by the names of the runtime's and the driver's function.
#define CALL(runtime, driver) {CUPTI_RUNTIME_TRACE_CBID_##runtime, CUPTI_DRIVER_TRACE_CBID_##driver}

/// What the stand-in for CUPTI offers to those who make up work for it.
namespace fake {

/// A runtime call and the driver call that it makes; both bear one correlation number.
struct Call {
    uint32_t runtime;
    uint32_t driver;
};

inline const CUstream kStream = reinterpret_cast<CUstream>(0x5000);
inline const CUevent kEvent = reinterpret_cast<CUevent>(0x6000);

/// The version played, as cuptiGetVersion tells it.
uint32_t version();

/// The clock's time before it goes on by so many ns.
uint64_t tick(uint64_t by);

uint32_t next_correlation();

/// A record into CUPTI's buffer, as many of its `bytes` as this version's records have, if its kind is
/// enabled.
void emit(CUpti_ActivityKind kind, void* record, size_t bytes);

template <typename Record>
void emit(CUpti_ActivityKind kind, Record record) {
    record.kind = kind;
    emit(kind, &record, sizeof record);
}

/// The record of a runtime call, or of a driver call where `runtime` is 0. As with CUPTI of CUDA 12 and 13,
/// the driver call in a runtime call has callbacks but no record, whether the runtime's calls are recorded or
/// not.
void emit_call(const Call& call, uint32_t correlation, uint64_t start, uint64_t end);

/// The callbacks of a runtime call and of the driver call in it, which does its `work`.
void call_back(const Call& call, uint32_t correlation, uint64_t start, uint64_t end,
               const void* runtime_parameters, const void* driver_parameters,
               const std::function<void()>& work = {});

/// The callback of an NVTX call, where one is subscribed to.
void call_back_nvtx(uint32_t call, const CUpti_NvtxData& data);

}  // namespace fake
