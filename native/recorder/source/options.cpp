#include "options.h"

#include <cstdlib>
#include <string_view>

#include "message.h"

namespace busfare::recorder {
namespace {

struct NamedKind {
    std::string_view name;
    uint32_t bits;
};

constexpr NamedKind kNames[] = {
    {"kernels", kKernels},     {"copies", kCopies},     {"sets", kSets},           {"calls", kCalls},
    {"all-calls", kAllCalls},  {"waits", kWaits},       {"events", kEvents},       {"memory", kMemory},
    {"managed", kManaged},     {"markers", kMarkers},   {"overheads", kOverheads}, {"graphs", kGraphs},
    {"addresses", kAddresses}, {"messages", kMessages}, {"default", kDefault},
};

const char* text(const char* name) {
    const char* value = std::getenv(name);
    return value ? value : "";
}

double number(const char* name, double otherwise) {
    const char* value = text(name);
    char* end = nullptr;
    const double parsed = std::strtod(value, &end);
    return end != value && parsed >= 0 ? parsed : otherwise;
}

uint32_t kinds_named(std::string_view words) {
    uint32_t kinds = 0;
    while (!words.empty()) {
        const size_t comma = words.find(',');
        const std::string_view word = words.substr(0, comma);
        uint32_t bits = 0;
        for (const NamedKind& kind : kNames) {
            if (kind.name == word) bits = kind.bits;
        }
        if (bits == 0) sayf("unknown kind '%.*s' skipped", static_cast<int>(word.size()), word.data());
        kinds |= bits;
        words = comma == std::string_view::npos ? std::string_view{} : words.substr(comma + 1);
    }
    return kinds;
}

}  // namespace

Options options_from_environment() {
    Options options;
    options.output = text("BUSFARE_RECORD_OUTPUT");
    options.flush_seconds = number("BUSFARE_RECORD_FLUSH_EVERY", options.flush_seconds);
    options.delay_seconds = number("BUSFARE_RECORD_DELAY", 0.0);
    options.duration_seconds = number("BUSFARE_RECORD_DURATION", 0.0);
    options.fingerprint = number("BUSFARE_RECORD_FINGERPRINT", 0.0) > 0;
    options.stacks = number("BUSFARE_RECORD_STACKS", 0.0) > 0;
    options.trust_cupti = number("BUSFARE_RECORD_TRUST_CUPTI", 0.0) > 0;
    options.cupti = text("BUSFARE_RECORD_CUPTI");
    options.command = text("BUSFARE_RECORD_COMMAND");
    options.run = text("BUSFARE_RECORD_RUN");
    if (const double kib = number("BUSFARE_RECORD_BUFFER_KIB", 0.0); kib >= 16) {
        options.buffer_bytes = static_cast<size_t>(kib) << 10;
    }
    if (const double limit = number("BUSFARE_RECORD_BUFFERS", 0.0); limit >= 2) {
        options.buffer_limit = static_cast<size_t>(limit);
    }
    if (const std::string_view words = text("BUSFARE_RECORD_KINDS"); !words.empty()) {
        options.kinds = kinds_named(words);
    }
    if (const std::string_view calls = text("BUSFARE_RECORD_CALLS"); calls == "both") {
        options.calls = Calls::kProgram;
    } else if (calls == "none") {
        options.kinds &= ~(kCalls | kAllCalls);
    } else if (!calls.empty() && calls != "driver") {
        sayf("unknown choice of calls '%.*s' skipped", static_cast<int>(calls.size()), calls.data());
    }
    const std::string_view capture = text("BUSFARE_RECORD_CAPTURE");
    if (capture == "profiler-calls") options.capture = Capture::kProfilerCalls;
    if (constexpr std::string_view prefix = "nvtx:"; capture.substr(0, prefix.size()) == prefix) {
        options.capture = Capture::kNvtxRange;
        options.nvtx_range = capture.substr(prefix.size());
    }
    return options;
}

}  // namespace busfare::recorder
