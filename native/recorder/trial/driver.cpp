#include "driver.h"

#include <dlfcn.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>

#include "pins.h"
#include "report.h"

namespace busfare::trial {
namespace {

using Dlsym = void* (*)(void*, const char*);

std::atomic<bool> g_active{false};

Dlsym c_library_dlsym() {
    // The oldest symbol version on each architecture; all later C libraries provide it.
#ifdef __x86_64__
    return reinterpret_cast<Dlsym>(dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5"));
#else
    return reinterpret_cast<Dlsym>(dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.17"));
#endif
}

void* loaded_driver() {
    static void* driver = nullptr;  // retried: programs may load the driver late
    if (!driver) driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    return driver;
}

/// The wrapper of the driver's `symbol`, or null.
void* wrapper_of(const char* symbol) {
    for (const Wrapped& call : calls()) {
        if (std::strcmp(call.symbol, symbol) == 0) return call.function;
    }
    return nullptr;
}

Changes read_changes() {
    const char* const text = std::getenv("BUSFARE_TRY_CHANGES");
    Changes changes;
    for (std::string rest = text ? text : ""; !rest.empty();) {
        const size_t comma = rest.find(',');
        const std::string word = rest.substr(0, comma);
        rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
        changes.pin |= word == "pin";
        changes.stage |= word == "async";
        changes.prefetch |= word == "prefetch";
        changes.dry |= word == "dry";
        if (word == "spin") changes.scheduling = CU_CTX_SCHED_SPIN;
        if (word == "block") changes.scheduling = CU_CTX_SCHED_BLOCKING_SYNC;
    }
    return changes;
}

}  // namespace

void replace(const char* base, void** function) {
    if (!function || !*function) return;
    for (const Wrapped& call : calls()) {
        // Only the wrapped version: other versions have different parameters.
        if (std::strncmp(call.symbol, base, std::strlen(base)) == 0 && *function == of_driver(call.symbol)) {
            *function = call.function;
            return;
        }
    }
}

void* real_dlsym(void* handle, const char* name) {
    static const Dlsym function = c_library_dlsym();
    return function(handle, name);
}

void* of_driver(const char* name) {
    const Inside inside;
    void* const driver = loaded_driver();
    return driver ? real_dlsym(driver, name) : nullptr;
}

const Changes& changes() {
    static const Changes changes = read_changes();
    return changes;
}

bool active() {
    return g_active.load(std::memory_order_relaxed);
}

void set_active(bool active) {
    g_active = active;
}

void begin() {
    static const bool once = [] {
        // Exit handlers run in reverse order: the driver's, which are registered later, run first.
        std::atexit([] { set_active(false); });
        pthread_atfork(release_all_pins, nullptr, [] {
            set_active(false);
            report_of_child();
        });
        return true;
    }();
    (void)once;
}

}  // namespace busfare::trial

using namespace busfare::trial;

/// Returns the wrappers for driver calls. Passes other names to the C library by a tail call, which keeps the
/// caller's address for RTLD_NEXT.
extern "C" [[gnu::visibility("default"), gnu::optimize("O2")]] void* dlsym(void* handle, const char* name) {
    static const Dlsym function = c_library_dlsym();
    if (name[0] != 'c' || name[1] != 'u' || Inside::active()) return function(handle, name);
    void* const call = wrapper_of(name);
    if (!call) return function(handle, name);
    void *const symbol = function(handle, name), *const driver = of_driver(name);
    if (symbol == call && !driver) return nullptr;  // exported by this library, but not a driver function
    return symbol && (symbol == driver || symbol == call) ? call : symbol;
}
