#pragma once

#include <cupti.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <string>
#include <utility>
#include <vector>

#include "journal.h"
#include "launch_arguments.h"

namespace busfare::recorder {

/// How much memory of the GPU the arguments of kernels reach: looked up at the first launch of each kernel
/// with each grid and block.
///
/// A pointer that lies in other memory, as in a table of pointers, is not seen, nor are variables of the GPU.
class ArgumentMemory {
  public:
    /// Whether the driver tells what arguments kernels have, and where memory begins and ends.
    bool start();

    /// From the end of a launch that succeeded.
    void note(LaunchCall call, const CUpti_CallbackData& data);

    /// What was found since the last time.
    void write(Journal& journal);

  private:
    using Shape = std::array<uint32_t, 6>;
    using AddressRange = CUresult(CUdeviceptr*, size_t*, CUdeviceptr);

    /// A launch that was looked at.
    struct Reached {
        std::string kernel;  ///< mangled
        Shape shape;
        uint64_t bytes;    ///< from the first pointer into each allocation to its end
        uint64_t buffers;  ///< how many allocations
    };

    bool is_new(CUfunction function, const Shape& shape);

    ArgumentPlaces places_;
    AddressRange* range_ = nullptr;
    std::shared_mutex known_mutex_;
    std::set<std::pair<CUfunction, Shape>> known_;
    std::mutex reached_mutex_;
    std::vector<Reached> reached_;
};

}  // namespace busfare::recorder
