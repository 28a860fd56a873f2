#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "nas/kernels.h"

namespace nas {
namespace {

constexpr int lanes = 32;
constexpr int warps = 4;
/// Rows of y that a thread marches up z with.
constexpr int march_rows = 4;

__device__ inline double* doubles(std::uint64_t address) {
    return reinterpret_cast<double*>(address);
}

/// What one plane of the grid adds to the outputs in its own plane and to those in the planes beside it.
template <int n>
struct PlaneSums {
    double own[n], beside[n];
};

/// The same offset, unknown to the compiler, which would keep an address for every row and offset in
/// registers otherwise.
__device__ inline int opaque(int offset) {
    asm volatile("" : "+r"(offset));
    return offset;
}

/// From a point to its neighbours in x; around the row's end where rows are whole.
struct Neighbours {
    int left, right;
};
__device__ inline Neighbours neighbours(const Grid& g, int x) {
    return {g.wraps_x && x == 1 ? g.nx - 1 : -1, g.wraps_x && x == g.nx ? 1 - g.nx : 1};
}

/// Of a thread's rows and the one on either side: the points, and the sums of each one's neighbours in x.
template <int n>
__device__ PlaneSums<n> weighted(const double (&middle)[n + 2], const double (&sides)[n + 2], double w0,
                                 double w1, double w2, double w3) {
    PlaneSums<n> sums;
#pragma unroll
    for (int j = 0; j < n; ++j) {
        const double edges = sides[j + 1] + middle[j] + middle[j + 2];
        const double corners = sides[j] + sides[j + 2];
        sums.own[j] = w0 * middle[j + 1] + w1 * edges + w2 * corners;
        sums.beside[j] = w1 * middle[j + 1] + w2 * edges + w3 * corners;
    }
    return sums;
}

/// `rows` holds the offsets of the thread's rows and of the one on either side.
template <int n>
__device__ PlaneSums<n> sum_plane(const double* __restrict__ in, const int (&rows)[n + 2], Neighbours beside,
                                  double w0, double w1, double w2, double w3) {
    double middle[n + 2], sides[n + 2];
    const double *left = in + opaque(beside.left), *right = in + opaque(beside.right);
#pragma unroll
    for (int j = 0; j < n + 2; ++j) {
        middle[j] = in[rows[j]];
        sides[j] = left[rows[j]] + right[rows[j]];
    }
    return weighted<n>(middle, sides, w0, w1, w2, w3);
}

inline unsigned blocks_for(std::int64_t count, int threads) {
    return static_cast<unsigned>((count + threads - 1) / threads);
}

/// The launch of kernels whose threads march up z with `march_rows` rows each.
struct March {
    dim3 blocks;
    int planes;  ///< of a block

    /// As many planes a block as leave a GPU enough blocks: longer marches read fewer planes twice.
    static March of(const Grid& g) {
        constexpr unsigned enough_blocks = 1024;
        March march{{blocks_for(g.nx, lanes), blocks_for(g.ny, warps * march_rows), 1}, 32};
        const unsigned a_plane = march.blocks.x * march.blocks.y;
        while (march.planes > 4 && a_plane * blocks_for(g.nz, march.planes) < enough_blocks)
            march.planes /= 2;
        march.blocks.z = blocks_for(g.nz, march.planes);
        return march;
    }
};

inline cudaStream_t as_stream(void* stream) {
    return static_cast<cudaStream_t>(stream);
}

}  // namespace
}  // namespace nas
