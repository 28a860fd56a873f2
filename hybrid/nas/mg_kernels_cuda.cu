#include <cuda_runtime.h>

#include "nas/cuda_kernels.h"
#include "nas/mg_march.cuh"
#include "nas/mg_staged.cuh"

namespace nas {
namespace {

/// The 27-point stencil. A thread marches up z with some rows of y: each plane of the input is loaded once,
/// through shared memory, and lives in registers as the two sums that three planes of output need [U11
/// §5.2.1]. (Tried on an H200 and slower: shuffles for x, streaming loads, two, six or eight rows, loads into
/// registers alone, and writing the ghost cells in x along with the row, which cost 20 %.)
template <int most>
__global__ void __launch_bounds__(lanes* warps, blocks_together)
    stencil(const __grid_constant__ Merged<StencilArguments, most> all, int planes_per_block, int layers) {
    const BlockPlace place = block_place<most>(layers);
    const StencilArguments& a = all.of[place.rank];
    __shared__ __align__(16) StagedPlanes::Memory staged[warps];
    const Grid g = a.grid;
    const int x0 = static_cast<int>(blockIdx.x) * lanes + 1, lane_x = x0 + static_cast<int>(threadIdx.x);
    const int y0 = (static_cast<int>(blockIdx.y) * warps + static_cast<int>(threadIdx.y)) * march_rows + 1;
    if (y0 > g.ny) return;
    const int z0 = place.layer * planes_per_block + 1;
    const int z1 = min(z0 + planes_per_block - 1, g.nz);
    // Lanes beyond the grid help with copies, too.
    const std::int64_t plane = g.plane(), start = g.at(min(lane_x, g.nx), y0, z0);
    const double* base = doubles(a.base) + start;
    double* out = doubles(a.out) + start;
    const double w0 = a.weight[0], w1 = a.weight[1], w2 = a.weight[2], w3 = a.weight[3];

    StagedPlanes in(staged[threadIdx.y], a.in, g, x0, y0, z0 - 1, z1 + 1);
    PlaneSums<march_rows> below = in.sum(w0, w1, w2, w3);
    PlaneSums<march_rows> here = in.sum(w0, w1, w2, w3);
    for (int z = z0; z <= z1; ++z) {
        double sum[march_rows];
#pragma unroll
        for (int j = 0; j < march_rows; ++j) sum[j] = base[min(j, g.ny - y0) * g.stride];
        const PlaneSums<march_rows> above = in.sum(w0, w1, w2, w3);
#pragma unroll
        for (int j = 0; j < march_rows; ++j) {
            sum[j] += here.within[j] + below.adjacent[j] + above.adjacent[j];
            if (lane_x <= g.nx && y0 + j <= g.ny) out[static_cast<std::int64_t>(j) * g.stride] = sum[j];
            below.adjacent[j] = here.adjacent[j];
            here.within[j] = above.within[j];
            here.adjacent[j] = above.adjacent[j];
        }
        base += plane;
        out += plane;
    }
}

/// Planes of output of a block; fewer would be faster below 128 points an axis, where little time goes.
constexpr int restrict_planes = 8;

/// rprj3. A thread marches up z: the weights are a product of one an axis, so each plane of the input is
/// summed once for the two planes of output beside it.
template <int most>
__global__ void restrict_residual(const __grid_constant__ Merged<RestrictArguments, most> all, int layers) {
    const BlockPlace place = block_place<most>(layers);
    const RestrictArguments& a = all.of[place.rank];
    const int x = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) + 1;
    const int y = static_cast<int>(blockIdx.y * blockDim.y + threadIdx.y) + 1;
    if (x > a.coarse.nx || y > a.coarse.ny) return;
    const int z0 = place.layer * restrict_planes + 1;
    const int z1 = min(z0 + restrict_planes - 1, a.coarse.nz);
    const int to_right = 1 + neighbours(a.fine, 2 * x).right, stride = a.fine.stride;
    const Planes in(a.from, a.fine, a.fine.at(2 * x - 1, 2 * y, 0), 2 * y, 1);
    const auto sum = [&](const Rows& rows) {
        double total = 0;
#pragma unroll
        for (int dy = -1; dy <= 1; ++dy) {
            const double* row = (dy > 0 ? rows.after : rows.within) + dy * stride;
            // Rows start on a line, so an odd point and the next lie in one aligned pair.
            const double2 pair = __ldg(reinterpret_cast<const double2*>(row));
            const double along = pair.y + 0.5 * (pair.x + __ldg(row + to_right));
            total += dy == 0 ? along : 0.5 * along;
        }
        return total;
    };
    int fine_z = 2 * z0 - 1;
    Rows rows = in.at(fine_z);
    double below = sum(rows);
    double* out = doubles(a.to) + a.coarse.at(x, y, z0);
    for (int z = z0; z <= z1; ++z) {
        in.advance(rows, fine_z++);
        const double here = sum(rows);
        in.advance(rows, fine_z++);
        const double above = sum(rows);
        *out = 0.5 * (here + 0.5 * (below + above));
        out += a.coarse.plane();
        below = above;
    }
}

/// A thread for each fine x and each coarse y and z, ghosts included: the four fine points that share its
/// eight coarse ones. Fine point 2i lies on coarse point i, 2i+1 halfway to the next.
__global__ void interpolate(InterpolateArguments a) {
    // The first warp of a row keeps only x = 0, so that the others start on the line where x = 1 lies.
    const int x = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) - (lanes - 1);
    const int y = static_cast<int>(blockIdx.y * blockDim.y + threadIdx.y);
    const int z = static_cast<int>(blockIdx.z);
    if (x < 0 || x > a.fine.nx + 1 || y > a.coarse.ny) return;
    if (a.fine.wraps_x && (x == 0 || x > a.fine.nx)) return;
    const bool around = a.fine.wraps_x && x == 1;  // its left coarse point is the row's last
    const double* c = doubles(a.from) + a.coarse.at(around ? a.coarse.nx : x / 2, y, z);
    const int dx = around ? 1 - a.coarse.nx : x % 2;
    const std::int64_t dy = a.coarse.stride, dz = a.coarse.plane();
    const double here = 0.5 * (c[0] + c[dx]), north = 0.5 * (c[dy] + c[dy + dx]),
                 above = 0.5 * (c[dz] + c[dz + dx]), beyond = 0.5 * (c[dy + dz] + c[dy + dz + dx]);
    double* out = doubles(a.to) + a.fine.at(x, 2 * y, 2 * z);
    double* const places[4] = {out, out + a.fine.stride, out + a.fine.plane(),
                               out + a.fine.stride + a.fine.plane()};
    double values[4] = {here, 0.5 * (here + north), 0.5 * (here + above),
                        0.25 * (here + north + above + beyond)};
    if (!a.replace)
#pragma unroll
        for (int i = 0; i < 4; ++i) values[i] += *places[i];
#pragma unroll
    for (int i = 0; i < 4; ++i) *places[i] = values[i];
}

