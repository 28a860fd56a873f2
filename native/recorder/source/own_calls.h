#pragma once

namespace busfare::recorder {

/// While one lives, calls of CUDA by this thread are the recorder's own, and none of the program's.
class RecorderCalls {
  public:
    RecorderCalls() { t_active = true; }
    ~RecorderCalls() { t_active = false; }
    RecorderCalls(const RecorderCalls&) = delete;
    RecorderCalls& operator=(const RecorderCalls&) = delete;

    static bool active() { return t_active; }

  private:
    static inline thread_local bool t_active = false;
};

}  // namespace busfare::recorder
