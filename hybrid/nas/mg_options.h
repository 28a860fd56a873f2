#pragma once

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

}  // namespace nas
