#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "nas/mg_march.cuh"

namespace nas {
namespace {

/// A warp's rows of successive planes, with the row and the column on either side, on their way into shared
/// memory while the planes before them are summed: registers for as many loads would leave a multiprocessor
/// too few warps. Every warp has its own, so none waits for another. Rows are of even length.
///
/// Copies go through L1 (`.ca`), where warps find the rows beside their own that another one has had; past it
/// they take a fifth longer on an H200. GPUs before compute capability 8.0 have no such copies and load and
/// store instead; they were not measured.
class StagedPlanes {
    static constexpr int slots = 4;  ///< one is summed, the others are under way
    static constexpr int rows = march_rows + 2;
    static constexpr int first = 2;  ///< column of the warp's first point: pairs lie on 16 bytes

  public:
    using Memory = double[slots][rows][first + lanes + 2];

    /// Of the planes from `z` to `last`, the rows from `y` on and the columns from `x` on.
    __device__ StagedPlanes(Memory& memory, const Around& field, const Grid& g, int x, int y, int z, int last)
        : memory_(memory),
          in_(field, g, g.at(x, y, 0), y, march_rows),
          lane_(static_cast<int>(threadIdx.x)),
          width_(min(lanes, g.nx - x + 1)),
          z_(z),
          last_(last) {
        const auto row = [&](int j) { return (min(y - 1 + j, g.ny + 1) - y) * g.stride; };
#pragma unroll
        for (int k = 0; k < row_pairs; ++k) to_pair_[k] = row(pair_row(k)) + pair_column();
        to_side_ = row(side_row()) +
                   (at_left() ? neighbours(g, x).left : width_ - 1 + neighbours(g, x + width_ - 1).right);
        find();
#pragma unroll
        for (int i = 0; i < slots - 1; ++i) fetch();
    }

    /// What the next plane adds to the outputs.
    __device__ PlaneSums<march_rows> sum(double w0, double w1, double w2, double w3) {
#if __CUDA_ARCH__ >= 800
        asm volatile("cp.async.wait_group %0;" ::"n"(slots - 2) : "memory");
#endif
        __syncwarp();
        fetch();
        const auto& from = memory_[summed_];
        summed_ = after(summed_);
        const int column = first + lane_;
        double middle[rows], sides[rows];
#pragma unroll
        for (int j = 0; j < rows; ++j) {
            middle[j] = from[j][column];
            sides[j] = from[j][column - 1] + from[j][column + 1];
        }
        return weighted<march_rows>(middle, sides, w0, w1, w2, w3);
    }

  private:
    /// Half a warp copies a row, two points a lane; the first lanes copy the columns beside the rows, too.
    static constexpr int row_pairs = rows / 2;
    static_assert(rows % 2 == 0 && 2 * rows <= lanes);
    __device__ int pair_row(int k) const { return 2 * k + lane_ / (lanes / 2); }
    __device__ int pair_column() const { return lane_ % (lanes / 2) * 2; }
    __device__ int side_row() const { return min(lane_ / 2, rows - 1); }
    __device__ bool at_left() const { return lane_ % 2 == 0; }
    __device__ static int after(int slot) { return slot + 1 == slots ? 0 : slot + 1; }

    /// Where plane z_ lies.
    __device__ void find() {
        const Rows r = in_.at(z_);
        const auto row = [&](int j) { return j == 0 ? r.before : j == rows - 1 ? r.after : r.within; };
#pragma unroll
        for (int k = 0; k < row_pairs; ++k) pairs_[k] = row(pair_row(k)) + to_pair_[k];
        side_ = row(side_row()) + to_side_;
    }

    template <int bytes>
    __device__ static void copy(double& to, const double* from) {
#if __CUDA_ARCH__ >= 800
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(
                         static_cast<unsigned>(__cvta_generic_to_shared(&to))),
                     "l"(from), "n"(bytes));
#else
        for (int i = 0; i < bytes / static_cast<int>(sizeof to); ++i) (&to)[i] = from[i];
#endif
    }

    __device__ void fetch() {
        if (z_ <= last_) {
            auto& to = memory_[fetched_];
            fetched_ = after(fetched_);
            if (pair_column() < width_)
#pragma unroll
                for (int k = 0; k < row_pairs; ++k)
                    copy<16>(to[pair_row(k)][first + pair_column()], pairs_[k]);
            if (lane_ < 2 * rows) copy<8>(to[side_row()][at_left() ? first - 1 : first + width_], side_);
            ++z_;
            if (z_ <= 1 || z_ > in_.nz) {
                find();
            } else {
#pragma unroll
                for (int k = 0; k < row_pairs; ++k) pairs_[k] += in_.plane;
                side_ += in_.plane;
            }
        }
        // Also where nothing is left to fetch, for `sum` counts groups.
#if __CUDA_ARCH__ >= 800
        asm volatile("cp.async.commit_group;");
#endif
    }

    Memory& memory_;
    Planes in_;
    int lane_, width_;
    int z_, last_;  ///< the next plane to fetch, the last one
    int fetched_ = 0, summed_ = 0;
    int to_pair_[row_pairs], to_side_;
    const double *pairs_[row_pairs], *side_;
};

}  // namespace
}  // namespace nas
