#include "nas/mg_coarse.h"

#include <algorithm>
#include <cstring>

#include "nas/mg_class.h"
#include "nas/mg_host.h"

namespace nas {
namespace {

std::uint64_t address(std::vector<double>& data) {
    return reinterpret_cast<std::uint64_t>(data.data());
}

/// The grid is whole, so every neighbour is the grid itself.
void wrap(const Grid& grid, std::vector<double>& data) {
    FillArguments fill{grid, address(data), 0, {}};
    fill.source.fill(address(data));
    fill_ghosts(fill);
}

std::array<double, 4> minus(std::array<double, 4> weight) {
    for (double& w : weight) w = -w;
    return weight;
}

}  // namespace

CoarseSolver::CoarseSolver(int log2_points, const std::array<double, 4>& smoother) : smoother_(smoother) {
    for (int log2 = log2_points; log2 >= 1; --log2) {
        const Grid grid = Grid::of(1 << log2, 1 << log2, 1 << log2);
        const auto doubles = static_cast<std::size_t>(grid.doubles());
        levels_.push_back({grid, std::vector<double>(doubles), std::vector<double>(doubles)});
    }
}

void CoarseSolver::solve() {
    wrap(levels_.front().grid, levels_.front().residual);
    for (std::size_t i = 1; i < levels_.size(); ++i) {
        Level &fine = levels_[i - 1], &coarse = levels_[i];
        restrict_residual(
            {fine.grid, coarse.grid, address(coarse.residual), Around::of(address(fine.residual))});
        wrap(coarse.grid, coarse.residual);
    }
    Level& bottom = levels_.back();
    std::fill(bottom.correction.begin(), bottom.correction.end(), 0.0);
    for (std::size_t i = levels_.size(); i-- > 0;) {
        Level& level = levels_[i];
        const std::uint64_t r = address(level.residual), u = address(level.correction);
        if (i + 1 < levels_.size()) {
            Level& coarse = levels_[i + 1];
            interpolate({coarse.grid, level.grid, address(coarse.correction), u, 1});
            stencil({level.grid, r, r, Around::of(u), minus(mg_operator)});
            wrap(level.grid, level.residual);
        }
        stencil({level.grid, u, u, Around::of(r), smoother_});
        wrap(level.grid, level.correction);
    }
}

void CoarseSolver::put_residual(const RankBox& box, const Grid& part, const double* dense) {
    for (int z = 1; z <= part.nz; ++z)
        for (int y = 1; y <= part.ny; ++y, dense += part.nx)
            std::memcpy(residual() + grid().at(box.x * part.nx + 1, box.y * part.ny + y, box.z * part.nz + z),
                        dense, part.nx * sizeof(double));
}

void CoarseSolver::get_correction(const RankBox& box, const Grid& part, double* dense) const {
    for (int z = 0; z < part.nz + 2; ++z)
        for (int y = 0; y < part.ny + 2; ++y, dense += part.nx + 2)
            std::memcpy(dense,
                        correction() + grid().at(box.x * part.nx, box.y * part.ny + y, box.z * part.nz + z),
                        (part.nx + 2) * sizeof(double));
}

void solve_coarse(const SolveCoarseArguments& a) {
    CoarseSolver solver(a.log2_points, a.smoother);
    const Grid &part = a.part, &whole = solver.grid();
    const auto visit_rows = [&](int ghosts, const auto& visit) {
        for (int rank = 0; rank < a.px * a.py * a.pz; ++rank) {
            const int x0 = rank % a.px * part.nx, y0 = rank / a.px % a.py * part.ny,
                      z0 = rank / (a.px * a.py) * part.nz;
            for (int z = 1 - ghosts; z <= part.nz + ghosts; ++z)
                for (int y = 1 - ghosts; y <= part.ny + ghosts; ++y)
                    visit(rank, part.at(1 - ghosts, y, z), whole.at(x0 + 1 - ghosts, y0 + y, z0 + z),
                          (part.nx + 2 * ghosts) * sizeof(double));
        }
    };
    visit_rows(0, [&](int rank, std::int64_t in_part, std::int64_t in_whole, std::size_t bytes) {
        std::memcpy(solver.residual() + in_whole, reinterpret_cast<const double*>(a.residual[rank]) + in_part,
                    bytes);
    });
    solver.solve();
    visit_rows(1, [&](int rank, std::int64_t in_part, std::int64_t in_whole, std::size_t bytes) {
        std::memcpy(reinterpret_cast<double*>(a.correction[rank]) + in_part, solver.correction() + in_whole,
                    bytes);
    });
}

}  // namespace nas
