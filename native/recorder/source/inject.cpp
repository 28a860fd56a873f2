// The names under which the CUDA driver and NVTX look for an injected library.

#include <pthread.h>

#include <cstdlib>

#include "cupti_library.h"
#include "message.h"
#include "options.h"
#include "session.h"

using namespace busfare::recorder;

namespace {

void start(bool late) {
    // An exception must not reach the driver, whose caller is the program.
    try {
        Session::start(late);
        static const bool registered = [] {
            std::atexit(Session::finish);
            pthread_atfork(nullptr, nullptr, Session::forget_in_child);
            return true;
        }();
        (void)registered;
    } catch (...) {
        say("out of memory at the start, so nothing is recorded");
    }
}

}  // namespace

extern "C" [[gnu::visibility("default")]] int InitializeInjection() {
    start(false);
    return 1;
}

/// Begins a recording in a program that runs already, as the environment says now; 0 where one is under way,
/// or none can be had, which standard error then tells.
extern "C" [[gnu::visibility("default")]] int busfare_record_begin() {
    if (Session::recording()) return 0;
    start(true);
    return Session::recording();
}

/// Ends it: its file is whole then.
extern "C" [[gnu::visibility("default")]] void busfare_record_end() {
    Session::end();
}

/// Hands NVTX on to CUPTI, whose markers then come with the other records. 0 tells NVTX that nobody listens.
extern "C" [[gnu::visibility("default")]] int InitializeInjectionNvtx2(void* get_export_table) {
    try {
        const Options options = options_from_environment();
        if (options.output.empty() || !(options.kinds & kMarkers)) return 0;
        std::string why;
        const CuptiLibrary* cupti = load_cupti(options.cupti, options.trust_cupti, &why);
        return cupti && cupti->nvtx_initialize ? cupti->nvtx_initialize(get_export_table) : 0;
    } catch (...) {
        return 0;
    }
}
