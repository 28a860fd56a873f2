#pragma once

namespace busfare::recorder {

/// While one lives, calls of CUDA by this thread are the recorder's own, and none of the program's.
class OwnCalls {
  public:
    OwnCalls() { t_under_way = true; }
    ~OwnCalls() { t_under_way = false; }
    OwnCalls(const OwnCalls&) = delete;
    OwnCalls& operator=(const OwnCalls&) = delete;

    static bool under_way() { return t_under_way; }

  private:
    static inline thread_local bool t_under_way = false;
};

}  // namespace busfare::recorder
