#pragma once

#include <complex>
#include <vector>

#include "nas/ft_class.h"
#include "nas/slab_transform.h"

namespace nas {

struct FtResult {
    std::vector<std::complex<double>> checksums;
    double seconds = 0;  ///< of NPB's timed part: initial state, forward transform, iterations
    std::vector<double> iteration_seconds;  ///< evolve, inverse transform, checksum
    bool exchanged_on_device = false;       ///< the transpose passed inside the GPU's memory
    Breakdown breakdown;                    ///< of this rank, over the iterations
};

/// Staging memory that FT takes of each rank, in bytes. `outbox`: for packed slabs, and where ranks are on
/// several nodes.
std::size_t ft_staging_bytes(const FtClass& size, int ranks, bool outbox);

/// Runs NAS FT over the team's ranks, `iterations` of it (at most the class's). Collective. The number of
/// ranks divides the y and z extents.
FtResult run_ft(funnel::Team& team, const FtClass& size, const SlabOptions& options, int iterations);

}  // namespace nas
