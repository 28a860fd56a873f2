#pragma once

#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "journal.h"

namespace busfare::recorder {

/// Call stacks of the program's threads, each different one once.
///
/// A thread walks its own stack, which takes addresses and no memory; what these are in is looked up by the
/// writer, of each stack once.
class Stacks {
  public:
    static constexpr size_t kFrames = 64;
    static constexpr size_t kMost = size_t{1} << 16;  ///< different stacks; bounds memory

    /// The number, from 1, of the stack of this call's callers; 0 when there are too many.
    uint32_t take();

    /// The stacks that were not written before; returns how many calls found no room for theirs since then.
    uint64_t write(Journal& journal);

  private:
    std::mutex mutex_;
    std::unordered_map<uint64_t, uint32_t> numbers_;  ///< by hash
    std::vector<std::pair<uint32_t, std::vector<uint64_t>>> unwritten_;
    uint64_t refused_ = 0;
};

}  // namespace busfare::recorder