constexpr int ghost_threads = 256;

/// Every direction's box has blocks of its own, so that the direction is looked up once a block.
struct GhostBlocks {
    unsigned first[directions + 1];

    static GhostBlocks of(const Grid& grid) {
        GhostBlocks blocks;
        unsigned next = 0;
        for (int d = 0; d < directions; ++d) {
            blocks.first[d] = next;
            if (d != no_direction && !(grid.wraps_x && direction(d).x != 0))
                next +=
                    static_cast<unsigned>((ghost_box(grid, d).cells() + ghost_threads - 1) / ghost_threads);
        }
        blocks.first[directions] = next;
        return blocks;
    }
    unsigned all() const { return first[directions]; }
};

struct GhostCell {
    int direction;
    int in_box;   ///< -1 past the end of the box
    int x, y, z;  ///< within the box
    GhostBox box;
};
__device__ GhostCell ghost_cell(const Grid& g, const GhostBlocks& blocks) {
    GhostCell cell;
    cell.direction = 0;
    while (blockIdx.x >= blocks.first[cell.direction + 1]) ++cell.direction;
    cell.box = ghost_box(g, cell.direction);
    cell.in_box = static_cast<int>((blockIdx.x - blocks.first[cell.direction]) * blockDim.x + threadIdx.x);
    const int row = cell.in_box / cell.box.nx;
    cell.x = cell.in_box - row * cell.box.nx;
    cell.z = row / cell.box.ny;
    cell.y = row - cell.z * cell.box.ny;
    if (cell.z >= cell.box.nz) cell.in_box = -1;
    return cell;
}

