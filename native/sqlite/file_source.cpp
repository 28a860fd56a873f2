#include "file_source.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "unreadable.hpp"

namespace busfare::sqlite {

FileSource::FileSource(const std::string& path) : file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    struct stat status{};
    if (file_ < 0 || ::fstat(file_, &status) != 0) {
        const std::string reason = std::strerror(errno);
        if (file_ >= 0) ::close(file_);
        throw Unreadable(reason);
    }
    size_ = static_cast<std::uint64_t>(status.st_size);
}

FileSource::~FileSource() {
    ::close(file_);
}

std::size_t FileSource::read(std::uint64_t offset, std::uint8_t* into, std::size_t size) const {
    std::size_t done = 0;
    while (done < size) {
        const ssize_t got = ::pread(file_, into + done, size - done, static_cast<off_t>(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) throw Unreadable(std::strerror(errno));
        if (got == 0) break;
        done += static_cast<std::size_t>(got);
    }
    return done;
}

}  // namespace busfare::sqlite
