#include "facts.h"

#include <cuda.h>
#include <dlfcn.h>
#include <sys/utsname.h>

#include <fstream>
#include <string>
#include <string_view>

#include "recording_file.h"

namespace busfare::recorder {
namespace {

std::string processor_name() {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);) {
        if (const size_t colon = line.find(": ");
            line.rfind("model name", 0) == 0 && colon != std::string::npos) {
            return line.substr(colon + 2);
        }
    }
    return "";
}

/// The driver's version, such as 580.159.04: the first word of its line that begins with a digit.
std::string driver_version() {
    std::ifstream file("/proc/driver/nvidia/version");
    for (std::string word; file >> word;) {
        if (word[0] >= '0' && word[0] <= '9') return word;
    }
    return "";
}

std::string cuda_version_text(int version) {
    return version ? std::to_string(version / 1000) + '.' + std::to_string(version % 1000 / 10) : "";
}

/// A function of the driver that this process has loaded, or null.
template <typename Function>
Function* driver_function(const char* name) {
    void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    return driver ? reinterpret_cast<Function*>(::dlsym(driver, name)) : nullptr;
}

}  // namespace

void state_devices(Journal& journal) {
    const auto count_of = driver_function<decltype(::cuDeviceGetCount)>("cuDeviceGetCount");
    const auto name_of = driver_function<decltype(::cuDeviceGetName)>("cuDeviceGetName");
    const auto memory_of = driver_function<CUresult(size_t*, CUdevice)>("cuDeviceTotalMem_v2");
    const auto attribute_of = driver_function<decltype(::cuDeviceGetAttribute)>("cuDeviceGetAttribute");
    int count = 0;
    if (!count_of || !name_of || !memory_of || !attribute_of || count_of(&count) != CUDA_SUCCESS) return;
    for (CUdevice device = 0; device < count; ++device) {
        const auto attribute = [&](CUdevice_attribute which) {
            int value = 0;
            return attribute_of(&value, which, device) == CUDA_SUCCESS ? static_cast<uint64_t>(value) : 0;
        };
        char name[256] = "";
        size_t memory = 0;
        name_of(name, sizeof name, device);
        memory_of(&memory, device);
        constexpr uint64_t kKilo = 1000, kClockEdges = 2, kBits = 8;
        const uint64_t bandwidth = kClockEdges * kKilo * attribute(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE) *
                                   attribute(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH) / kBits;
        journal.append(TableId::kDevices,
                       {static_cast<uint64_t>(device), journal.string(std::string_view(name)), 0, 0, memory,
                        bandwidth, attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE) * kKilo,
                        attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
                        attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
                        attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
                        attribute(CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT),
                        attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)});
    }
}

void state_facts(Journal& journal, const Options& options, const CuptiLibrary* cupti) {
    utsname system{};
    uname(&system);
    const std::string rank = rank_of_process();
    journal.fact("producer", "busfare record " BUSFARE_RECORDER_VERSION);
    journal.fact("hostname", system.nodename);
    journal.fact("cpu", processor_name());
    journal.fact("driver", driver_version());
    journal.fact("cuda", cuda_version_text(driver_cuda_version()));
    if (cupti) journal.fact("cupti", std::to_string(cupti->version));
    journal.fact("command", options.command);
    if (!options.run.empty()) journal.fact("run", options.run);
    const bool calls = options.kinds & (kCalls | kAllCalls);
    journal.fact("calls", !calls ? "none" : options.calls == Calls::kDriver ? "driver" : "both");
    if (!rank.empty()) journal.fact("rank", rank);
    if (options.capture == Capture::kNvtxRange) journal.fact("capture", "nvtx:" + options.nvtx_range);
    if (options.capture == Capture::kProfilerCalls) journal.fact("capture", "profiler-calls");
    if (options.delay_seconds > 0) journal.fact("delay", std::to_string(options.delay_seconds));
    if (options.duration_seconds > 0) journal.fact("duration", std::to_string(options.duration_seconds));
}

}  // namespace busfare::recorder