__global__ void pack_ghosts(PackArguments a, GhostBlocks blocks) {
    const GhostCell c = ghost_cell(a.grid, blocks);
    if (c.in_box < 0 || a.at[c.direction] < 0) return;
    doubles(a.buffer)[a.at[c.direction] + c.in_box] =
        doubles(a.data)[a.grid.at(c.box.sx + c.x, c.box.sy + c.y, c.box.sz + c.z)];
}

__global__ void fill_ghosts(FillArguments a, GhostBlocks blocks) {
    const GhostCell c = ghost_cell(a.grid, blocks);
    if (c.in_box < 0 || a.source[c.direction] == 0) return;
    const double* source = doubles(a.source[c.direction]);
    const bool packed = (a.packed >> c.direction & 1) != 0;
    doubles(a.data)[a.grid.at(c.box.x0 + c.x, c.box.y0 + c.y, c.box.z0 + c.z)] =
        packed ? source[c.in_box] : source[a.grid.at(c.box.sx + c.x, c.box.sy + c.y, c.box.sz + c.z)];
}

__global__ void copy_dense(DenseArguments a, bool gather) {
    const int ghost = a.with_ghosts ? 1 : 0;
    const std::int64_t nx = a.grid.nx + 2 * ghost, ny = a.grid.ny + 2 * ghost, nz = a.grid.nz + 2 * ghost;
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= nx * ny * nz) return;
    double& cell = doubles(
        a.data)[a.grid.at(static_cast<int>(i % nx) + 1 - ghost, static_cast<int>(i / nx % ny) + 1 - ghost,
                          static_cast<int>(i / (nx * ny)) + 1 - ghost)];
    double& dense = doubles(a.buffer)[i];
    if (gather)
        dense = cell;
    else
        cell = dense;
}

__global__ void set_points(SetPointsArguments a) {
    const int i = static_cast<int>(threadIdx.x);
    if (i < a.count) doubles(a.data)[a.index[i]] = a.value[i];
}

constexpr int norm_threads = 256;

__global__ void norm(NormArguments a) {
    __shared__ double sums[norm_threads], mosts[norm_threads];
    const std::int64_t points = a.grid.points();
    double sum = 0, most = 0;
    for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < points;
         i += static_cast<std::int64_t>(gridDim.x) * blockDim.x) {
        const double value = doubles(a.data)[a.grid.at(
            static_cast<int>(i % a.grid.nx) + 1, static_cast<int>(i / a.grid.nx % a.grid.ny) + 1,
            static_cast<int>(i / (static_cast<std::int64_t>(a.grid.nx) * a.grid.ny)) + 1)];
        sum += value * value;
        most = fmax(most, fabs(value));
    }
    const int thread = static_cast<int>(threadIdx.x);
    sums[thread] = sum;
    mosts[thread] = most;
    for (int half = norm_threads / 2; half > 0; half /= 2) {
        __syncthreads();
        if (thread < half) {
            sums[thread] += sums[thread + half];
            mosts[thread] = fmax(mosts[thread], mosts[thread + half]);
        }
    }
    if (thread == 0) {
        doubles(a.partials)[blockIdx.x] = sums[0];
        doubles(a.partials)[a.blocks + blockIdx.x] = mosts[0];
    }
}

