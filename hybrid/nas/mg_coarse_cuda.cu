#include <cuda_runtime.h>

#include <algorithm>
#include <array>

#include "nas/cuda_kernels.h"
#include "nas/mg_class.h"
#include "nas/mg_march.cuh"

namespace nas {
namespace {

constexpr int coarse_threads = 1024;

/// A small periodic grid in shared memory, points 0..n-1 an axis, n a power of two.
struct SmallGrid {
    double* data;
    int log2;

    __device__ int points() const { return 1 << 3 * log2; }
    __device__ int at(int x, int y, int z) const {
        const int mask = (1 << log2) - 1;
        return (x & mask) + ((y & mask) << log2) + ((z & mask) << 2 * log2);
    }
    /// Point number i, axis by axis.
    __device__ int x(int i) const { return i & ((1 << log2) - 1); }
    __device__ int y(int i) const { return i >> log2 & ((1 << log2) - 1); }
    __device__ int z(int i) const { return i >> 2 * log2; }
    /// The sum over the 27 points around one, weighted by their distance.
    __device__ double around(int px, int py, int pz, double w0, double w1, double w2, double w3) const {
        double by_distance[4] = {0, 0, 0, 0};
#pragma unroll
        for (int dz = -1; dz <= 1; ++dz)
#pragma unroll
            for (int dy = -1; dy <= 1; ++dy)
#pragma unroll
                for (int dx = -1; dx <= 1; ++dx)
                    by_distance[(dx != 0) + (dy != 0) + (dz != 0)] += data[at(px + dx, py + dy, pz + dz)];
        return w0 * by_distance[0] + w1 * by_distance[1] + w2 * by_distance[2] + w3 * by_distance[3];
    }
};

/// The V-cycle from at most 16³ points down to 2³ and back, in one block: a launch for each of its twenty
/// steps would cost more than all of them together, and so would the way to the host and back.
__global__ void __launch_bounds__(coarse_threads)
    solve_coarse(SolveCoarseArguments a, std::array<double, 4> minus_a) {
    extern __shared__ double memory[];
    SmallGrid r[SolveCoarseArguments::most_log2_points], u[SolveCoarseArguments::most_log2_points];
    double* free = memory;
    const int levels = a.log2_points;
#pragma unroll
    for (int i = 0; i < SolveCoarseArguments::most_log2_points; ++i) {
        const int log2 = max(levels - i, 0);
        r[i] = {free, log2};
        u[i] = {free + (1 << 3 * log2), log2};
        free += 2 << 3 * log2;
    }
    const int thread = static_cast<int>(threadIdx.x);
    const Grid part = a.part;
    const auto rank_of = [&](int x, int y, int z) {
        return x / part.nx + a.px * (y / part.ny + a.py * (z / part.nz));
    };
    for (int i = thread; i < r[0].points(); i += coarse_threads) {
        const int x = r[0].x(i), y = r[0].y(i), z = r[0].z(i);
        r[0].data[i] =
            doubles(a.residual[rank_of(x, y, z)])[part.at(x % part.nx + 1, y % part.ny + 1, z % part.nz + 1)];
    }
    __syncthreads();
#pragma unroll
    for (int level = 1; level < SolveCoarseArguments::most_log2_points; ++level) {
        if (level >= levels) break;
        // Points count from 0 here: coarse point i lies on fine point 2i + 1.
        for (int i = thread; i < r[level].points(); i += coarse_threads)
            r[level].data[i] = r[level - 1].around(2 * r[level].x(i) + 1, 2 * r[level].y(i) + 1,
                                                   2 * r[level].z(i) + 1, 0.5, 0.25, 0.125, 0.0625);
        __syncthreads();
    }
#pragma unroll
    for (int level = SolveCoarseArguments::most_log2_points - 1; level >= 0; --level) {
        if (level >= levels) continue;
        const SmallGrid &residual = r[level], &correction = u[level];
        if (level + 1 < levels) {
            const SmallGrid& coarse = u[min(level + 1, SolveCoarseArguments::most_log2_points - 1)];
            for (int i = thread; i < correction.points(); i += coarse_threads) {
                const int x = correction.x(i), y = correction.y(i), z = correction.z(i);
                double sum = 0;
#pragma unroll
                for (int corner = 0; corner < 8; ++corner) {
                    // An odd point lies on coarse point (i - 1) / 2, an even one between that and the next.
                    const int dx = corner & 1, dy = corner >> 1 & 1, dz = corner >> 2;
                    sum +=
                        coarse
                            .data[coarse.at((x + 1) / 2 - 1 + (dx & ~x & 1), (y + 1) / 2 - 1 + (dy & ~y & 1),
                                            (z + 1) / 2 - 1 + (dz & ~z & 1))];
                }
                correction.data[i] = 0.125 * sum;
            }
            __syncthreads();
            for (int i = thread; i < residual.points(); i += coarse_threads)
                residual.data[i] += correction.around(residual.x(i), residual.y(i), residual.z(i), minus_a[0],
                                                      minus_a[1], minus_a[2], minus_a[3]);
            __syncthreads();
        }
        for (int i = thread; i < correction.points(); i += coarse_threads) {
            const double from_below = level + 1 < levels ? correction.data[i] : 0;
            correction.data[i] =
                from_below + residual.around(correction.x(i), correction.y(i), correction.z(i), a.smoother[0],
                                             a.smoother[1], a.smoother[2], a.smoother[3]);
        }
        __syncthreads();
    }
    const int wide = part.nx + 2, deep = part.ny + 2, cells = wide * deep * (part.nz + 2);
    for (int rank = 0; rank < a.px * a.py * a.pz; ++rank) {
        const int x0 = rank % a.px * part.nx, y0 = rank / a.px % a.py * part.ny,
                  z0 = rank / (a.px * a.py) * part.nz;
        for (int i = thread; i < cells; i += coarse_threads) {
            const int x = i % wide, y = i / wide % deep, z = i / (wide * deep);
            doubles(a.correction[rank])[part.at(x, y, z)] =
                u[0].data[u[0].at(x0 + x - 1, y0 + y - 1, z0 + z - 1)];
        }
    }
}

}  // namespace

void add_mg_coarse_cuda_kernels(funnel::KernelTable& table) {
    table.add(mg_solve_coarse, [](void* stream, const void* arguments) {
        const auto& a = *static_cast<const SolveCoarseArguments*>(arguments);
        std::array<double, 4> minus_a = mg_operator;
        for (double& weight : minus_a) weight = -weight;
        int bytes = 0;
        for (int level = a.log2_points; level > a.log2_points - SolveCoarseArguments::most_log2_points;
             --level)
            bytes += (2 << 3 * std::max(level, 0)) * static_cast<int>(sizeof(double));
        cudaFuncSetAttribute(solve_coarse, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
        solve_coarse<<<1, coarse_threads, bytes, as_stream(stream)>>>(a, minus_a);
    });
}

}  // namespace nas
