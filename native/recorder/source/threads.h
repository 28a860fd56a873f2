#pragma once

#include <pthread.h>
#include <signal.h>

#include <thread>

namespace busfare::recorder {

/// Whether the calling thread is one of the recorder's own.
inline bool& recorder_thread() {
    thread_local bool mine = false;
    return mine;
}

/// Threads of the recorder take no signals: those are the program's.
template <typename Body>
void start_thread(const char* name, Body body) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread thread([body] {
        recorder_thread() = true;
        body();
    });
    pthread_setname_np(thread.native_handle(), name);
    thread.detach();
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace busfare::recorder
