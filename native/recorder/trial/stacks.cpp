// Wraps `pthread_create`, to find the stacks of threads.

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <new>

#include "driver.h"
#include "pins.h"

using namespace busfare::trial;

namespace {

/// The stack of a running thread, in a list. It lives in thread-local storage: the thread ends without `free`.
struct Stack {
    uintptr_t low, high;
    Stack *next, **link;  ///< `link` points to the pointer to this
    int rounds;           ///< of destructors at the end of the thread
};
std::mutex g_mutex;  ///< guards the list; no memory is allocated under it
Stack* g_stacks = nullptr;
[[gnu::tls_model("initial-exec")]] thread_local Stack t_stack;

struct Start {
    void* (*run)(void*);
    void* argument;
};

/// Its destructor removes the stack, in the last round: other destructors may still copy from it. A
/// `thread_local` object with a destructor would take the loader's lock.
pthread_key_t key() {
    static const pthread_key_t once = [] {
        const auto lock = [] { g_mutex.lock(); };
        const auto unlock = [] { g_mutex.unlock(); };
        pthread_atfork(lock, unlock, unlock);
        pthread_key_t made = 0;
        pthread_key_create(&made, [](void* stack) {
            if (++t_stack.rounds < PTHREAD_DESTRUCTOR_ITERATIONS && pthread_setspecific(key(), stack) == 0)
                return;
            const std::lock_guard lock(g_mutex);
            *t_stack.link = t_stack.next;
            if (t_stack.next) t_stack.next->link = t_stack.link;
        });
        return made;
    }();
    return once;
}

void note_stack() {
    pthread_attr_t attributes;
    void* low = nullptr;
    size_t bytes = 0;
    if (t_stack.high || pthread_getattr_np(pthread_self(), &attributes) != 0) return;
    pthread_attr_getstack(&attributes, &low, &bytes);
    pthread_attr_destroy(&attributes);
    if (pthread_setspecific(key(), &t_stack) != 0) return;
    const std::lock_guard lock(g_mutex);
    t_stack.low = reinterpret_cast<uintptr_t>(low), t_stack.high = t_stack.low + bytes;
    t_stack.next = g_stacks, t_stack.link = &g_stacks;
    if (g_stacks) g_stacks->link = &t_stack.next;
    g_stacks = &t_stack;
}

void* started(void* argument) {
    const Start start = *static_cast<Start*>(argument);
    delete static_cast<Start*>(argument);
    note_stack();
    return start.run(start.argument);
}

}  // namespace

bool busfare::trial::of_thread(uintptr_t begin, uintptr_t end) {
    if (syscall(SYS_gettid) != getpid()) note_stack();  // the C library also starts threads itself
    const std::lock_guard lock(g_mutex);
    const Stack* stack = g_stacks;
    while (stack && (stack->high <= begin || stack->low >= end)) stack = stack->next;
    return stack;
}

extern "C" [[gnu::visibility("default")]] int pthread_create(pthread_t* thread,
                                                             const pthread_attr_t* attributes,
                                                             void* (*run)(void*), void* argument) {
    static std::atomic<void*> next;  // no guarded static, as in `real`
    if (!next) next = real_dlsym(RTLD_NEXT, "pthread_create");
    auto* const start = new (std::nothrow) Start{run, argument};
    const auto create = reinterpret_cast<decltype(&pthread_create)>(next.load());
    const int result = start ? create(thread, attributes, started, start) : EAGAIN;
    if (result != 0) delete start;
    return result;
}
