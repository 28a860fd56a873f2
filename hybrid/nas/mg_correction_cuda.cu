#include <cuda_runtime.h>

#include "nas/cuda_kernels.h"
#include "nas/mg_march.cuh"
#include "nas/mg_staged.cuh"

namespace nas {
namespace {

/// Coarse rows that a thread's fine rows and the one on either side lie on and between. The first fine row
/// lies between two coarse rows.
constexpr int coarse_rows = march_rows / 2 + 2;
/// Those of its own rows alone.
constexpr int march_coarse_rows = march_rows / 2 + 1;

/// Of one coarse plane, by coarse row: the correction at the thread's x, and the sum of the corrections at
/// its neighbours in x.
struct CoarsePlane {
    double middle[coarse_rows], sides[coarse_rows];
};

/// Coarse column `here`, and from there to its left and right. A fine point between two coarse ones has the
/// mean of `here` and `right`, and its neighbours lie on those.
struct CoarseColumns {
    int here, left, right;
    bool between;
};
__device__ CoarseColumns coarse_columns(const Grid& coarse, int x) {
    const auto around = [&](int i) {
        return !coarse.wraps_x ? i : i < 1 ? i + coarse.nx : i > coarse.nx ? i - coarse.nx : i;
    };
    const int h = x / 2, here = around(h);
    const bool between = x % 2 != 0;
    return {here, between ? 0 : around(h - 1) - here, around(h + 1) - here, between};
}
/// The same offset, unknown to the compiler, which would keep an address for every row and offset in
/// registers otherwise.
__device__ int opaque(int offset) {
    asm volatile("" : "+r"(offset));
    return offset;
}

__device__ CoarsePlane load_coarse(const Rows& rows, int stride, int to_after, CoarseColumns at) {
    CoarsePlane loaded;
    const int to_left = opaque(at.left), to_right = opaque(at.right);
#pragma unroll
    for (int j = 0; j < coarse_rows; ++j) {
        const double* row = j == coarse_rows - 1 ? rows.after + to_after
                                                 : (j == 0 ? rows.before : rows.within) + (j - 1) * stride;
        const double l = __ldg(row + to_left), h = __ldg(row), r = __ldg(row + to_right);
        loaded.middle[j] = at.between ? 0.5 * (h + r) : h;
        loaded.sides[j] = at.between ? h + r : 0.5 * (l + r) + h;
    }
    return loaded;
}
__device__ CoarsePlane mean(const CoarsePlane& a, const CoarsePlane& b) {
    CoarsePlane m;
#pragma unroll
    for (int j = 0; j < coarse_rows; ++j) {
        m.middle[j] = 0.5 * (a.middle[j] + b.middle[j]);
        m.sides[j] = 0.5 * (a.sides[j] + b.sides[j]);
    }
    return m;
}

/// What one fine plane of the correction adds to the outputs.
__device__ PlaneSums<march_rows> sum_correction(const CoarsePlane& correction, double w0, double w1,
                                                double w2, double w3) {
    double middle[march_rows + 2], sides[march_rows + 2];
#pragma unroll
    for (int j = 0; j < march_rows + 2; ++j) {
        // The first of the rows, y0 - 1, lies on a coarse row.
        if (j % 2 == 0) {
            middle[j] = correction.middle[j / 2];
            sides[j] = correction.sides[j / 2];
        } else {
            middle[j] = 0.5 * (correction.middle[j / 2] + correction.middle[j / 2 + 1]);
            sides[j] = 0.5 * (correction.sides[j / 2] + correction.sides[j / 2 + 1]);
        }
    }
    return weighted<march_rows>(middle, sides, w0, w1, w2, w3);
}

/// r += the stencil of the interpolated correction, which is never stored: its points are made of the coarse
/// ones as they are needed. Every block starts on an odd plane and takes an even number of them.
template <int most>
__global__ void __launch_bounds__(lanes* warps, blocks_together)
    correct_residual(const __grid_constant__ Merged<CorrectResidualArguments, most> all, int planes_per_block,
                     int layers) {
    const BlockPlace place = block_place<most>(layers);
    const CorrectResidualArguments& a = all.of[place.rank];
    const Grid g = a.fine;
    const int x = static_cast<int>(blockIdx.x) * lanes + static_cast<int>(threadIdx.x) + 1;
    const int y0 = (static_cast<int>(blockIdx.y) * warps + static_cast<int>(threadIdx.y)) * march_rows + 1;
    if (x > g.nx || y0 > g.ny) return;
    const int z0 = place.layer * planes_per_block + 1;
    const int z1 = min(z0 + planes_per_block - 1, g.nz);
    const std::int64_t plane = g.plane();
    double* residual = doubles(a.residual) + g.at(x, y0, z0);
    const double w0 = a.weight[0], w1 = a.weight[1], w2 = a.weight[2], w3 = a.weight[3];
    const CoarseColumns columns = coarse_columns(a.coarse, x);
    const int coarse_y = y0 / 2 + 1;
    const Planes from(a.from, a.coarse, a.coarse.at(columns.here, coarse_y, 0), coarse_y, march_rows / 2);
    const int to_after = min(coarse_rows - 2, a.coarse.ny + 1 - coarse_y) * a.coarse.stride;
    int coarse_z = z0 / 2;
    CoarsePlane lower = load_coarse(from.at(coarse_z), a.coarse.stride, to_after, columns);
    Rows coarse = from.at(++coarse_z);
    CoarsePlane upper = load_coarse(coarse, a.coarse.stride, to_after, columns);
    PlaneSums<march_rows> below = sum_correction(lower, w0, w1, w2, w3);
    PlaneSums<march_rows> here = sum_correction(mean(lower, upper), w0, w1, w2, w3);
    // The next plane's points are on their way while this one's are summed, an eighth faster on an H200;
    // those past the block's last plane are not used.
    double ahead[march_rows];
#pragma unroll
    for (int j = 0; j < march_rows; ++j) ahead[j] = residual[min(j, g.ny - y0) * g.stride];
    const auto step = [&](const CoarsePlane& correction) {
        double sum[march_rows];
#pragma unroll
        for (int j = 0; j < march_rows; ++j) {
            sum[j] = ahead[j];
            ahead[j] = residual[plane + min(j, g.ny - y0) * g.stride];
        }
        const PlaneSums<march_rows> above = sum_correction(correction, w0, w1, w2, w3);
#pragma unroll
        for (int j = 0; j < march_rows; ++j) {
            sum[j] += here.within[j] + below.adjacent[j] + above.adjacent[j];
            if (y0 + j <= g.ny) residual[static_cast<std::int64_t>(j) * g.stride] = sum[j];
            below.adjacent[j] = here.adjacent[j];
            here.within[j] = above.within[j];
            here.adjacent[j] = above.adjacent[j];
        }
        residual += plane;
    };
    for (int z = z0; z <= z1; z += 2) {
        step(upper);  // the plane above an odd one lies on a coarse plane
        lower = upper;
        from.advance(coarse, coarse_z++);
        upper = load_coarse(coarse, a.coarse.stride, to_after, columns);
        step(mean(lower, upper));
    }
}

/// u += (`replace`: =) the interpolated correction + the stencil of r, which is staged in shared memory:
/// without the old u to read, loads into registers alone kept too few bytes under way (720 µs, not 630, for
/// 512³ points on an H200).
template <int most>
__global__ void __launch_bounds__(lanes* warps, blocks_together)
    correct_and_smooth(const __grid_constant__ Merged<CorrectAndSmoothArguments, most> all,
                       int planes_per_block, int layers) {
    const BlockPlace place = block_place<most>(layers);
    const CorrectAndSmoothArguments& a = all.of[place.rank];
    __shared__ __align__(16) StagedPlanes::Memory staged[warps];
    const Grid g = a.fine;
    const int x0 = static_cast<int>(blockIdx.x) * lanes + 1, lane_x = x0 + static_cast<int>(threadIdx.x);
    const int y0 = (static_cast<int>(blockIdx.y) * warps + static_cast<int>(threadIdx.y)) * march_rows + 1;
    if (y0 > g.ny) return;
    // Lanes beyond the grid help with copies, too.
    const int x = min(lane_x, g.nx);
    const int z0 = place.layer * planes_per_block + 1;
    const int z1 = min(z0 + planes_per_block - 1, g.nz);
    const std::int64_t plane = g.plane();
    double* out = doubles(a.to) + g.at(x, y0, z0);
    const double w0 = a.weight[0], w1 = a.weight[1], w2 = a.weight[2], w3 = a.weight[3];
    const CoarseColumns columns = coarse_columns(a.coarse, x);
    const int second = columns.between ? columns.right : 0, coarse_y = y0 / 2 + 1;
    const Planes from(a.from, a.coarse, a.coarse.at(columns.here, coarse_y, 0), coarse_y, march_rows / 2);
    const auto load = [&](const Rows& coarse, double (&points)[march_coarse_rows]) {
#pragma unroll
        for (int j = 0; j < march_coarse_rows; ++j) {
            const double* row = (j == 0 ? coarse.before : coarse.within) + (j - 1) * a.coarse.stride;
            points[j] = 0.5 * (__ldg(row) + __ldg(row + second));
        }
    };

    StagedPlanes in(staged[threadIdx.y], a.residual, g, x0, y0, z0 - 1, z1 + 1);
    PlaneSums<march_rows> below = in.sum(w0, w1, w2, w3);
    PlaneSums<march_rows> here = in.sum(w0, w1, w2, w3);
    // As in `correct_residual`: the next plane's old points are on their way, a tenth faster here.
    double ahead[march_rows];
    const auto load_old = [&](const double* from) {
#pragma unroll
        for (int j = 0; j < march_rows; ++j) ahead[j] = from[min(j, g.ny - y0) * g.stride];
    };
    if (!a.replace) load_old(out);
    const auto step = [&](const double (&correction)[march_coarse_rows]) {
        double sum[march_rows];
#pragma unroll
        for (int j = 0; j < march_rows; ++j)
            sum[j] = j % 2 == 0 ? 0.5 * (correction[j / 2] + correction[j / 2 + 1]) : correction[j / 2 + 1];
        if (!a.replace) {
#pragma unroll
            for (int j = 0; j < march_rows; ++j) sum[j] += ahead[j];
            load_old(out + plane);
        }
        const PlaneSums<march_rows> above = in.sum(w0, w1, w2, w3);
#pragma unroll
        for (int j = 0; j < march_rows; ++j) {
            sum[j] += here.within[j] + below.adjacent[j] + above.adjacent[j];
            if (lane_x <= g.nx && y0 + j <= g.ny) out[static_cast<std::int64_t>(j) * g.stride] = sum[j];
            below.adjacent[j] = here.adjacent[j];
            here.within[j] = above.within[j];
            here.adjacent[j] = above.adjacent[j];
        }
        out += plane;
    };
    double lower[march_coarse_rows], upper[march_coarse_rows];
    load(from.at(z0 / 2), lower);
    // The plane after the last coarse one is not needed, so none of these lies beyond the grid.
    Rows coarse = from.side<0>(z0 / 2 + 1);
    for (int z = z0; z <= z1; z += 2) {
        load(coarse, upper);
        coarse.advance(from.plane);
#pragma unroll
        for (int j = 0; j < march_coarse_rows; ++j) lower[j] = 0.5 * (lower[j] + upper[j]);
        step(lower);
        step(upper);
#pragma unroll
        for (int j = 0; j < march_coarse_rows; ++j) lower[j] = upper[j];
    }
}

void launch_correct_residual(void* stream, const void* const* arguments, int ranks) {
    launch_merged<CorrectResidualArguments>(
        arguments, ranks, &CorrectResidualArguments::fine, [&](const auto& all, int count) {
            const March march = March::of(all.of[0].fine, count);
            correct_residual<<<march.blocks, dim3(lanes, warps), 0, as_stream(stream)>>>(all, march.planes,
                                                                                         march.layers);
        });
}

void launch_correct_and_smooth(void* stream, const void* const* arguments, int ranks) {
    launch_merged<CorrectAndSmoothArguments>(
        arguments, ranks, &CorrectAndSmoothArguments::fine, [&](const auto& all, int count) {
            const March march = March::of(all.of[0].fine, count);
            correct_and_smooth<<<march.blocks, dim3(lanes, warps), 0, as_stream(stream)>>>(all, march.planes,
                                                                                           march.layers);
        });
}

}  // namespace

void add_mg_correction_cuda_kernels(funnel::KernelTable& table) {
    add_merging<launch_correct_residual>(table, mg_correct_residual);
    add_merging<launch_correct_and_smooth>(table, mg_correct_and_smooth);
}

}  // namespace nas
