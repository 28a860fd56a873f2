#pragma once

#include <vector>

#include "funnel/device.h"

namespace funnel {

/// Which GPU each rank of a node uses and, of the ranks that share a GPU, which one owns it.
struct Seating {
    std::vector<int> gpu_of_rank;    ///< index into the GPUs given
    std::vector<int> owner_of_rank;  ///< the rank (within the node) that owns this rank's GPU
};

/// Spreads ranks evenly over GPUs, each rank to a GPU of its own NUMA node while that GPU has room, then
/// elects per GPU the lowest rank that runs on the GPU's NUMA node, or the lowest rank where none does. Every
/// rank computes the same seating from the same lists, so no message is needed. Unknown NUMA nodes are -1 and
/// match nothing.
Seating elect(const std::vector<int>& numa_of_rank, const std::vector<GpuPlace>& gpus);

/// The NUMA node that this thread runs on now; -1 where Linux does not say.
int numa_node_of_this_thread();

}  // namespace funnel
