#include "counters.h"

#include <bit>
#include <chrono>
#include <cstring>
#include <string_view>

#include "message.h"
#include "own_calls.h"

namespace busfare::recorder {
namespace {

/// How long a launch waits for another thread's that is being counted.
constexpr auto kLongestWait = std::chrono::seconds(1);

constexpr std::string_view kCommunication[] = {"nccl", "nvshmem"};

thread_local bool t_counting = false;  ///< this thread's launch is the one that is being counted

static_assert(offsetof(cuLaunchKernel_params, gridDimX) == 8 &&
              offsetof(cuLaunchKernel_params, sharedMemBytes) == 32 &&
              offsetof(cuLaunchCooperativeKernel_params, sharedMemBytes) == 32 &&
              offsetof(CUlaunchConfig, sharedMemBytes) == 24);

}  // namespace

Counters::Counters(const CuptiLibrary& cupti, const Options& options, const TraceClock& clock)
    : cupti_(cupti),
      clock_(clock),
      limit_(options.counted_kernels),
      profiler_(cupti, options.counter_passes, options.talk_of_counters) {
    if (limit_ == 0) return;
    for (CUpti_CallbackId number = 1; number < kNumbers; ++number) {
        const char* text = nullptr;
        if (cupti_.callback_name(CUPTI_CB_DOMAIN_DRIVER_API, number, &text) != CUPTI_SUCCESS || !text)
            continue;
        std::string_view name(text);
        if (name.ends_with("_ptsz")) name.remove_suffix(5);
        if (name == "cuLaunchKernel" || name == "cuLaunchCooperativeKernel") acts_[number] = Act::kLaunch;
        if (name == "cuLaunchKernelEx") acts_[number] = Act::kLaunchEx;
        if (name.starts_with("cuStreamBeginCapture")) acts_[number] = Act::kBeginCapture;
        if (name.starts_with("cuStreamEndCapture")) acts_[number] = Act::kEndCapture;
    }
}

void Counters::subscribe(CUpti_SubscriberHandle subscriber, bool on) const {
    for (CUpti_CallbackId number = 1; number < kNumbers; ++number) {
        if (acts_[number] != Act::kNone)
            cupti_.enable_callback(on, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, number);
    }
}

void Counters::note(CUpti_CallbackId number, const CUpti_CallbackData& data) {
    const Act act = number < kNumbers ? acts_[number] : Act::kNone;
    const bool begins = data.callbackSite == CUPTI_API_ENTER;
    switch (act) {
        case Act::kNone:
            return;
        case Act::kBeginCapture:  // counted before it is one, for it could be one by the time that this is
                                  // told
            if (begins) ++captures_;
            if (!begins && data.functionReturnValue &&
                *static_cast<const CUresult*>(data.functionReturnValue) != CUDA_SUCCESS)
                --captures_;
            return;
        case Act::kEndCapture:
            if (!begins) --captures_;
            return;
        default:
            begins ? enter(act, data) : leave(data);
    }
}

/// 1 or 2 for the launches that are to be counted, else 0.
uint32_t Counters::next_launch(CUfunction function, const Shape& shape, std::string_view name) {
    const std::lock_guard lock(mutex_);
    const auto known = launches_.find({function, shape});
    if (known != launches_.end()) return known->second < 2 ? ++known->second : 0;
    for (const std::string_view word : kCommunication) {
        if (name.find(word) != std::string_view::npos) return 0;
    }
    if (launches_.size() >= limit_) return 0;
    return launches_[{function, shape}] = 1;
}

void Counters::enter(Act act, const CUpti_CallbackData& data) {
    if (counting_) {  // by another thread, whose range this launch would fall into
        std::unique_lock<std::timed_mutex> wait(profiler_mutex_, kLongestWait);
    }
    if (!on_ || given_up_ || captures_ > 0) return;
    CUfunction function = nullptr;
    Launch launch{};
    if (act == Act::kLaunch) {
        const auto& parameters = *static_cast<const cuLaunchKernel_params*>(data.functionParams);
        function = parameters.f;
        std::memcpy(launch.shape.data(), &parameters.gridDimX, sizeof launch.shape);
    } else {
        const auto& parameters = *static_cast<const cuLaunchKernelEx_params*>(data.functionParams);
        function = parameters.f;
        if (!parameters.config) return;
        std::memcpy(launch.shape.data(), &parameters.config->gridDimX, sizeof launch.shape);
    }
    const char* const name = data.symbolName ? data.symbolName : "";
    launch.number = next_launch(function, launch.shape, name);
    if (launch.number == 0 || !profiler_mutex_.try_lock_for(kLongestWait)) return;
    launch.before_start = clock_.now();
    launch.correlation = data.correlationId;
    launch.context = data.contextUid;
    launch.kernel = name;
    launch_ = std::move(launch);
    counting_ = t_counting = true;
    const OwnCalls own;
    profiler_.begin(data.context);
    launch_.before_ns = clock_.now() - launch_.before_start;
}

void Counters::leave(const CUpti_CallbackData& data) {
    if (!t_counting) return;
    {
        const OwnCalls own;
        launch_.after_start = clock_.now();
        std::vector<double> values;
        const bool sound = profiler_.end(values);
        for (size_t metric = 0; sound && metric < values.size(); ++metric)
            launch_.values.emplace_back(profiler_.metrics()[metric], values[metric]);
        launch_.passes = sound ? profiler_.passes() : 0;
        launch_.after_ns = clock_.now() - launch_.after_start;
        const bool ran = data.functionReturnValue &&
                         *static_cast<const CUresult*>(data.functionReturnValue) == CUDA_SUCCESS;
        const std::lock_guard lock(mutex_);
        counted_.push_back(std::move(launch_));
        if (ran && !sound && !profiler_.error().empty() && !profiler_.change_ranges()) {
            why_given_up_ = profiler_.error();
            given_up_ = true;
        }
    }
    counting_ = t_counting = false;
    profiler_mutex_.unlock();
}

void Counters::write(Journal& journal) {
    std::vector<Launch> counted;
    std::string why;
    {
        const std::lock_guard lock(mutex_);
        counted.swap(counted_);
        why.swap(why_given_up_);
    }
    for (const Launch& launch : counted) {
        const Shape& s = launch.shape;
        journal.append(TableId::kCountedLaunches,
                       {launch.correlation, launch.context, journal.kernel_name(launch.kernel.c_str()), s[0],
                        s[1], s[2], s[3], s[4], s[5], s[6], launch.number, launch.passes, launch.before_start,
                        launch.before_ns, launch.after_start, launch.after_ns});
        for (const auto& [metric, value] : launch.values) {
            journal.append(TableId::kCounters,
                           {launch.correlation, journal.string(metric), std::bit_cast<uint64_t>(value)});
        }
    }
    if (why.empty()) return;
    journal.fact("counters", why);
    sayf("hardware counters cannot be read (%s); the recording goes on without", why.c_str());
}

}  // namespace busfare::recorder
