// Wrappers of C library functions that free or remap memory, which they unpin first, and of `pthread_create`,
// which shows where stacks are.

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdlib>
#include <mutex>
#include <new>

#include "driver.h"
#include "pins.h"

using namespace busfare::trial;

namespace {

void* next(const char* name) {
    const Inside inside;
    return real_dlsym(RTLD_NEXT, name);
}
#define NEXT(name)                                                                      \
    ([] {                                                                               \
        static auto* const function = reinterpret_cast<decltype(::name)*>(next(#name)); \
        return function;                                                                \
    }())

/// Unpins a heap block.
void release_block(void* memory) {
    if (memory && !Inside::active() && any_pins())
        release_pins(memory, NEXT(malloc_usable_size)(memory), true);
}

/// Unpins pages. Returns false and sets errno if they are pinned and the caller is inside the driver.
bool release_pages(void* memory, size_t bytes, int error = EAGAIN) {
    if (!any_pins() || !active()) return true;
    if (!Inside::active()) return release_pins(memory, bytes), true;
    if (changes().dry || !may_be_pinned(memory, bytes)) return true;
    errno = error;
    return false;
}

/// The stack of a running thread, in thread-local storage: threads that end must not call `free`.
struct Stack {
    uintptr_t low, high;
    Stack *next, **link;  ///< `link` points to the pointer to this
    int rounds;           ///< of destructors
};
std::mutex g_stacks_mutex;  ///< guards the list; its holders allocate no memory
Stack* g_stacks = nullptr;
[[gnu::tls_model("initial-exec")]] thread_local Stack t_stack;
pthread_key_t g_key;  ///< `thread_local` objects with destructors would take the loader's lock

/// Removes the stack in the last round of destructors: others may still copy from it.
void forget_stack(void* stack) {
    if (++t_stack.rounds < PTHREAD_DESTRUCTOR_ITERATIONS && pthread_setspecific(g_key, stack) == 0) return;
    const std::lock_guard lock(g_stacks_mutex);
    *t_stack.link = t_stack.next;
    if (t_stack.next) t_stack.next->link = t_stack.link;
}

void note_stack() {
    pthread_attr_t attributes;
    void* low = nullptr;
    size_t bytes = 0;
    if (t_stack.link || !active() || pthread_getattr_np(pthread_self(), &attributes) != 0) return;
    pthread_attr_getstack(&attributes, &low, &bytes);
    pthread_attr_destroy(&attributes);
    const auto begin = reinterpret_cast<uintptr_t>(low);
    if (pthread_setspecific(g_key, &t_stack) != 0) return;
    const std::lock_guard lock(g_stacks_mutex);
    t_stack = {begin, begin + bytes, g_stacks, &g_stacks, 0};
    if (g_stacks) g_stacks->link = &t_stack.next;
    g_stacks = &t_stack;
}

/// What a new thread runs.
struct Start {
    void* (*run)(void*);
    void* argument;
};
void* started(void* argument) {
    const Start start = *static_cast<Start*>(argument);
    delete static_cast<Start*>(argument);
    note_stack();
    return start.run(start.argument);
}

/// Resolves `free` early: a dlsym that follows a failed dlsym frees the error message.
[[gnu::constructor]] void find_free() {
    const auto lock = [] { g_stacks_mutex.lock(); };
    const auto unlock = [] { g_stacks_mutex.unlock(); };
    pthread_atfork(lock, unlock, unlock);
    pthread_key_create(&g_key, forget_stack);
    void* volatile none = nullptr;  // not optimised away
    std::free(none);
    // An allocator without `malloc_usable_size`: the size of its blocks is unknown.
    Dl_info frees{}, sizes{};
    dladdr(reinterpret_cast<void*>(NEXT(free)), &frees);
    dladdr(reinterpret_cast<void*>(NEXT(malloc_usable_size)), &sizes);
    if (frees.dli_fbase != sizes.dli_fbase) stop_pinning();
    set_active(true);  // the maps exist from now on
}

}  // namespace

bool busfare::trial::of_thread(uintptr_t begin, uintptr_t end) {
    if (syscall(SYS_gettid) != getpid()) note_stack();  // the C library also starts threads itself
    const std::lock_guard lock(g_stacks_mutex);
    const Stack* stack = g_stacks;
    while (stack && (stack->high <= begin || stack->low >= end)) stack = stack->next;
    return stack;
}

extern "C" {

#define EXPORTED [[gnu::visibility("default")]]

EXPORTED void free(void* memory) {
    release_block(memory);
    NEXT(free)(memory);
}

EXPORTED void* realloc(void* memory, size_t bytes) {
    release_block(memory);
    return NEXT(realloc)(memory, bytes);
}

EXPORTED int munmap(void* memory, size_t bytes) {
    return release_pages(memory, bytes) ? NEXT(munmap)(memory, bytes) : -1;
}

EXPORTED int madvise(void* memory, size_t bytes, int advice) {
    constexpr int kDontNeedLocked = 24;  // since Linux 5.18
    const bool releases =
        advice == MADV_DONTNEED || advice == MADV_FREE || advice == MADV_REMOVE || advice == kDontNeedLocked;
    return !releases || release_pages(memory, bytes) ? NEXT(madvise)(memory, bytes, advice) : -1;
}

EXPORTED void* mremap(void* memory, size_t bytes, size_t new_bytes, int flags, ...) {
    va_list more;
    va_start(more, flags);
    void* const place = flags & MREMAP_FIXED ? va_arg(more, void*) : nullptr;
    va_end(more);
    if (!release_pages(memory, bytes, ENOMEM)) return MAP_FAILED;
    if (!place) return NEXT(mremap)(memory, bytes, new_bytes, flags);
    if (!release_pages(place, new_bytes, ENOMEM)) return MAP_FAILED;
    return NEXT(mremap)(memory, bytes, new_bytes, flags, place);
}

EXPORTED void* mmap(void* memory, size_t bytes, int protection, int flags, int file, off_t offset) {
    if (flags & MAP_FIXED && !release_pages(memory, bytes, ENOMEM)) return MAP_FAILED;
    return NEXT(mmap)(memory, bytes, protection, flags, file, offset);
}

EXPORTED void* mmap64(void* memory, size_t bytes, int protection, int flags, int file, off64_t offset) {
    return mmap(memory, bytes, protection, flags, file, offset);
}

EXPORTED int shmdt(const void* memory) {
    if (!Inside::active()) release_all_pins();
    return NEXT(shmdt)(memory);
}

EXPORTED int dlclose(void* library) {
    if (!Inside::active()) release_all_pins();  // this may unmap the library's data
    return NEXT(dlclose)(library);
}

EXPORTED int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                            void* argument) {
    auto* const start = new (std::nothrow) Start{run, argument};
    const int result = start ? NEXT(pthread_create)(thread, attributes, started, start) : EAGAIN;
    if (result != 0) delete start;
    return result;
}

}  // extern "C"
