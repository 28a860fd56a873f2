#pragma once

#include <array>
#include <cstdint>

#include "funnel/kernel_table.h"
#include "nas/grid.h"

namespace nas {

/// The numbers under which the owner knows the kernels of FT and MG.
enum Kernel : std::uint32_t {
    ft_evolve,
    ft_planes,
    ft_lines,
    ft_scatter,
    mg_zero,
    mg_set_points,
    mg_stencil,
    mg_restrict,
    mg_interpolate,
    mg_correct_residual,
    mg_correct_and_smooth,
    mg_solve_coarse,
    mg_pack_ghosts,
    mg_fill_ghosts,
    mg_gather,
    mg_scatter,
    mg_norm,
};

void add_host_kernels(funnel::KernelTable& table);
void add_cuda_kernels(funnel::KernelTable& table);

/// Multiplies planes by exp(decay · k²), with k² the square of the wave number of each point [NPB FT].
/// Point (plane, row, x) lies at `(plane · rows + row) · nx + x`.
struct EvolveArguments {
    std::uint64_t data;
    std::int32_t planes, rows, nx;
    std::int32_t first_plane, all_planes;  ///< where these planes stand in the whole grid
    double decay;                          ///< -4 α π² t
};

/// 2D transforms, in place, of `planes` planes of rows × nx points.
struct PlanesArguments {
    std::uint64_t data;
    std::int32_t planes, rows, nx;
    std::int32_t sign;
};

/// 1D transforms, in place, of `columns` lines; point i of line c lies at `i · columns + c`, or, where they
/// are `contiguous`, at `c · length + i`. `scratch` is as large as the data; 0 transforms with the stride
/// instead of transposing to contiguous lines and back.
struct LinesArguments {
    std::uint64_t data, scratch;
    std::int32_t length, columns;
    std::int32_t sign;
    std::int32_t contiguous;
};

/// The transpose inside device memory: rows of the planes at `from`, `block_rows` to a target, become parts
/// of lines: point (plane, row, x) goes to `((row in block) · nx + x) · lines + first_plane + plane` of its
/// target.
struct ScatterArguments {
    static constexpr int most_targets = 32;
    std::uint64_t from;
    std::int32_t planes, rows, nx;
    std::int32_t first_plane, lines;  ///< where these planes stand in the whole grid, and how many it has
    std::int32_t block_rows;
    std::array<std::uint64_t, most_targets> to;
};

struct ZeroArguments {
    std::uint64_t data, count;
};

/// MG's right-hand side: `count` points take `value`, the rest of the array stays.
struct SetPointsArguments {
    static constexpr int most = 20;
    std::uint64_t data;
    std::int32_t count;
    std::array<std::uint64_t, most> index;
    std::array<double, most> value;
};

/// A field as a kernel reads it beyond its own part: an address for the rows and planes before, within and
/// after the part, in y and z, such that a ghost point's own index finds the neighbour's point there. All
/// nine are the field's own where its ghost cells are kept; else rows are whole (`wraps_x`) and a multiple of
/// `rows_together` in number.
struct Around {
    static constexpr std::int32_t rows_together = 4;
    std::array<std::uint64_t, 9> data;

    static Around of(std::uint64_t part) {
        Around around{};
        around.data.fill(part);
        return around;
    }
    NAS_HOST_DEVICE std::uint64_t at(int dy, int dz) const { return data[(dy + 1) + 3 * (dz + 1)]; }
    NAS_HOST_DEVICE std::uint64_t part() const { return at(0, 0); }
};

/// The address by which a ghost point's index finds the point of the neighbour, whose array of the same grid
/// is at `data`, on that side.
inline std::uint64_t beyond(const Grid& grid, std::uint64_t data, int dy, int dz) {
    const std::int64_t points =
        dy * static_cast<std::int64_t>(grid.stride) * grid.ny + dz * grid.plane() * grid.nz;
    return data - static_cast<std::uint64_t>(points) * sizeof(double);
}

/// out ← base + Σ weight[d] · (neighbours of `in` at Manhattan-type distance d: itself, faces, edges,
/// corners). resid is base v, in u, weights -a; psinv is base u, in r, weights c, out u [NPB MG].
struct StencilArguments {
    Grid grid;
    std::uint64_t base, out;
    Around in;
    std::array<double, 4> weight;
};

/// rprj3: the coarse residual is the full-weighted fine one.
struct RestrictArguments {
    Grid fine, coarse;
    std::uint64_t to;
    Around from;
};

/// interp: adds the trilinear interpolation of the coarse correction; `replace` writes instead of adding.
struct InterpolateArguments {
    Grid coarse, fine;
    std::uint64_t from, to;
    std::int32_t replace;
};

/// interp and the resid after it in one pass, nothing of the correction stored: residual += Σ weight[d] ·
/// (neighbours, at distance d, of the interpolated correction `from`), which is r - A z as the benchmark's
/// text has it, where the residual of what is corrected is at hand.
struct CorrectResidualArguments {
    Grid coarse, fine;
    std::uint64_t residual;
    Around from;
    std::array<double, 4> weight;
};

/// interp and psinv in one pass: `to` += (`replace`: =) the interpolated correction + Σ weight[d] ·
/// (neighbours of `residual` at distance d).
struct CorrectAndSmoothArguments {
    Grid coarse, fine;
    std::uint64_t to;
    Around from, residual;
    std::int32_t replace;
    std::array<double, 4> weight;
};

/// The V-cycle below the levels that are cut among ranks, for ranks that share one memory: reads the interior
/// of every rank's residual and writes every rank's correction, ghost cells included. The whole grid has
/// 2^log2_points points an axis, at most 2^`most_log2_points`.
struct SolveCoarseArguments {
    static constexpr int most_ranks = 16, most_log2_points = 4;
    Grid part;  ///< of each rank
    std::int32_t log2_points, px, py, pz;
    std::array<double, 4> smoother;
    std::array<std::uint64_t, most_ranks> residual, correction;
};

/// Writes the faces, edges and corners that other ranks lack into a buffer: direction d at `at[d]` doubles
/// from its start, -1 for a direction that needs no packing. Directions are named from the receiver's side.
struct PackArguments {
    Grid grid;
    std::uint64_t data, buffer;
    std::array<std::int32_t, 27> at;
};

/// Fills the ghost cells of direction d from the neighbour's own array at `source[d]` (0: leaves them), or,
/// where bit d of `packed` is set, from a packed buffer at `source[d]`.
struct FillArguments {
    Grid grid;
    std::uint64_t data;
    std::uint32_t packed;
    std::array<std::uint64_t, 27> source;
};

/// The interior (or, `with_ghosts`, everything) to or from a dense buffer.
struct DenseArguments {
    Grid grid;
    std::uint64_t data, buffer;
    std::int32_t with_ghosts;
};

/// Partial sums of squares and maxima of |interior|: `partials` holds `blocks` sums, then `blocks` maxima.
struct NormArguments {
    Grid grid;
    std::uint64_t data, partials;
    std::int32_t blocks;
};

}  // namespace nas
