#include "kinds.h"

#include <algorithm>
#include <string_view>

namespace busfare::recorder {
namespace {

struct Activity {
    uint32_t kinds;  ///< wanted with any of these bits
    CUpti_ActivityKind activity;
};

constexpr Activity kOperations[] = {
    {kKernels, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL},
    {kCopies, CUPTI_ACTIVITY_KIND_MEMCPY},
    {kCopies, CUPTI_ACTIVITY_KIND_MEMCPY2},
    {kSets, CUPTI_ACTIVITY_KIND_MEMSET},
    {kWaits, CUPTI_ACTIVITY_KIND_SYNCHRONIZATION},
    {kEvents, CUPTI_ACTIVITY_KIND_CUDA_EVENT},
    {kGraphs, CUPTI_ACTIVITY_KIND_GRAPH_TRACE},
    {kMarkers, CUPTI_ACTIVITY_KIND_MARKER},
    {kOverheads, CUPTI_ACTIVITY_KIND_OVERHEAD},
};

constexpr CUpti_ActivityKind kSetting[] = {
    CUPTI_ACTIVITY_KIND_DEVICE, CUPTI_ACTIVITY_KIND_CONTEXT, CUPTI_ACTIVITY_KIND_STREAM,
    CUPTI_ACTIVITY_KIND_PCIE,   CUPTI_ACTIVITY_KIND_NVLINK,
};

constexpr std::string_view kOfInterest[] = {
    "Launch",     "Memcpy",    "Memset",       "Synchronize",   "StreamWait",       "EventRecord",
    "Malloc",     "Free",      "MemAlloc",     "HostAlloc",     "HostRegister",     "HostUnregister",
    "Prefetch",   "Reset",     "StreamCreate", "StreamDestroy", "GraphInstantiate", "BatchMemOp",
    "WriteValue", "WaitValue", "GraphUpload",  "ModuleLoad",    "LibraryLoad",
};

// Names that contain a word above without being such a call.
constexpr std::string_view kNotOfInterest[] = {"Get", "Attribute", "GraphAdd", "SetParams", "SetLimit"};

constexpr CUpti_CallbackId kHighestCall = 2048;

}  // namespace

bool is_call_of_interest(const char* name) {
    const std::string_view text(name);
    const auto has = [&](std::string_view word) { return text.find(word) != std::string_view::npos; };
    return std::ranges::none_of(kNotOfInterest, has) && std::ranges::any_of(kOfInterest, has);
}

bool Kinds::enable_setting(std::string* why) const {
    for (const CUpti_ActivityKind activity : kSetting) {
        const CUptiResult result = cupti_.enable(activity);
        // Machines without NVLink or PCIe facts (virtual ones) may refuse those; without devices nothing
        // works.
        if (result == CUPTI_SUCCESS || activity != CUPTI_ACTIVITY_KIND_DEVICE) continue;
        const char* text = "";
        cupti_.result_string(result, &text);
        *why = std::string("CUPTI cannot record here (") + text + "), so nothing is recorded";
        return false;
    }
    if (wanted_ & kMemory) cupti_.enable(CUPTI_ACTIVITY_KIND_MEMORY2);
    return true;
}

void Kinds::enable_operations(bool on) const {
    for (const Activity& operation : kOperations) {
        if (!(wanted_ & operation.kinds)) continue;
        on ? cupti_.enable(operation.activity) : cupti_.disable(operation.activity);
    }
}

void Kinds::enable_calls(bool on) const {
    if (!(wanted_ & (kCalls | kAllCalls))) return;
    const bool by_call = !(wanted_ & kAllCalls) && cupti_.enable_runtime_call && cupti_.enable_driver_call;
    const auto enable = [&](CUpti_ActivityKind activity, CUpti_CallbackDomain domain, auto enable_call) {
        if (!by_call) {
            on ? cupti_.enable(activity) : cupti_.disable(activity);
            return;
        }
        for (CUpti_CallbackId call = 1; call < kHighestCall; ++call) {
            const char* name = nullptr;
            if (cupti_.callback_name(domain, call, &name) == CUPTI_SUCCESS && name &&
                is_call_of_interest(name)) {
                enable_call(call, on);
            }
        }
    };
    enable(CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_CB_DOMAIN_RUNTIME_API, cupti_.enable_runtime_call);
    enable(CUPTI_ACTIVITY_KIND_DRIVER, CUPTI_CB_DOMAIN_DRIVER_API, cupti_.enable_driver_call);
}

void Kinds::enable_managed() const {
    if (!(wanted_ & kManaged)) return;
    // One at a time: a counter that this machine lacks must not take the others with it.
    for (const auto kind : {CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_KIND_BYTES_TRANSFER_HTOD,
                            CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_KIND_BYTES_TRANSFER_DTOH,
                            CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_KIND_BYTES_TRANSFER_DTOD,
                            CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_KIND_CPU_PAGE_FAULT_COUNT,
                            CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_KIND_GPU_PAGE_FAULT}) {
        CUpti_ActivityUnifiedMemoryCounterConfig counter{
            CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_SCOPE_PROCESS_SINGLE_DEVICE, kind, 0, 1};
        cupti_.configure_managed(&counter, 1);
    }
    cupti_.enable(CUPTI_ACTIVITY_KIND_UNIFIED_MEMORY_COUNTER);
}

}  // namespace busfare::recorder
