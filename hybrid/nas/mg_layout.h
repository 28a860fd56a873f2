#pragma once

#include <cstddef>
#include <cstdint>

#include "nas/grid.h"
#include "nas/halo.h"
#include "nas/mg_class.h"
#include "nas/mg_options.h"

namespace nas {

/// How MG's levels are cut among the ranks, and where each rank's staging memory holds what.
struct MgLayout {
    /// Blocks, each with a sum and a maximum, in which a norm leaves the device.
    static constexpr int norm_blocks = 256;
    static constexpr std::uint64_t norm_bytes = 2 * norm_blocks * sizeof(double);

    int axes;         ///< cut
    RankBox box;      ///< of this rank
    int bottom, top;  ///< the levels that are cut: log2 of the points an axis
    /// Staging memory: the halo's mail, the norm's partial sums, the coarse level's dense block, the end.
    std::uint64_t mail, partials, dense, end;

    /// Throws for options that fit no grid of the class.
    static MgLayout of(const MgClass& size, const MgOptions& options, int ranks, int rank);

    /// This rank's part of a level.
    Grid grid(int level) const;
    /// Of the coarse level's block, ghost cells included.
    std::uint64_t dense_bytes() const;
};

/// Staging memory that MG takes of each rank, and where in it a CPU lane's memory may start.
struct MgMemory {
    std::size_t staging_bytes, cpu_memory_offset;
};
MgMemory mg_memory(const MgClass& size, const MgOptions& options, int ranks, bool cpu);

}  // namespace nas
