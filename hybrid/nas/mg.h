#pragma once

#include <vector>

#include "funnel/team.h"
#include "nas/mg_class.h"
#include "nas/mg_options.h"

namespace nas {

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

/// Runs NAS MG over the team's ranks (a power of two), `iterations` of it. Collective.
MgResult run_mg(funnel::Team& team, const MgClass& size, const MgOptions& options, int iterations);

}  // namespace nas
