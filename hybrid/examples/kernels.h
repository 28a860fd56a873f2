#pragma once

#include <cstdint>

#include "funnel/kernel_table.h"

#ifdef __CUDACC__
#define EXAMPLE_HOST_DEVICE __host__ __device__
#else
#define EXAMPLE_HOST_DEVICE
#endif

/// The kernels of the examples. A kernel's arguments travel to the owner as plain data, so each is a struct
/// with its number, how many items it has, and what it does with one: the host loops, CUDA starts threads.
namespace examples {

enum Kernel : std::uint32_t { sweep, fill, transpose, integrate };

EXAMPLE_HOST_DEVICE inline double* doubles(std::uint64_t address) {
    return reinterpret_cast<double*>(address);
}

/// One Jacobi sweep over the rows 1 … rows of `width` points; the first and the last column stay.
struct Sweep {
    static constexpr Kernel number = sweep;
    std::uint64_t from, to;
    std::int64_t rows, width;
    EXAMPLE_HOST_DEVICE std::int64_t items() const { return rows * width; }
    EXAMPLE_HOST_DEVICE void run(std::int64_t item) const {
        const std::int64_t x = item % width, at = item + width;
        const double* f = doubles(from);
        const bool inside = x > 0 && x + 1 < width;
        doubles(to)[at] = inside ? 0.25 * ((f[at - width] + f[at + width]) + (f[at - 1] + f[at + 1])) : f[at];
    }
};

/// Point (row, column) of rows of `width` points gets its number in the whole matrix.
struct Fill {
    static constexpr Kernel number = fill;
    std::uint64_t to;
    std::int64_t first_row, rows, width;
    EXAMPLE_HOST_DEVICE std::int64_t items() const { return rows * width; }
    EXAMPLE_HOST_DEVICE void run(std::int64_t item) const {
        doubles(to)[item] = static_cast<double>(first_row * width + item);
    }
};

/// `to`, `columns` × `rows`, becomes the transpose of `from`, `rows` × `columns`.
struct Transpose {
    static constexpr Kernel number = transpose;
    std::uint64_t from, to;
    std::int64_t rows, columns;
    EXAMPLE_HOST_DEVICE std::int64_t items() const { return rows * columns; }
    EXAMPLE_HOST_DEVICE void run(std::int64_t item) const {
        doubles(to)[item] = doubles(from)[item % rows * columns + item / rows];
    }
};

/// Midpoint sums of 4 / (1 + x²) over `lanes` parts of [first, first + lanes · part], one sum a part.
struct Integrate {
    static constexpr Kernel number = integrate;
    static constexpr int points = 256;  ///< of each part
    std::uint64_t to;
    std::int64_t lanes;
    double first, part;
    EXAMPLE_HOST_DEVICE std::int64_t items() const { return lanes; }
    EXAMPLE_HOST_DEVICE void run(std::int64_t item) const {
        const double step = part / points, begin = first + static_cast<double>(item) * part;
        double sum = 0;
        for (int point = 0; point < points; ++point) {
            const double x = begin + (point + 0.5) * step;
            sum += 4 / (1 + x * x);
        }
        doubles(to)[item] = sum * step;
    }
};

/// For `TeamOptions`. The second is there in builds with CUDA only.
void add_host_kernels(funnel::KernelTable& table);
void add_cuda_kernels(funnel::KernelTable& table);

/// `Add::add<K>(table)` for all of them.
template <class Add>
void add_kernels(funnel::KernelTable& table) {
    Add::template add<Sweep>(table);
    Add::template add<Fill>(table);
    Add::template add<Transpose>(table);
    Add::template add<Integrate>(table);
}

}  // namespace examples
