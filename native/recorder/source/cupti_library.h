#pragma once

#include <cupti.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace busfare::recorder {

/// The CUPTI that this process can load, by name of function. Nothing is linked: a program must start, and
/// run unrecorded, on a machine without CUPTI.
struct CuptiLibrary {
    std::string path;
    uint32_t version = 0;  ///< as `cuptiGetVersion` says: 18 to 29 for CUDA 12, 130000 and up for CUDA 13

    decltype(&::cuptiGetVersion) get_version = nullptr;
    decltype(&::cuptiGetResultString) result_string = nullptr;
    decltype(&::cuptiGetTimestamp) timestamp = nullptr;
    decltype(&::cuptiSubscribe) subscribe = nullptr;
    decltype(&::cuptiEnableCallback) enable_callback = nullptr;
    decltype(&::cuptiGetCallbackName) callback_name = nullptr;
    decltype(&::cuptiActivityRegisterCallbacks) register_callbacks = nullptr;
    decltype(&::cuptiActivityEnable) enable = nullptr;
    decltype(&::cuptiActivityDisable) disable = nullptr;
    decltype(&::cuptiActivityGetNextRecord) next_record = nullptr;
    decltype(&::cuptiActivityGetNumDroppedRecords) dropped_records = nullptr;
    decltype(&::cuptiActivityFlushAll) flush_all = nullptr;
    decltype(&::cuptiActivitySetAttribute) set_attribute = nullptr;
    decltype(&::cuptiActivityConfigureUnifiedMemoryCounter) configure_managed = nullptr;

    // Not in every version: null where missing.
    decltype(&::cuptiActivityEnableRuntimeApi) enable_runtime_call = nullptr;  ///< from CUDA 12.5
    decltype(&::cuptiActivityEnableDriverApi) enable_driver_call = nullptr;
    decltype(&::cuptiGetStreamIdEx) stream_number = nullptr;
    decltype(&::cuptiSetThreadIdType) set_thread_id_type = nullptr;
    decltype(&::cuptiUnsubscribe) unsubscribe = nullptr;
    /// CUPTI's own entry for NVTX; returns 1 when it listens.
    using NvtxInitialize = int (*)(void* get_export_table);
    NvtxInitialize nvtx_initialize = nullptr;
};

/// A value in a record of CUPTI, or in the parameters of a call.
template <typename T>
T at(const void* record, size_t offset) {
    T value;
    std::memcpy(&value, static_cast<const char*>(record) + offset, sizeof value);
    return value;
}

/// The version of CUDA that the driver of this process supports (13000 for 13.0), or 0 without a driver.
int driver_cuda_version();

/// Loads CUPTI once. Tried in turn: a CUPTI that the process already holds, the loader's own search, then
/// `candidates` (colon-separated). CUDA 13 drivers take libcupti.so.13 first, then .12; CUDA 12 drivers .12
/// only. Null when there is none that can be used: `*why` is then one line for the user.
const CuptiLibrary* load_cupti(const std::string& candidates, bool trust_any_version, std::string* why);

}  // namespace busfare::recorder
