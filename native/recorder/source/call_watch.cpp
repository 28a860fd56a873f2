#include "call_watch.h"

#include <cstring>
#include <string_view>

#include "fingerprint.h"
#include "kinds.h"

namespace busfare::recorder {
namespace {

static_assert(offsetof(cuEventRecord_params, hStream) == 8 &&
              offsetof(cuEventRecordWithFlags_params, hStream) == 8);
static_assert(offsetof(cuStreamWaitEvent_params, hEvent) == 8);
static_assert(offsetof(cuMemcpyDtoHAsync_v2_params, hStream) == 24);

/// What must be kept from the beginning of a call to its end; calls of one thread do not run at once.
thread_local EventNumbers::Event t_event{};
thread_local Note t_fingerprint{};

template <typename Handle>
Handle handle(const CUpti_CallbackData& data, size_t index) {
    return at<Handle>(data.functionParams, 8 * index);
}

}  // namespace

CallWatch::CallWatch(const CuptiLibrary& cupti, const Options& options, const TraceClock& clock,
                     std::function<void()> wake_writer)
    : cupti_(cupti),
      clock_(clock),
      fingerprint_(options.fingerprint),
      kinds_(options.watched_kinds()),
      notes_(std::move(wake_writer)),
      streams_(cupti) {
    if (fingerprint_) landed_copies_.start();
    for (CUpti_CallbackId number = 1; number < kNumbers; ++number) {
        const char* name = nullptr;
        if (cupti_.callback_name(CUPTI_CB_DOMAIN_DRIVER_API, number, &name) != CUPTI_SUCCESS || !name)
            continue;
        Plan& plan = plans_[number];
        const std::string_view text(name);
        plan.per_thread = text.ends_with("_ptsz") || text.ends_with("_ptds");
        plan.call = kinds_ & kAllCalls || (kinds_ & kCalls && is_call_of_interest(name));
        plan.act = copy_call(number) && kinds_ & kAddresses ? Act::kCopy : act_of(name);
        if (plan.act == Act::kNone && plan.call) plan.act = Act::kCall;
        plan.stack = options.stacks && (text.starts_with("cuMem") || text.starts_with("cuGraphLaunch") ||
                                        text.find("Synchronize") != text.npos);
    }
}

CallWatch::Act CallWatch::act_of(const char* name) const {
    std::string_view plain(name);
    for (const std::string_view suffix : {"_ptsz", "_ptds", "_v2"}) {
        if (plain.ends_with(suffix)) plain.remove_suffix(suffix.size());
    }
    if (kinds_ & kWaits) {
        if (plain == "cuStreamSynchronize") return Act::kStreamWait;
        if (plain == "cuCtxSynchronize") return Act::kContextWait;
        if (plain == "cuEventSynchronize") return Act::kEventWait;
        if (plain == "cuStreamWaitEvent") return Act::kStreamWaitsEvent;
    }
    if (kinds_ & (kWaits | kEvents)) {
        // Handles are numbered, also where only the one or the other is wanted.
        if (plain == "cuEventRecord" || plain == "cuEventRecordWithFlags") return Act::kEventRecord;
        if (plain == "cuEventDestroy") return Act::kEventDestroy;
        if (plain == "cuStreamDestroy") return Act::kStreamDestroy;
    }
    return Act::kNone;
}

void CallWatch::subscribe(CUpti_SubscriberHandle subscriber, bool on) const {
    for (CUpti_CallbackId number = 1; number < kNumbers; ++number) {
        if (plans_[number].act != Act::kNone)
            cupti_.enable_callback(on, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, number);
    }
}

bool CallWatch::note(CUpti_CallbackId number, const CUpti_CallbackData& data) {
    if (number >= kNumbers || plans_[number].act == Act::kNone || !data.correlationData) return false;
    data.callbackSite == CUPTI_API_ENTER ? enter(number, plans_[number], data)
                                         : leave(number, plans_[number], data);
    return true;
}

void CallWatch::enter(CUpti_CallbackId number, const Plan& plan, const CUpti_CallbackData& data) {
    const bool on = on_.load(std::memory_order_relaxed);
    Notes::fetch_next_row();
    switch (plan.act) {
        case Act::kEventWait:
            t_event = events_.of(handle<CUevent>(data, 0));
            break;
        case Act::kStreamWaitsEvent:
            t_event = events_.of(handle<CUevent>(data, 1));
            break;
        case Act::kEventRecord:  // numbered outside of the window, too: a wait inside is for no other record
            t_event = events_.record(handle<CUevent>(data, 0));
            break;
        case Act::kEventDestroy:
            events_.forget(handle<CUevent>(data, 0));
            break;
        case Act::kStreamDestroy:
            streams_.forget();
            break;
        case Act::kCopy:
            t_fingerprint.second = 0;
            if (const CopyCall& call = *copy_call(number); fingerprint_ && on) {
                Note copy{};
                read_copy(call, data.functionParams, copy);
                if (call.host == HostSide::kSource) take_fingerprint(copy.first, copy.third, t_fingerprint);
            }
            break;
        default:
            break;
    }
    *data.correlationData = on ? clock_.now() : 0;
}

void CallWatch::leave(CUpti_CallbackId number, const Plan& plan, const CUpti_CallbackData& data) {
    Note note{};
    note.start = *data.correlationData;
    if (note.start == 0) return;
    note.end = clock_.now();
    if (data.functionReturnValue) std::memcpy(&note.result, data.functionReturnValue, sizeof note.result);
    note.correlation = data.correlationId;
    note.number = static_cast<uint16_t>(number);
    note.call = plan.call;
    note.context = data.contextUid;
    note.stream = kNoHandle;
    note.second = kNoHandle;
    const auto wait = [&](uint64_t type) {
        note.what = Note::What::kWait;
        note.first = type;
    };
    const auto event = [&] {
        note.second = t_event.number;
        note.third = t_event.record;
    };
    const auto stream = [&](size_t index) {
        note.stream =
            streams_.of(data.context, data.contextUid, handle<CUstream>(data, index), plan.per_thread);
    };
    switch (plan.act) {
        case Act::kCopy: {
            const CopyCall& call = *copy_call(number);
            note.what = Note::What::kCopy;
            read_copy(call, data.functionParams, note);
            if (fingerprint_ && call.host == HostSide::kDestination)
                take_fingerprint(note.second, note.third, t_fingerprint);
            if (fingerprint_ && call.host == HostSide::kDestinationLater && note.result == 0)
                take_fingerprint_if_landed(
                    {handle<CUstream>(data, 3), plan.per_thread, note.second, note.third}, t_fingerprint);
            return push(note, plan, t_fingerprint.second ? &t_fingerprint : nullptr);
        }
        case Act::kStreamWait:
            wait(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE);
            stream(0);
            break;
        case Act::kContextWait:
            wait(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE);
            break;
        case Act::kEventWait:
            wait(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE);
            event();
            break;
        case Act::kStreamWaitsEvent:
            wait(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT);
            event();
            stream(0);
            break;
        case Act::kEventRecord:
            note.what = kinds_ & kEvents ? Note::What::kEvent : Note::What::kCall;
            event();
            stream(1);
            break;
        default:
            if (!plan.call) return;
            note.what = Note::What::kCall;
            break;
    }
    push(note, plan);
}

void CallWatch::push(Note& note, const Plan& plan, const Note* fingerprint) {
    notes_.push(note, fingerprint);
    if (!plan.stack) return;
    Note stack{};
    stack.what = Note::What::kStack;
    stack.correlation = note.correlation;
    stack.first = stacks_.take();
    if (stack.first != 0) notes_.push(stack);
}

void CallWatch::take_fingerprint(uint64_t address, uint64_t bytes, Note& print) const {
    print.what = Note::What::kFingerprint;
    print.second = clock_.now();
    print.first = fingerprint(reinterpret_cast<const void*>(address), bytes);
    const uint64_t end = clock_.now();
    print.third = end > print.second ? end - print.second : 0;
}

/// Where the bytes are not there yet, asking cost the thread that time all the same.
void CallWatch::take_fingerprint_if_landed(const LandedCopies::Copy& copy, Note& print) {
    const uint64_t begin = clock_.now();
    if (landed_copies_.landed(copy)) return take_fingerprint(copy.destination, copy.bytes, print);
    const uint64_t end = clock_.now();
    print.what = Note::What::kFingerprint;
    print.first = 0;
    print.second = begin;
    print.third = end > begin ? end - begin : 0;
}

}  // namespace busfare::recorder
