#pragma once

#include <cuda.h>

namespace busfare::trial {

/// `dlsym` of the C library.
void* real_dlsym(void* handle, const char* name);

/// The driver's own function `name`; null where the program has loaded no driver, or it has none of that
/// name.
void* of_driver(const char* name);

/// What the driver does under the name of `Function`, which this library shows in its place.
template <typename Function>
Function* real(const char* name) {
    return reinterpret_cast<Function*>(of_driver(name));
}
#define REAL(name)                                                   \
    ([]() {                                                          \
        static auto* const function = real<decltype(::name)>(#name); \
        return function;                                             \
    }())

/// While one lives, this thread is in the library: its calls of the driver and of memory functions are no
/// program's.
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

/// While one lives, calls that captures of graphs forbid disturb none.
class BesideCaptures {
  public:
    BesideCaptures() { exchange(); }
    ~BesideCaptures() { exchange(); }
    BesideCaptures(const BesideCaptures&) = delete;
    BesideCaptures& operator=(const BesideCaptures&) = delete;

  private:
    void exchange() {
        if (auto* const call = REAL(cuThreadExchangeStreamCaptureMode)) call(&mode_);
    }
    CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

/// The changes that `BUSFARE_TRY_CHANGES` names, separated by commas.
struct Changes {
    bool pin = false;
    bool stage = false;       ///< `async`
    bool dry = false;         ///< counts what the others would change, and changes nothing
    unsigned scheduling = 0;  ///< `spin`, `block`; 0: as the program has it
};
const Changes& changes();

/// Whether the library does anything: not after the program's exit has begun, nor in the child of a fork.
bool active();
void stop();

}  // namespace busfare::trial
