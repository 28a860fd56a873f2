#include "nvtx_gate.h"

#include <cstring>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace busfare::recorder {
namespace {

// The part of NVTX's event attributes that is wanted (version 2 and 3 of NVTX alike).
constexpr size_t kMessageTypeOffset = 32;
constexpr size_t kMessageOffset = 40;
constexpr int kAsciiMessage = 1;
constexpr int kRegisteredMessage = 3;

constexpr CUpti_CallbackId kCalls[] = {
    CUPTI_CBID_NVTX_nvtxRangeStartA,
    CUPTI_CBID_NVTX_nvtxRangeStartEx,
    CUPTI_CBID_NVTX_nvtxRangeEnd,
    CUPTI_CBID_NVTX_nvtxRangePushA,
    CUPTI_CBID_NVTX_nvtxRangePushEx,
    CUPTI_CBID_NVTX_nvtxRangePop,
    CUPTI_CBID_NVTX_nvtxDomainRangeStartEx,
    CUPTI_CBID_NVTX_nvtxDomainRangeEnd,
    CUPTI_CBID_NVTX_nvtxDomainRangePushEx,
    CUPTI_CBID_NVTX_nvtxDomainRangePop,
    CUPTI_CBID_NVTX_nvtxDomainRegisterStringA,
};

/// Registered strings are named by handle, and started ranges by number: both are rare, so one lock will do.
struct Registry {
    std::mutex mutex;
    std::unordered_set<uint64_t> matching_strings;
    std::unordered_set<uint64_t> matching_ranges;
};

Registry& registry() {
    static Registry* const registry = new Registry;
    return *registry;
}

/// By domain, whether each range that this thread has pushed matches.
thread_local std::unordered_map<uint64_t, std::vector<bool>> t_pushed;

bool matches(const std::string& range, uint64_t attributes) {
    if (!attributes) return false;
    const auto* event = reinterpret_cast<const void*>(attributes);
    const auto type = at<int>(event, kMessageTypeOffset);
    const auto message = at<uint64_t>(event, kMessageOffset);
    if (type == kAsciiMessage) return message && range == reinterpret_cast<const char*>(message);
    if (type != kRegisteredMessage) return false;
    const std::lock_guard lock(registry().mutex);
    return registry().matching_strings.contains(message);
}

}  // namespace

void NvtxGate::subscribe(const CuptiLibrary& cupti, CUpti_SubscriberHandle subscriber) const {
    for (const CUpti_CallbackId call : kCalls)
        cupti.enable_callback(1, subscriber, CUPTI_CB_DOMAIN_NVTX, call);
}

NvtxGate::Change NvtxGate::note(CUpti_CallbackId call, const void* callback_data) {
    const auto& data = *static_cast<const CUpti_NvtxData*>(callback_data);
    const auto word = [&](size_t index) { return at<uint64_t>(data.functionParams, 8 * index); };
    const auto returned = [&] {
        uint64_t value = 0;
        if (data.functionReturnValue) std::memcpy(&value, data.functionReturnValue, sizeof value);
        return value;
    };
    const auto text_matches = [&](uint64_t text) {
        return text && range_ == reinterpret_cast<const char*>(text);
    };
    const auto opened = [&] { return open_.fetch_add(1) == 0 ? Change::kOpened : Change::kNone; };
    const auto closed = [&] { return open_.fetch_sub(1) == 1 ? Change::kClosed : Change::kNone; };
    const auto push = [&](uint64_t domain, bool match) {
        t_pushed[domain].push_back(match);
        return match ? opened() : Change::kNone;
    };
    const auto pop = [&](uint64_t domain) {
        std::vector<bool>& ranges = t_pushed[domain];
        if (ranges.empty()) return Change::kNone;
        const bool match = ranges.back();
        ranges.pop_back();
        return match ? closed() : Change::kNone;
    };
    const auto start = [&](bool match) {
        if (!match) return Change::kNone;
        const std::lock_guard lock(registry().mutex);
        registry().matching_ranges.insert(returned());
        return opened();
    };
    const auto end = [&](uint64_t range) {
        const std::lock_guard lock(registry().mutex);
        return registry().matching_ranges.erase(range) ? closed() : Change::kNone;
    };
    switch (call) {
        case CUPTI_CBID_NVTX_nvtxDomainRegisterStringA:
            if (text_matches(word(1))) {
                const std::lock_guard lock(registry().mutex);
                registry().matching_strings.insert(returned());
            }
            return Change::kNone;
        case CUPTI_CBID_NVTX_nvtxRangePushA:
            return push(0, text_matches(word(0)));
        case CUPTI_CBID_NVTX_nvtxRangePushEx:
            return push(0, matches(range_, word(0)));
        case CUPTI_CBID_NVTX_nvtxDomainRangePushEx:
            return push(word(0), matches(range_, word(1)));
        case CUPTI_CBID_NVTX_nvtxRangePop:
            return pop(0);
        case CUPTI_CBID_NVTX_nvtxDomainRangePop:
            return pop(word(0));
        case CUPTI_CBID_NVTX_nvtxRangeStartA:
            return start(text_matches(word(0)));
        case CUPTI_CBID_NVTX_nvtxRangeStartEx:
            return start(matches(range_, word(0)));
        case CUPTI_CBID_NVTX_nvtxDomainRangeStartEx:
            return start(matches(range_, word(1)));
        case CUPTI_CBID_NVTX_nvtxRangeEnd:
            return end(word(0));
        case CUPTI_CBID_NVTX_nvtxDomainRangeEnd:
            return end(word(1));
        default:
            return Change::kNone;
    }
}

}  // namespace busfare::recorder
