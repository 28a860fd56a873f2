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
/// Blocks of those kernels that fit a multiprocessor: three with more registers, or five with fewer, took up
/// to a seventh longer on an H200.
constexpr int blocks_together = 4;

__device__ inline double* doubles(std::uint64_t address) {
    return reinterpret_cast<double*>(address);
}

/// What one plane of the grid adds to the outputs in its own plane and to those in the planes beside it.
template <int n>
struct PlaneSums {
    double within[n], adjacent[n];
};

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
        sums.within[j] = w0 * middle[j + 1] + w1 * edges + w2 * corners;
        sums.adjacent[j] = w1 * middle[j + 1] + w2 * edges + w3 * corners;
    }
    return sums;
}

/// Where a thread finds, of one plane, the row before its own, its own, and the row after them.
struct Rows {
    const double *before, *within, *after;

    __device__ void advance(std::int64_t doubles) {
        before += doubles;
        within += doubles;
        after += doubles;
    }
};

/// Finds the planes of a field, whose first and last rows and planes may lie with neighbours, for a thread
/// that has `n` rows from the grid's row `y` on. `offset` is where its column starts in plane 0.
struct Planes {
    const Around& field;
    std::int64_t offset, plane;
    int nz;
    bool first, last;  ///< the row before is the grid's row 0; the row after its row ny + 1

    __device__ Planes(const Around& around, const Grid& g, std::int64_t at, int y, int n)
        : field(around), offset(at), plane(g.plane()), nz(g.nz), first(y == 1), last(y + n > g.ny) {}

    template <int dz>
    __device__ Rows side(int z) const {
        const std::int64_t at = offset + plane * z;
        return {doubles(first ? field.at(-1, dz) : field.at(0, dz)) + at, doubles(field.at(0, dz)) + at,
                doubles(last ? field.at(1, dz) : field.at(0, dz)) + at};
    }
    __device__ Rows at(int z) const { return z < 1 ? side<-1>(z) : z > nz ? side<1>(z) : side<0>(z); }
    /// From plane z to the next.
    __device__ void advance(Rows& rows, int z) const {
        if (z == nz)
            rows = side<1>(z + 1);
        else
            rows.advance(plane);
    }
};

inline unsigned blocks_for(std::int64_t count, int threads) {
    return static_cast<unsigned>((count + threads - 1) / threads);
}

/// The arguments of one launch for several ranks, whose blocks follow each other in z.
template <class Arguments, int most>
struct Merged {
    Arguments of[most];
};
/// As many as the 4 KiB of a launch's arguments hold.
constexpr int most_merged = 8;

/// The rank that a block works for, and the layer of blocks in z within its part; `layers` a part.
struct BlockPlace {
    int rank, layer;
};
template <int most>
__device__ BlockPlace block_place(int layers) {
    const int z = static_cast<int>(blockIdx.z);
    if (most == 1) return {0, z};
    return {z / layers, z % layers};
}

/// Calls `launch` with the arguments of ranks whose parts have the same grid, at most `most_merged` together.
template <class Arguments, class Launch>
void launch_merged(const void* const* arguments, int ranks, Grid Arguments::* grid, Launch launch) {
    const auto of = [&](int rank) -> const Arguments& {
        return *static_cast<const Arguments*>(arguments[rank]);
    };
    for (int first = 0, count; first < ranks; first += count) {
        Merged<Arguments, most_merged> merged;
        static_assert(sizeof merged <= 4000);
        for (count = 0; count < most_merged && first + count < ranks; ++count) {
            const Arguments& next = of(first + count);
            if (count > 0 && !(next.*grid == merged.of[0].*grid)) break;
            merged.of[count] = next;
        }
        if (count == 1)
            launch(Merged<Arguments, 1>{{merged.of[0]}}, 1);
        else
            launch(merged, count);
    }
}

/// The launch of kernels whose threads march up z with `march_rows` rows each.
struct March {
    dim3 blocks;
    int planes;  ///< of a block
    int layers;  ///< of blocks in z, of a rank

    /// As many planes a block as leave a GPU enough blocks: longer marches read fewer planes twice. Enough
    /// are those that an H100 or H200 runs at once, less a few: a second wave costs more than planes read
    /// twice.
    static March of(const Grid& g, int ranks) {
        constexpr unsigned enough_blocks = 512;
        March march{{blocks_for(g.nx, lanes), blocks_for(g.ny, warps * march_rows), 1}, 32, 1};
        const unsigned a_plane = march.blocks.x * march.blocks.y * static_cast<unsigned>(ranks);
        while (march.planes > 4 && a_plane * blocks_for(g.nz, march.planes) < enough_blocks)
            march.planes /= 2;
        march.layers = static_cast<int>(blocks_for(g.nz, march.planes));
        march.blocks.z = static_cast<unsigned>(march.layers * ranks);
        return march;
    }
};

/// A kernel whose merged launch serves one rank, too.
template <funnel::MergedKernelFunction merged>
void add_merging(funnel::KernelTable& table, std::uint32_t number) {
    table.add(number, [](void* stream, const void* arguments) { merged(stream, &arguments, 1); }, merged);
}

inline cudaStream_t as_stream(void* stream) {
    return static_cast<cudaStream_t>(stream);
}

}  // namespace
}  // namespace nas
