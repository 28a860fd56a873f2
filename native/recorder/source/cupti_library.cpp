#include "cupti_library.h"

#include <dlfcn.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <vector>

namespace busfare::recorder {
namespace {

// Records of CUDA 12 and 13 begin alike; these are the versions whose headers were compared.
constexpr uint32_t kOldestVersion = 18;
constexpr uint32_t kNewestCuda12 = 99;
constexpr uint32_t kOldestCuda13 = 130000;
constexpr uint32_t kNewestVersion = 130599;

template <typename Function>
bool find(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(::dlsym(library, name));
    return function != nullptr;
}

#define NEED(name, function) \
    if (!find(library, #name, cupti.function)) return #name;

/// The first function that is missing, or null.
const char* resolve(void* library, CuptiLibrary& cupti) {
    find(library, "cuptiActivityEnableRuntimeApi", cupti.enable_runtime_call);
    find(library, "cuptiActivityEnableDriverApi", cupti.enable_driver_call);
    find(library, "cuptiGetStreamIdEx", cupti.stream_number);
    find(library, "cuptiSetThreadIdType", cupti.set_thread_id_type);
    find(library, "cuptiUnsubscribe", cupti.unsubscribe);
    find(library, "InitializeInjectionNvtx2", cupti.nvtx_initialize);
    NEED(cuptiGetVersion, get_version)
    NEED(cuptiGetResultString, result_string)
    NEED(cuptiGetTimestamp, timestamp)
    NEED(cuptiSubscribe, subscribe)
    NEED(cuptiEnableCallback, enable_callback)
    NEED(cuptiGetCallbackName, callback_name)
    NEED(cuptiActivityRegisterCallbacks, register_callbacks)
    NEED(cuptiActivityEnable, enable)
    NEED(cuptiActivityDisable, disable)
    NEED(cuptiActivityGetNextRecord, next_record)
    NEED(cuptiActivityGetNumDroppedRecords, dropped_records)
    NEED(cuptiActivityFlushAll, flush_all)
    NEED(cuptiActivitySetAttribute, set_attribute)
    NEED(cuptiActivityConfigureUnifiedMemoryCounter, configure_managed)
    return nullptr;
}

std::vector<std::string> split(const std::string& text) {
    std::vector<std::string> parts;
    for (size_t from = 0; from <= text.size();) {
        const size_t colon = std::min(text.find(':', from), text.size());
        if (colon > from) parts.push_back(text.substr(from, colon - from));
        from = colon + 1;
    }
    return parts;
}

void* open_cupti(const std::string& candidates, bool cuda13, std::string& path) {
    std::vector<std::string> names;
    if (cuda13) names.push_back("libcupti.so.13");
    names.push_back("libcupti.so.12");
    // Two copies of CUPTI in one process disturb each other, so one that is there already comes first.
    for (const std::string& name : names) {
        path = name;
        if (void* library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_NOLOAD)) return library;
    }
    for (const std::string& name : names) {
        path = name;
        if (void* library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
        for (const std::string& candidate : split(candidates)) {
            if (candidate.find(name) == std::string::npos) continue;
            path = candidate;
            if (void* library = ::dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
        }
    }
    return nullptr;
}

}  // namespace

int driver_cuda_version() {
    void* driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (!driver) driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    decltype(&::cuDriverGetVersion) get_version = nullptr;
    int version = 0;
    if (!driver || !find(driver, "cuDriverGetVersion", get_version) || get_version(&version) != CUDA_SUCCESS)
        return 0;
    return version;
}

const CuptiLibrary* load_cupti(const std::string& candidates, bool trust_any_version, std::string* why) {
    static std::mutex mutex;
    static CuptiLibrary* loaded = nullptr;
    const std::lock_guard lock(mutex);
    if (loaded) return loaded;
    auto cupti = std::make_unique<CuptiLibrary>();
    void* library = open_cupti(candidates, driver_cuda_version() >= 13000, cupti->path);
    if (!library) {
        *why =
            "no CUPTI library found, so nothing is recorded; install the Python package nvidia-cuda-cupti or "
            "add the toolkit's extras/CUPTI/lib64 to LD_LIBRARY_PATH";
        return nullptr;
    }
    if (const char* missing = resolve(library, *cupti)) {
        *why = cupti->path + " lacks " + missing + ", so nothing is recorded; CUDA 12 or 13 is needed";
        return nullptr;
    }
    if (cupti->get_version(&cupti->version) != CUPTI_SUCCESS) {
        *why = cupti->path +
               " does not work with this driver, so nothing is recorded; its CUDA must not be newer";
        return nullptr;
    }
    const uint32_t version = cupti->version;
    const bool supported = (version >= kOldestVersion && version <= kNewestCuda12) ||
                           (version >= kOldestCuda13 && version <= kNewestVersion);
    if (!supported && !(trust_any_version && version > kNewestVersion)) {
        *why = cupti->path + " is of version " + std::to_string(version) +
               ", whose records this recorder does not know, so nothing is recorded; versions " +
               std::to_string(kOldestVersion) + " (CUDA 12.0) to " +
               std::to_string(kNewestVersion / 100 * 100) +
               " (CUDA 13.5) are known; BUSFARE_RECORD_TRUST_CUPTI=1 takes a newer one at your risk";
        return nullptr;
    }
    loaded = cupti.release();
    return loaded;
}

}  // namespace busfare::recorder
