#pragma once

#include <string>
#include <vector>

#include "funnel/device.h"

namespace funnel {

/// The kernels that an owner can run, by number. Every rank uses the same numbers; only the owner holds the
/// functions.
class KernelTable {
  public:
    void add(std::uint32_t number, KernelFunction function) {
        if (number >= functions_.size()) functions_.resize(number + 1, nullptr);
        functions_[number] = function;
    }
    KernelFunction at(std::uint32_t number) const {
        if (number >= functions_.size() || functions_[number] == nullptr)
            throw Error(Fault::unknown_kernel, "the owner has no kernel number " + std::to_string(number));
        return functions_[number];
    }

  private:
    std::vector<KernelFunction> functions_;
};

}  // namespace funnel
