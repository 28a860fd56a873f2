#include "message.h"

#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace busfare::recorder {

void say(const char* text) {
    sayf("%s", text);
}

void sayf(const char* format, ...) {
    char line[1024];
    int length = std::snprintf(line, sizeof line, "busfare record: ");
    va_list arguments;
    va_start(arguments, format);
    const int room = static_cast<int>(sizeof line) - length - 1;
    length +=
        std::clamp(std::vsnprintf(line + length, static_cast<size_t>(room), format, arguments), 0, room - 1);
    va_end(arguments);
    line[length++] = '\n';
    // A closed standard error must not hurt the program, so the result is of no interest.
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line, static_cast<size_t>(length));
}

}  // namespace busfare::recorder
