#pragma once

#include <vector>

#include "funnel/team.h"
#include "nas/mg_class.h"

namespace nas {

struct MgOptions {
    /// Levels of at most so many points an axis are solved on the host, whole, by every rank.
    int coarse_points = 16;
    bool timed = false;  ///< measure what the device's kernels take
};

struct MgResult {
    double norm = 0;
    double seconds = 0;  ///< of NPB's timed part
    std::vector<double>
        iteration_seconds;  ///< V-cycle and residual; the host's view, work may still be queued
    double kernel_seconds = 0, copy_seconds = 0;  ///< of this rank's tasks, when timed
    double waited_seconds = 0;                    ///< for neighbours' ghost cells
    double coarse_seconds = 0;                    ///< gather, solve and scatter of the coarse levels
};

/// Staging memory that MG takes of each rank, and where in it a CPU lane's memory may start.
struct MgMemory {
    std::size_t staging_bytes, cpu_memory_offset;
};
MgMemory mg_memory(const MgClass& size, const MgOptions& options, int ranks, bool cpu);

/// Runs NAS MG over the team's ranks (a power of two), `iterations` of it. Collective.
MgResult run_mg(funnel::Team& team, const MgClass& size, const MgOptions& options, int iterations);

}  // namespace nas
