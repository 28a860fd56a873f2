#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace funnel {

/// What went wrong, in a form that fits into shared memory and travels back to the rank that asked.
enum class Fault : std::uint32_t {
    none,
    out_of_range,        ///< a put or a copy that leaves the memory it names
    allocation_refused,  ///< the device has not the memory that was asked for
    unknown_kernel,      ///< the owner has no kernel of this number
    device_failed,       ///< the GPU reported an error; it serves no more tasks
    wrong_use,           ///< a call that breaks the library's contract
};

class Error : public std::runtime_error {
  public:
    Error(Fault fault, const std::string& what) : std::runtime_error(what), fault_(fault) {}
    Fault fault() const { return fault_; }

  private:
    Fault fault_;
};

}  // namespace funnel
