#pragma once

#include <string>
#include <vector>

#include "chunk.h"

namespace busfare::recorder {

/// The file of one process: created exclusively, appended to, never seeked. Used by one thread at a time.
class RecordingFile {
  public:
    ~RecordingFile() { close(); }

    /// Creates the file that `pattern` names (see `file_name`). A name that exists gets `-2`, `-3` … before
    /// its suffix. False, with `error()` set, when no file can be made.
    bool create(const std::string& pattern);

    /// Appends all of `bytes`. On failure what was half written is cut off again, the file is closed,
    /// `error()` is set, and this and every later call returns false.
    bool append(const std::vector<unsigned char>& bytes);

    void close();
    bool is_open() const { return descriptor_ >= 0; }
    const std::string& path() const { return path_; }
    const std::string& error() const { return error_; }

  private:
    int descriptor_ = -1;
    long long length_ = 0;
    std::string path_;
    std::string error_;
};

/// `pattern` with %p (process id), %h (host name), %r (rank of an MPI or Slurm launch, 0 without one) and %%
/// replaced. A pattern that ends in `/` means a directory of the job, made if need be: the file in it is
/// `HOST-PID.bf`, or `HOST-rRANK-PID.bf` in a launch with ranks.
std::string file_name(const std::string& pattern);

/// The rank of this process in an MPI or Slurm launch, or "" outside of one.
std::string rank_of_process();

}  // namespace busfare::recorder
