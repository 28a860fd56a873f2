#pragma once

#include <cuda.h>

#include <atomic>
#include <span>

namespace busfare::trial {

/// `dlsym` of the C library.
void* real_dlsym(void* handle, const char* name);

/// The driver's function `name`; null if the program has not loaded the driver, or the driver lacks it.
void* of_driver(const char* name);

/// Replaces the driver's `function` with its wrapper, if there is one. `base`: its name without the version.
void replace(const char* base, void** function);

/// The driver's function behind a wrapper. A guarded static would deadlock with the loader's lock.
template <typename Function>
Function* real(std::atomic<Function*>& resolved, const char* name) {
    if (!resolved) resolved = reinterpret_cast<Function*>(of_driver(name));
    return resolved;
}
#define REAL(name)                                      \
    ([]() {                                             \
        static std::atomic<decltype(::name)*> resolved; \
        return real(resolved, #name);                   \
    }())

/// Scope in which CUDA calls on this thread come from the library, not from the program.
class Inside {
  public:
    Inside() : before_(t_inside) { t_inside = true; }
    ~Inside() { t_inside = before_; }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;
    static bool active() { return t_inside; }

  private:
    bool before_;
    [[gnu::tls_model("initial-exec")]] static inline thread_local bool t_inside = false;
};

/// Scope in which calls that are not permitted during stream capture do not invalidate the capture.
class RelaxedCapture {
  public:
    RelaxedCapture() { exchange(); }
    ~RelaxedCapture() { exchange(); }
    RelaxedCapture(const RelaxedCapture&) = delete;
    RelaxedCapture& operator=(const RelaxedCapture&) = delete;

  private:
    void exchange() {
        if (auto* const call = REAL(cuThreadExchangeStreamCaptureMode)) call(&mode_);
    }
    CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

/// The changes that `BUSFARE_TRY_CHANGES` names, separated by commas.
struct Changes {
    bool pin = false;
    bool stage = false;  ///< `async`
    bool prefetch = false;
    bool dry = false;         ///< count what the changes would affect, but change nothing
    unsigned scheduling = 0;  ///< `spin`, `block`; 0: the program's choice
};
const Changes& changes();

/// Whether the library is active. It is inactive before start-up, during exit and in forked children.
bool active();
void set_active(bool active);

/// A wrapper of the driver call `symbol`, whose name includes its suffix, such as `_v2_ptsz`.
struct Wrapped {
    const char* symbol;
    void* function;
};
std::span<const Wrapped> calls();

/// Installs the exit and fork handlers at the first CUDA call.
void begin();

}  // namespace busfare::trial
