#pragma once

#include <string>
#include <vector>

#include "funnel/device.h"

namespace funnel {

/// The kernels that an owner can run, by number. Every rank uses the same numbers; only the owner holds the
/// functions.
class KernelTable {
  public:
    /// `merged`, if given, launches the kernel once for all ranks whose next task it is: many short kernels
    /// then cost the owner one launch instead of one a rank.
    void add(std::uint32_t number, KernelFunction alone, MergedKernelFunction merged = nullptr) {
        if (number >= kernels_.size()) kernels_.resize(number + 1);
        kernels_[number] = {alone, merged};
    }
    bool has(std::uint32_t number) const {
        return number < kernels_.size() && kernels_[number].alone != nullptr;
    }
    const Kernel& at(std::uint32_t number) const {
        if (!has(number))
            throw Error(Fault::unknown_kernel, "the owner has no kernel number " + std::to_string(number));
        return kernels_[number];
    }

  private:
    std::vector<Kernel> kernels_;
};

}  // namespace funnel
