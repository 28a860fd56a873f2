#pragma once

#include <array>
#include <vector>

#include "nas/grid.h"
#include "nas/halo.h"

namespace nas {

/// The bottom of the V-cycle on one core: from the residual of a whole, small grid to its correction.
///
/// Every rank computes it from the same gathered residual. The levels are too small to feed a GPU or to be
/// worth a message each: a 16³ grid has 4096 points.
class CoarseSolver {
  public:
    CoarseSolver(int log2_points, const std::array<double, 4>& smoother);

    const Grid& grid() const { return levels_.front().grid; }
    /// Writable at `grid().at(x, y, z)`, interior only.
    double* residual() { return levels_.front().residual.data(); }
    void solve();
    /// A rank's part of the residual, from a dense block of its interior.
    void put_residual(const RankBox& box, const Grid& part, const double* dense);
    /// A rank's part of the correction, with its ghost cells, to a dense block.
    void get_correction(const RankBox& box, const Grid& part, double* dense) const;
    /// With ghost cells.
    const double* correction() const { return levels_.front().correction.data(); }

  private:
    struct Level {
        Grid grid;
        std::vector<double> residual, correction;
    };
    std::array<double, 4> smoother_;
    std::vector<Level> levels_;  ///< finest first, down to 2³
};

}  // namespace nas
