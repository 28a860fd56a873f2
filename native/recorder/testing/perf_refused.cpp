// Stands in front of `syscall`, for kernels that grant perf events to the program's own accesses alone
// (PERF_REFUSED=kernel), or none (PERF_REFUSED=all).

#include <dlfcn.h>
#include <linux/perf_event.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <string_view>

extern "C" long syscall(long number, ...) noexcept {
    va_list given;
    va_start(given, number);
    long arguments[6];
    for (long& argument : arguments) argument = va_arg(given, long);
    va_end(given);
    const char* const asked = std::getenv("PERF_REFUSED");
    const std::string_view refused = asked ? asked : "";
    if (number == SYS_perf_event_open &&
        (refused == "all" || !reinterpret_cast<const perf_event_attr*>(arguments[0])->exclude_kernel)) {
        errno = EACCES;
        return -1;
    }
    static const auto real = reinterpret_cast<long (*)(long, ...)>(dlsym(RTLD_NEXT, "syscall"));
    return real(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]);
}
