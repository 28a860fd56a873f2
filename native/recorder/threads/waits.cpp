// What threads of a program wait with, and who ends their waits: each call is passed on, and a wait that
// another thread ended is noted. Until the recorder begins, and in a program that it is not in, it does
// nothing more.

#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdarg>
#include <cstdint>

#include "../source/messages.h"

namespace {

std::atomic<const BusfareMessageSink*> g_sink{nullptr};

uint64_t now() {
    timespec time{};
    ::clock_gettime(CLOCK_REALTIME, &time);
    return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(time.tv_nsec);
}

/// The functions that stand behind these. No static of a function: the guard of one may itself wait.
template <typename Function>
class Behind {
  public:
    constexpr explicit Behind(const char* name) : name_(name) {}
    Function* operator*() {
        void* found = found_.load(std::memory_order_relaxed);
        if (!found) {
            // glibc keeps the conditions of 2002 under the same names.
            found = dlvsym(RTLD_NEXT, name_, "GLIBC_2.3.2");
            if (!found) found = dlsym(RTLD_NEXT, name_);
            found_.store(found, std::memory_order_relaxed);
        }
        return reinterpret_cast<Function*>(found);
    }

  private:
    const char* const name_;
    std::atomic<void*> found_{nullptr};
};

/// Who last woke those that wait at an object; objects that share a place push each other out.
struct Wake {
    std::atomic<bool> busy{false};  ///< whoever comes meanwhile goes on without
    const volatile void* object = nullptr;
    uint64_t time = 0;
    int32_t thread = 0;
};
std::array<Wake, 4096> g_wakes;

template <typename Body>
void at_place_of(const volatile void* object, Body body) {
    const auto number = reinterpret_cast<uintptr_t>(object);
    Wake& wake = g_wakes[(number >> 3 ^ number >> 15) % g_wakes.size()];
    if (wake.busy.exchange(true, std::memory_order_acquire)) return;
    body(wake);
    wake.busy.store(false, std::memory_order_release);
}

int32_t own_thread() {
    thread_local int32_t own = 0;
    if (own == 0) own = static_cast<int32_t>(::syscall(SYS_gettid));
    return own;
}

void wakes(const volatile void* object) {
    if (!g_sink.load(std::memory_order_relaxed)) return;
    at_place_of(object, [&](Wake& wake) {
        wake.object = object;
        wake.time = now();
        wake.thread = own_thread();
    });
}

/// `wait` passed on, and noted by `name` where it returns 0 because of another thread.
template <typename Wait>
auto noted(const char* name, const volatile void* object, Wait wait) {
    const BusfareMessageSink* const sink = g_sink.load(std::memory_order_acquire);
    if (!sink) return wait();
    const uint64_t start = now();
    const auto result = wait();
    if (result != 0) return result;
    const int error = errno;
    BusfareMessage message{.name = name,
                           .start = start,
                           .end = now(),
                           .bytes = 0,
                           .request = 0,
                           .communicator = 0,
                           .peer = 0,
                           .tag = -1,
                           .result = 0};
    at_place_of(object, [&](const Wake& wake) {
        if (wake.object != object || wake.time < start) return;
        message.request = wake.time;
        message.peer = wake.thread;
    });
    if (message.request && message.peer != own_thread()) sink->message(&message);
    errno = error;
    return result;
}

}  // namespace

#define EXPORTED extern "C" [[gnu::visibility("default")]]
#define WAITS(NAME, OBJECT, PARAMETERS, ARGUMENTS)                              \
    constinit static Behind<int PARAMETERS> behind_##NAME{#NAME};               \
    EXPORTED int NAME PARAMETERS {                                              \
        return noted(#NAME, OBJECT, [&] { return (*behind_##NAME)ARGUMENTS; }); \
    }
#define WAKES(NAME, PARAMETERS, OBJECT)                           \
    constinit static Behind<int PARAMETERS> behind_##NAME{#NAME}; \
    EXPORTED int NAME PARAMETERS {                                \
        wakes(OBJECT);                                            \
        return (*behind_##NAME)(OBJECT);                          \
    }

WAITS(pthread_cond_wait, c, (pthread_cond_t * c, pthread_mutex_t* m), (c, m))
WAITS(pthread_cond_timedwait, c, (pthread_cond_t * c, pthread_mutex_t* m, const timespec* t), (c, m, t))
WAITS(pthread_cond_clockwait, c, (pthread_cond_t * c, pthread_mutex_t* m, clockid_t k, const timespec* t),
      (c, m, k, t))
WAKES(pthread_cond_signal, (pthread_cond_t * c), c)
WAKES(pthread_cond_broadcast, (pthread_cond_t * c), c)
WAITS(sem_wait, s, (sem_t * s), (s))
WAITS(sem_timedwait, s, (sem_t * s, const timespec* t), (s, t))
WAITS(sem_clockwait, s, (sem_t * s, clockid_t k, const timespec* t), (s, k, t))
WAKES(sem_post, (sem_t * s), s)

// Of system calls, those on futexes: with them Abseil's and C++'s own mutexes wait, and so XLA's.
constinit static Behind<long(long, ...)> behind_syscall{"syscall"};
EXPORTED long syscall(long number, ...) {
    va_list list;
    va_start(list, number);
    long given[6];
    for (long& argument : given) argument = va_arg(list, long);
    va_end(list);
    const auto passed = [&] {
        return (*behind_syscall)(number, given[0], given[1], given[2], given[3], given[4], given[5]);
    };
    if (number != SYS_futex) return passed();
    const auto* const object = reinterpret_cast<const void*>(given[0]);
    switch (given[1] & FUTEX_CMD_MASK) {
        case FUTEX_WAIT:
        case FUTEX_WAIT_BITSET:
            return noted("futex", object, passed);
        case FUTEX_WAKE:
        case FUTEX_WAKE_BITSET:
            wakes(object);
    }
    return passed();
}

/// The recorder has begun.
EXPORTED void busfare_threads_begin(const BusfareMessageSink* sink) {
    g_sink.store(sink, std::memory_order_release);
}
