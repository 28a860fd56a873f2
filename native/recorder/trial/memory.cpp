// Wrappers of C library functions that free or remap memory. They unpin the memory first.

#include <dlfcn.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/shm.h>

#include <cstdarg>
#include <cstdlib>

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
    if (memory && !Inside::active() && any_pins()) release_pins(memory, malloc_usable_size(memory), true);
}

void release_pages(void* memory, size_t bytes) {
    if (!Inside::active() && any_pins()) release_pins(memory, bytes);
}

/// Resolves `free` early: a dlsym that follows a failed dlsym frees the error message.
[[gnu::constructor]] void find_free() {
    void* volatile none = nullptr;  // not optimised away
    std::free(none);
    set_active(true);  // the maps exist from now on
}

}  // namespace

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
    release_pages(memory, bytes);
    return NEXT(munmap)(memory, bytes);
}

EXPORTED int madvise(void* memory, size_t bytes, int advice) {
    if (advice == MADV_DONTNEED || advice == MADV_FREE || advice == MADV_REMOVE) release_pages(memory, bytes);
    return NEXT(madvise)(memory, bytes, advice);
}

EXPORTED void* mremap(void* memory, size_t bytes, size_t new_bytes, int flags, ...) {
    va_list more;
    va_start(more, flags);
    void* const place = flags & MREMAP_FIXED ? va_arg(more, void*) : nullptr;
    va_end(more);
    release_pages(memory, bytes);
    if (!place) return NEXT(mremap)(memory, bytes, new_bytes, flags);
    release_pages(place, new_bytes);
    return NEXT(mremap)(memory, bytes, new_bytes, flags, place);
}

EXPORTED void* mmap(void* memory, size_t bytes, int protection, int flags, int file, off_t offset) {
    if (flags & MAP_FIXED) release_pages(memory, bytes);
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

}  // extern "C"
