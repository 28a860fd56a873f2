#include "facts.h"

#include <sys/utsname.h>

#include <fstream>
#include <string>

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

}  // namespace

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
    if (options.counted_kernels > 0) journal.fact("counters", "read");
    if (!rank.empty()) journal.fact("rank", rank);
    if (options.capture == Capture::kNvtxRange) journal.fact("capture", "nvtx:" + options.nvtx_range);
    if (options.capture == Capture::kProfilerCalls) journal.fact("capture", "profiler-calls");
    if (options.delay_seconds > 0) journal.fact("delay", std::to_string(options.delay_seconds));
    if (options.duration_seconds > 0) journal.fact("duration", std::to_string(options.duration_seconds));
}

}  // namespace busfare::recorder
