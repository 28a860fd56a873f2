#include "stream_hashes.h"

#include <dlfcn.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <type_traits>
#include <unordered_map>

#include "beside_captures.h"
#include "fingerprint.h"
#include "own_calls.h"

namespace busfare::recorder {
namespace {

constexpr std::string_view kOwn[] = {"cuPointerGetAttribute", "cuDeviceGetAttribute",
                                     "cuThreadExchangeStreamCaptureMode", "cuStreamIsCapturing",
                                     "cuLaunchHostFunc"};

}  // namespace

/// By number, which is all that the driver is given: a host function that another thread's capture got hold
/// of runs each time that its graph does, and finds nothing then.
class StreamHashes::Waiting {
  public:
    uint64_t add(const Job& job) {
        const std::lock_guard lock(mutex_);
        jobs_.emplace(++last_, job);
        return last_;
    }
    std::optional<Job> take(uint64_t number) {
        const std::lock_guard lock(mutex_);
        const auto found = jobs_.extract(number);
        return found ? std::optional(found.mapped()) : std::nullopt;
    }

  private:
    std::mutex mutex_;
    std::unordered_map<uint64_t, Job> jobs_;
    uint64_t last_ = 0;
};

StreamHashes::Waiting& StreamHashes::waiting() {
    static auto* const all = new Waiting;  // never destroyed: streams go on while the program ends
    return *all;
}

bool StreamHashes::calls(std::string_view name) {
    if (name.ends_with("_ptsz")) name.remove_suffix(5);
    return std::ranges::find(kOwn, name) != std::end(kOwn);
}

void StreamHashes::start() {
    void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    known_ = driver;
    const auto find = [&](const char* name, auto& function) {
        if (known_)
            function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(driver, name));
        known_ = known_ && function;
    };
    find("cuPointerGetAttribute", driver_.pointer_attribute);
    find("cuDeviceGetAttribute", driver_.device_attribute);
    find("cuThreadExchangeStreamCaptureMode", driver_.exchange_mode);
    find("cuStreamIsCapturing", driver_.is_capturing[0]);
    find("cuStreamIsCapturing_ptsz", driver_.is_capturing[1]);
    find("cuLaunchHostFunc", driver_.launch[0]);
    find("cuLaunchHostFunc_ptsz", driver_.launch[1]);
}

void StreamHashes::turn(bool on) {
    const std::lock_guard lock(mutex_);
    window_ = on ? ++windows_ : 0;
}

StreamHashes::When StreamHashes::ask(const Copy& copy) {
    if (!known_ || copy.bytes == 0) return When::kNever;
    const OwnCalls own;
    const BesideCaptures beside(driver_.exchange_mode);
    if (!beside) return When::kNever;
    // Of the legacy stream this fails where a capture forbids its use, and leaves that capture as it is.
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    if (driver_.is_capturing[copy.per_thread](copy.stream, &status) != CUDA_SUCCESS ||
        status != CU_STREAM_CAPTURE_STATUS_NONE)
        return When::kNever;
    const When when = place_of(copy.destination);
    return when == When::kInStream && !launch(copy) ? When::kNever : when;
}

StreamHashes::When StreamHashes::place_of(uint64_t destination) {
    uint64_t type = 0, managed = 0;
    const CUresult told =
        driver_.pointer_attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CUdeviceptr{destination});
    if (told == CUDA_ERROR_INVALID_VALUE) {  // pageable
        // Calls may return early where the GPU writes pageable memory itself, as beside Grace.
        std::call_once(asked_, [this] {
            int reaches = 0;
            constexpr auto kReaches = CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES;
            gpu_reaches_pageable_ =
                driver_.device_attribute(&reaches, kReaches, CUdevice{0}) != CUDA_SUCCESS || reaches;
        });
        return gpu_reaches_pageable_ ? When::kInStream : When::kNow;
    }
    if (told != CUDA_SUCCESS || type != CU_MEMORYTYPE_HOST) return When::kNever;
    // Reading managed memory would move its pages.
    const bool sure = driver_.pointer_attribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                                CUdeviceptr{destination}) == CUDA_SUCCESS;
    return sure && !managed ? When::kInStream : When::kNever;
}

bool StreamHashes::launch(const Copy& copy) {
    const uint64_t window = window_;
    if (window == 0) return false;
    const uint64_t number = waiting().add({this, window, copy});
    if (driver_.launch[copy.per_thread](copy.stream, &StreamHashes::run, reinterpret_cast<void*>(number)) ==
        CUDA_SUCCESS)
        return true;
    waiting().take(number);
    return false;
}

/// On a thread of the driver's, where CUDA must not be called.
void StreamHashes::run(void* number) {
    try {
        if (const auto job = waiting().take(reinterpret_cast<uint64_t>(number))) job->hashes->hash(*job);
    } catch (...) {  // out of memory: no hash
    }
}

void StreamHashes::hash(const Job& job) {
    if (window_ != job.window) return;
    Note note{};
    note.what = Note::What::kStreamHash;
    note.correlation = job.copy.correlation;
    note.two = clock_.now();
    note.one = fingerprint(reinterpret_cast<const void*>(job.copy.destination), job.copy.bytes);
    const uint64_t end = clock_.now();
    note.three = end > note.two ? end - note.two : 0;
    const std::lock_guard lock(mutex_);
    if (window_ == job.window) notes_.push(note);
}

}  // namespace busfare::recorder
