#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define NAS_HOST_DEVICE __host__ __device__
#else
#define NAS_HOST_DEVICE
#endif

namespace nas {

/// One rank's part of a cubic grid with one ghost cell on each side. Interior points are 1..nx, 1..ny, 1..nz;
/// x = 1 falls on a multiple of 16 doubles, so that rows start on a 128-byte line.
struct Grid {
    static constexpr std::int32_t align = 16;

    std::int32_t nx, ny, nz;
    std::int32_t stride;  ///< doubles from one row to the next
    /// 1: rows are whole, so kernels may read around a row's end instead of its two ghost cells, which need
    /// not be kept then. On a GPU each of those is a scattered access of its own.
    std::int32_t wraps_x;

    static Grid of(std::int32_t nx, std::int32_t ny, std::int32_t nz, bool wraps_x = false) {
        return {nx, ny, nz, (nx + 2 + align - 1) / align * align, wraps_x ? 1 : 0};
    }
    NAS_HOST_DEVICE std::int64_t plane() const { return static_cast<std::int64_t>(stride) * (ny + 2); }
    NAS_HOST_DEVICE std::int64_t at(int x, int y, int z) const {
        return align - 1 + x + static_cast<std::int64_t>(stride) * y + plane() * z;
    }
    /// Doubles to allocate.
    std::int64_t doubles() const { return at(0, 0, nz + 2) + align; }
    bool operator==(const Grid&) const = default;
    NAS_HOST_DEVICE std::int64_t points() const { return static_cast<std::int64_t>(nx) * ny * nz; }
};

/// The 27 directions to a rank's neighbours, numbered 0..26 by x fastest; 13 is the rank itself.
struct Direction {
    int x, y, z;  ///< -1, 0 or 1
};
NAS_HOST_DEVICE inline Direction direction(int number) {
    return {number % 3 - 1, number / 3 % 3 - 1, number / 9 - 1};
}
inline constexpr int directions = 27;
inline constexpr int no_direction = 13;

/// The box of ghost cells in one direction: a face, an edge or a corner.
struct GhostBox {
    std::int32_t nx, ny, nz;  ///< cells along each axis
    std::int32_t x0, y0, z0;  ///< the first ghost cell
    std::int32_t sx, sy, sz;  ///< the cell of the neighbour that the first ghost cell mirrors
    NAS_HOST_DEVICE std::int64_t cells() const { return static_cast<std::int64_t>(nx) * ny * nz; }
};
NAS_HOST_DEVICE inline GhostBox ghost_box(const Grid& grid, int number) {
    const Direction d = direction(number);
    GhostBox box;
    box.nx = d.x == 0 ? grid.nx : 1;
    box.ny = d.y == 0 ? grid.ny : 1;
    box.nz = d.z == 0 ? grid.nz : 1;
    box.x0 = d.x < 0 ? 0 : d.x > 0 ? grid.nx + 1 : 1;
    box.y0 = d.y < 0 ? 0 : d.y > 0 ? grid.ny + 1 : 1;
    box.z0 = d.z < 0 ? 0 : d.z > 0 ? grid.nz + 1 : 1;
    box.sx = box.x0 - d.x * grid.nx;
    box.sy = box.y0 - d.y * grid.ny;
    box.sz = box.z0 - d.z * grid.nz;
    return box;
}

}  // namespace nas
