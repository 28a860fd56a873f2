/* Built twice: as a CUDA driver whose calls do nothing (-DDRIVER), and as a program that prints the time of
 * each of its calls in nanoseconds. */
#include <stddef.h>

#ifdef DRIVER

int cuInit(unsigned flags) { return 0; }
int cuLaunchKernel(void* kernel, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned f, unsigned g,
                   void* stream, void** arguments, void** more) { return 0; }
int cuStreamSynchronize(void* stream) { return 0; }
int cuStreamQuery(void* stream) { return 0; }
int cuMemcpyHtoD_v2(unsigned long long to, const void* from, size_t bytes) { return 0; }
/* Fails: all memory is unknown to the driver, and therefore pageable. */
int cuPointerGetAttribute(void* value, int attribute, unsigned long long pointer) { return 1; }
int cuThreadExchangeStreamCaptureMode(int* mode) { return 0; }

#else

#include <dlfcn.h>
#include <stdio.h>
#include <time.h>

#define CALLS 2000000
#define TIMED(name, ...)                                                                                    \
    {                                                                                                       \
        int (*const call)() = (int (*)())dlsym(driver, #name);                                              \
        if (!call) return 1;                                                                                \
        struct timespec begin, end;                                                                         \
        for (int time = 0; time < CALLS / 10; ++time) call(__VA_ARGS__);                                    \
        clock_gettime(CLOCK_MONOTONIC, &begin);                                                             \
        for (int time = 0; time < CALLS; ++time) call(__VA_ARGS__);                                         \
        clock_gettime(CLOCK_MONOTONIC, &end);                                                               \
        printf("%s %.2f\n", #name, ((end.tv_sec - begin.tv_sec) * 1e9 + (end.tv_nsec - begin.tv_nsec)) / CALLS); \
    }

int main(void) {
    void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return 1;
    ((int (*)(unsigned))dlsym(driver, "cuInit"))(0);
    int number = 0;
    void* none = NULL;
    void* arguments[] = {&number};
    TIMED(cuLaunchKernel, none, 1, 1, 1, 1, 1, 1, 0, none, arguments, none)
    TIMED(cuStreamSynchronize, none)
    TIMED(cuStreamQuery, none)
    TIMED(cuMemcpyHtoD_v2, 0ULL, &number, sizeof number)
    return 0;
}

#endif
