#pragma once

#include <vector>

#include "funnel/team.h"
#include "nas/mg_class.h"

namespace nas {

/// Where the levels below those that are cut among ranks are solved: by every rank's core, or by one kernel
/// on the GPU that all ranks share, so that no host waits within an iteration.
enum class Coarse { automatic, host, device };

struct MgOptions {
    /// Levels of at most so many points an axis are solved whole.
    int coarse_points = 16;
    Coarse coarse = Coarse::automatic;  ///< automatic: on the device where it can
    int axes = 0;                       ///< cut 2 (z and y) or 3; 0: 2 up to 16 ranks
    bool fused = true;                  ///< on a device, the correction is not stored
    bool timed = false;                 ///< measure what the device's kernels take
};

struct MgResult {
    double norm = 0;
    double seconds = 0;                     ///< of NPB's timed part
    std::vector<double> iteration_seconds;  ///< from the end of one to the end of the next
    bool coarse_on_device = false;
    int axes = 0;
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
