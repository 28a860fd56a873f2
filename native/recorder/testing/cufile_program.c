// Reads a file by cuFile and writes another: `storage(FILE, ANOTHER)` of a module, or `main`. Prints where
// the bytes went. With -DBY_NAME its functions are looked up by dlsym.
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/types.h>

struct description {
    int type;
    union {
        int descriptor;
        void* handle;
    } of;
    const void* operations;
};
struct error {
    int error, driver_error;
};
struct error cuFileHandleRegister(void**, struct description*);
void cuFileHandleDeregister(void*);
ssize_t cuFileRead(void*, void*, size_t, off_t, off_t);
ssize_t cuFileWrite(void*, const void*, size_t, off_t, off_t);

static char buffer[1 << 20];

int storage(const char* from, const char* to) {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!driver || ((int (*)(unsigned))dlsym(driver, "cuInit"))(0) != 0) return 3;
    struct description in = {1, {open(from, O_RDONLY)}, 0}, out = {1, {open(to, O_RDWR | O_CREAT, 0666)}, 0};
    struct description wrong = {7, {0}, 0};
    void *read_from, *write_to, *nothing;
    if (in.of.descriptor < 0 || out.of.descriptor < 0) return 4;
#ifdef BY_NAME
    void* library = dlopen("libcufile.so.0", RTLD_NOW);
    if (!library) return 5;
#define OF(NAME) ((__typeof__(&NAME))dlsym(library, #NAME))
#else
#define OF(NAME) NAME
#endif
    if (OF(cuFileHandleRegister)(&read_from, &in).error || OF(cuFileHandleRegister)(&write_to, &out).error)
        return 6;
    if (!OF(cuFileHandleRegister)(&nothing, &wrong).error) return 7;
    if (OF(cuFileRead)(read_from, buffer, 1 << 17, 0, 4096) != 1 << 17) return 8;
    if (OF(cuFileWrite)(write_to, buffer, 1 << 18, 0, 64) != 1 << 18) return 9;
    OF(cuFileHandleDeregister)(read_from);
    OF(cuFileHandleDeregister)(write_to);
    printf("%lu\n", (unsigned long)buffer);
    return 0;
}

int main(int argc, char** argv) {
    return argc < 3 ? 2 : storage(argv[1], argv[2]);
}
