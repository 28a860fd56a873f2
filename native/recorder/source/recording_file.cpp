#include "recording_file.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace busfare::recorder {
namespace {

constexpr const char* kRankVariables[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK",   "PMI_RANK",
                                          "MV2_COMM_WORLD_RANK",  "PALS_RANKID", "SLURM_PROCID"};
constexpr int kNamesTried = 100;

std::string host_name() {
    char name[256] = {};
    return gethostname(name, sizeof name - 1) == 0 && name[0] ? name : "host";
}

/// Every directory above the last slash; errors show when the file is created.
void make_directories(const std::string& path) {
    for (size_t slash = path.find('/', 1); slash != std::string::npos; slash = path.find('/', slash + 1)) {
        ::mkdir(path.substr(0, slash).c_str(), 0777);
    }
}

std::string numbered(const std::string& path, int number) {
    if (number == 1) return path;
    const size_t slash = path.rfind('/');
    size_t dot = path.rfind('.');
    if (dot == std::string::npos || (slash != std::string::npos && dot < slash)) dot = path.size();
    return path.substr(0, dot) + '-' + std::to_string(number) + path.substr(dot);
}

/// A file size limit ends the program that meets it, by a signal to the writing thread. While this is alive
/// the signal is held back, and forgotten if it came.
class FileSizeSignalHeld {
  public:
    FileSizeSignalHeld() {
        sigemptyset(&set_);
        sigaddset(&set_, SIGXFSZ);
        pthread_sigmask(SIG_BLOCK, &set_, &before_);
    }
    ~FileSizeSignalHeld() {
        const timespec at_once{};
        sigtimedwait(&set_, nullptr, &at_once);
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }
    FileSizeSignalHeld(const FileSizeSignalHeld&) = delete;
    FileSizeSignalHeld& operator=(const FileSizeSignalHeld&) = delete;

  private:
    sigset_t set_;
    sigset_t before_;
};

}  // namespace

std::string rank_of_process() {
    // torchrun and its like start several processes where the launchers below know of one.
    const char* of_job = std::getenv("RANK");
    if (of_job && *of_job && std::getenv("LOCAL_RANK") && std::getenv("WORLD_SIZE")) return of_job;
    for (const char* name : kRankVariables) {
        if (const char* rank = std::getenv(name); rank && *rank) return rank;
    }
    return "";
}

std::string file_name(const std::string& pattern) {
    const std::string rank = rank_of_process();
    const std::string process = std::to_string(getpid());
    std::string name;
    for (size_t at = 0; at < pattern.size(); ++at) {
        const char next = at + 1 < pattern.size() ? pattern[at + 1] : '\0';
        if (pattern[at] != '%' || !std::strchr("phr%", next) || next == '\0') {
            name += pattern[at];
            continue;
        }
        ++at;
        if (next == 'p') name += process;
        if (next == 'h') name += host_name();
        if (next == 'r') name += rank.empty() ? "0" : rank;
        if (next == '%') name += '%';
    }
    if (!name.empty() && name.back() == '/') {
        name += host_name() + (rank.empty() ? "" : "-r" + rank) + '-' + process + ".bf";
    }
    return name;
}

bool RecordingFile::create(const std::string& pattern) {
    const std::string name = file_name(pattern);
    make_directories(name);
    for (int number = 1; number <= kNamesTried; ++number) {
        path_ = numbered(name, number);
        descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
        if (descriptor_ >= 0) return true;
        if (errno != EEXIST) break;
    }
    path_ = name;
    error_ = std::strerror(errno);
    return false;
}

bool RecordingFile::append(const std::vector<unsigned char>& bytes) {
    if (descriptor_ < 0) return false;
    const FileSizeSignalHeld held;
    size_t done = 0;
    while (done < bytes.size()) {
        const ssize_t written = ::write(descriptor_, bytes.data() + done, bytes.size() - done);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) {
            error_ = written < 0 ? std::strerror(errno) : "nothing could be written";
            // The reader copes with a torn end; a clean one is kinder to a full disk.
            [[maybe_unused]] const int cut = ::ftruncate(descriptor_, length_);
            close();
            return false;
        }
        done += static_cast<size_t>(written);
    }
    length_ += static_cast<long long>(bytes.size());
    return true;
}

void RecordingFile::close() {
    if (descriptor_ >= 0) ::close(descriptor_);
    descriptor_ = -1;
}

}  // namespace busfare::recorder
