// A program whose reads go by the names that checks of buffers give them: read, pread, pread64 and fread.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char buffer[1 << 18];

int main(int argc, char** argv) {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!driver || ((int (*)(unsigned))dlsym(driver, "cuInit"))(0) != 0) return 3;
    const size_t bytes = strtoul(argv[2], NULL, 10);
    const int file = open(argv[1], O_RDONLY);
    FILE* const stream = fopen(argv[1], "r");
    return argc == 3 && read(file, buffer, bytes) == (ssize_t)bytes &&
                   pread(file, buffer, bytes, 1) == (ssize_t)bytes &&
                   pread64(file, buffer, bytes, 2) == (ssize_t)bytes &&
                   fread(buffer, 1, bytes, stream) == bytes
               ? 0
               : 4;
}
