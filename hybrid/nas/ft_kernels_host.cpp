#include <fftw3.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "nas/ft_host.h"

namespace nas {
namespace {

using Point = std::complex<double>;

fftw_complex* raw(Point* p) {
    return reinterpret_cast<fftw_complex*>(p);
}

/// FFTW's planner is not thread-safe, its plans are: one lock around the making of plans, which are kept.
class Plans {
  public:
    fftw_plan plane(int rows, int nx, int sign, bool in_place) {
        const auto points = static_cast<std::size_t>(rows) * nx;
        return get(
            {in_place ? 2 : 3, rows, nx, sign}, in_place ? points : 2 * points, [&](fftw_complex* work) {
                return fftw_plan_dft_2d(rows, nx, work, in_place ? work : work + points, sign, FFTW_MEASURE);
            });
    }
    fftw_plan lines(int length, int count, int sign) {
        const auto points = static_cast<std::size_t>(length) * count;
        return get({1, length, count, sign}, points, [&](fftw_complex* work) {
            return fftw_plan_many_dft(1, &length, count, work, nullptr, count, 1, work, nullptr, count, 1,
                                      sign, FFTW_MEASURE);
        });
    }
    static Plans& shared() {
        static Plans plans;
        return plans;
    }

  private:
    using Key = std::tuple<int, int, int, int>;

    template <class Make>
    fftw_plan get(Key key, std::size_t points, Make make) {
        std::lock_guard lock(mutex_);
        fftw_plan& plan = plans_[key];
        if (plan == nullptr) {
            fftw_complex* work = fftw_alloc_complex(points);  // measuring overwrites its arrays
            plan = make(work);
            fftw_free(work);
        }
        return plan;
    }

    std::mutex mutex_;
    std::map<Key, fftw_plan> plans_;
};

int wave_number(int index, int n) {
    return index < n / 2 ? index : index - n;
}

std::vector<double> decays(int first, int count, int all, double decay) {
    std::vector<double> factors(count);
    for (int i = 0; i < count; ++i) {
        const double k = wave_number(first + i, all);
        factors[i] = std::exp(decay * k * k);
    }
    return factors;
}

/// Lines per tile: rows of 1 KiB are copied at once, and a tile of 512-point lines (512 KiB) stays in a
/// core's cache.
constexpr int tile = 64;

}  // namespace

void evolve_planes(const Point* from, Point* to, const EvolveArguments& a) {
    // exp of a sum is a product of three, so a plane needs no exponential of its own.
    const std::vector<double> by_x = decays(0, a.nx, a.nx, a.decay);
    const std::vector<double> by_row = decays(0, a.rows, a.rows, a.decay);
    const std::vector<double> by_plane = decays(a.first_plane, a.planes, a.all_planes, a.decay);
    for (int plane = 0; plane < a.planes; ++plane)
        for (int row = 0; row < a.rows; ++row) {
            const double outer = by_plane[plane] * by_row[row];
            const std::size_t start = (static_cast<std::size_t>(plane) * a.rows + row) * a.nx;
            for (int x = 0; x < a.nx; ++x) to[start + x] = from[start + x] * (outer * by_x[x]);
        }
}

void transform_planes(const Point* from, Point* to, int planes, int rows, int nx, int sign) {
    const fftw_plan plan = Plans::shared().plane(rows, nx, sign, from == to);
    for (int plane = 0; plane < planes; ++plane) {
        const std::size_t start = static_cast<std::size_t>(plane) * rows * nx;
        // Planes are 16-byte aligned like everything here, so the plan made for other memory fits; it keeps
        // its input.
        fftw_execute_dft(plan, raw(const_cast<Point*>(from) + start), raw(to + start));
    }
}

void transform_lines(const Point* from, std::size_t from_pitch, Point* to, std::size_t to_pitch, int length,
                     std::size_t columns, int sign) {
    const std::size_t width = std::min<std::size_t>(tile, columns);
    auto* lines = reinterpret_cast<Point*>(fftw_alloc_complex(width * static_cast<std::size_t>(length)));
    for (std::size_t first = 0; first < columns; first += width) {
        const std::size_t count = std::min(width, columns - first);
        const fftw_plan plan = Plans::shared().lines(length, static_cast<int>(count), sign);
        for (int i = 0; i < length; ++i)
            std::memcpy(lines + i * count, from + i * from_pitch + first, count * sizeof(Point));
        fftw_execute_dft(plan, raw(lines), raw(lines));
        for (int i = 0; i < length; ++i)
            std::memcpy(to + i * to_pitch + first, lines + i * count, count * sizeof(Point));
    }
    fftw_free(lines);
}

void scatter_rows(const ScatterArguments& a) {
    const auto* from = reinterpret_cast<const Point*>(a.from);
    for (int plane = 0; plane < a.planes; ++plane)
        for (int row = 0; row < a.rows; ++row, from += a.nx) {
            auto* to = reinterpret_cast<Point*>(a.to[row / a.block_rows]) +
                       static_cast<std::size_t>(row % a.block_rows) * a.nx * a.lines + a.first_plane + plane;
            for (int x = 0; x < a.nx; ++x) to[static_cast<std::size_t>(x) * a.lines] = from[x];
        }
}

void add_ft_host_kernels(funnel::KernelTable& table) {
    table.add(ft_evolve, [](void*, const void* arguments) {
        const auto& a = *static_cast<const EvolveArguments*>(arguments);
        auto* data = reinterpret_cast<Point*>(a.data);
        evolve_planes(data, data, a);
    });
    table.add(ft_planes, [](void*, const void* arguments) {
        const auto& a = *static_cast<const PlanesArguments*>(arguments);
        auto* data = reinterpret_cast<Point*>(a.data);
        transform_planes(data, data, a.planes, a.rows, a.nx, a.sign);
    });
    table.add(ft_lines, [](void*, const void* arguments) {
        const auto& a = *static_cast<const LinesArguments*>(arguments);
        auto* data = reinterpret_cast<Point*>(a.data);
        if (a.contiguous) {
            transform_planes(data, data, a.columns, 1, a.length, a.sign);
            return;
        }
        const auto columns = static_cast<std::size_t>(a.columns);
        transform_lines(data, columns, data, columns, a.length, columns, a.sign);
    });
    table.add(ft_scatter, [](void*, const void* arguments) {
        scatter_rows(*static_cast<const ScatterArguments*>(arguments));
    });
}

}  // namespace nas
