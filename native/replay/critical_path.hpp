// The chain of waits that made the run as long as it was.
#pragma once

#include <vector>

#include "simulate.hpp"

namespace busfare::replay {

enum class Step : std::uint8_t {
    operation,    // `row` runs on the GPU
    launch,       // from the start of the launching call to where the operation could start
    queue,        // from the end of the operation before to where this one could start
    unexplained,  // the operation could start and the recording says it did not
    host_gap,     // the thread is between two calls
    call,         // the host is in the call
    wake_up,      // from the end of what a call waits for to its return
};

// Its steps from the first to the last, which follow on each other without a hole, from time 0 to the
// makespan.
struct Path {
    std::vector<std::uint8_t> step;  // Step
    std::vector<Index> row;          // of the operation or, for host_gap, call and wake_up, of the call
    std::vector<Time> start, end;
};

Path critical_path(const Timeline& timeline, const Played& played);

}  // namespace busfare::replay