void launch_stencil(void* stream, const void* const* arguments, int ranks) {
    launch_merged<StencilArguments>(arguments, ranks, &StencilArguments::grid,
                                    [&](const auto& all, int count) {
                                        const March march = March::of(all.of[0].grid, count);
                                        stencil<<<march.blocks, dim3(lanes, warps), 0, as_stream(stream)>>>(
                                            all, march.planes, march.layers);
                                    });
}

void launch_restrict(void* stream, const void* const* arguments, int ranks) {
    launch_merged<RestrictArguments>(
        arguments, ranks, &RestrictArguments::coarse, [&](const auto& all, int count) {
            const Grid& coarse = all.of[0].coarse;
            const unsigned layers = blocks_for(coarse.nz, restrict_planes);
            const dim3 blocks(blocks_for(coarse.nx, lanes), blocks_for(coarse.ny, warps),
                              layers * static_cast<unsigned>(count));
            restrict_residual<<<blocks, dim3(lanes, warps), 0, as_stream(stream)>>>(all,
                                                                                    static_cast<int>(layers));
        });
}

void launch_dense(void* stream, const DenseArguments& a, bool gather) {
    const int ghosts = a.with_ghosts ? 2 : 0;
    const std::int64_t cells =
        static_cast<std::int64_t>(a.grid.nx + ghosts) * (a.grid.ny + ghosts) * (a.grid.nz + ghosts);
    copy_dense<<<blocks_for(cells, ghost_threads), ghost_threads, 0, as_stream(stream)>>>(a, gather);
}

}  // namespace

void add_mg_cuda_kernels(funnel::KernelTable& table) {
    table.add(mg_zero, [](void* stream, const void* arguments) {
        const auto& a = *static_cast<const ZeroArguments*>(arguments);
        cudaMemsetAsync(reinterpret_cast<void*>(a.data), 0, a.count * sizeof(double), as_stream(stream));
    });
    table.add(mg_set_points, [](void* stream, const void* arguments) {
        set_points<<<1, lanes, 0, as_stream(stream)>>>(*static_cast<const SetPointsArguments*>(arguments));
    });
    add_merging<launch_stencil>(table, mg_stencil);
    add_merging<launch_restrict>(table, mg_restrict);
    table.add(mg_interpolate, [](void* stream, const void* arguments) {
        const auto& a = *static_cast<const InterpolateArguments*>(arguments);
        const dim3 blocks(blocks_for(a.fine.nx + 1 + lanes, lanes), blocks_for(a.coarse.ny + 1, warps),
                          a.coarse.nz + 1);
        interpolate<<<blocks, dim3(lanes, warps), 0, as_stream(stream)>>>(a);
    });
    table.add(mg_pack_ghosts, [](void* stream, const void* arguments) {
        const auto& a = *static_cast<const PackArguments*>(arguments);
        const GhostBlocks blocks = GhostBlocks::of(a.grid);
        pack_ghosts<<<blocks.all(), ghost_threads, 0, as_stream(stream)>>>(a, blocks);
    });
    table.add(mg_fill_ghosts, [](void* stream, const void* arguments) {
        const auto& a = *static_cast<const FillArguments*>(arguments);
        const GhostBlocks blocks = GhostBlocks::of(a.grid);
        fill_ghosts<<<blocks.all(), ghost_threads, 0, as_stream(stream)>>>(a, blocks);
    });
    table.add(mg_gather, [](void* stream, const void* arguments) {
        launch_dense(stream, *static_cast<const DenseArguments*>(arguments), true);
    });
    table.add(mg_scatter, [](void* stream, const void* arguments) {
        launch_dense(stream, *static_cast<const DenseArguments*>(arguments), false);
    });
    table.add(mg_norm, [](void* stream, const void* arguments) {
        const auto& a = *static_cast<const NormArguments*>(arguments);
        norm<<<a.blocks, norm_threads, 0, as_stream(stream)>>>(a);
    });
}

}  // namespace nas
