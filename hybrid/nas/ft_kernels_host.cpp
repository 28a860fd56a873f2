#include <fftw3.h>

#include <algorithm>
#include <cmath>
#include <complex>
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
    fftw_plan plane(int rows, int nx, int sign) {
        return get(
            {2, rows, nx, sign},
            [&](fftw_complex* work) { return fftw_plan_dft_2d(rows, nx, work, work, sign, FFTW_MEASURE); },
            static_cast<std::size_t>(rows) * nx);
    }
    fftw_plan lines(int length, int count, int sign) {
        return get(
            {1, length, count, sign},
            [&](fftw_complex* work) {
                return fftw_plan_many_dft(1, &length, count, work, nullptr, 1, length, work, nullptr, 1,
                                          length, sign, FFTW_MEASURE);
            },
            static_cast<std::size_t>(length) * count);
    }
    static Plans& shared() {
        static Plans plans;
        return plans;
    }

  private:
    using Key = std::tuple<int, int, int, int>;

    template <class Make>
    fftw_plan get(Key key, Make make, std::size_t points) {
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

/// Lines per tile: 16 points of 16 bytes are four cache lines of each row.
constexpr int tile = 16;

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

void transform_planes(Point* data, int planes, int rows, int nx, int sign) {
    const fftw_plan plan = Plans::shared().plane(rows, nx, sign);
    for (int plane = 0; plane < planes; ++plane) {
        fftw_complex* start = raw(data + static_cast<std::size_t>(plane) * rows * nx);
        // Planes are 16-byte aligned like everything here, so the plan made for other memory fits.
        fftw_execute_dft(plan, start, start);
    }
}

void transform_lines(Point* data, int length, std::size_t pitch, std::size_t columns, int sign, Point* to,
                     std::size_t column_pitch, std::size_t length_pitch) {
    const std::size_t width = std::min<std::size_t>(tile, columns);
    auto* lines = reinterpret_cast<Point*>(fftw_alloc_complex(width * static_cast<std::size_t>(length)));
    for (std::size_t first = 0; first < columns; first += width) {
        const std::size_t count = std::min(width, columns - first);
        const fftw_plan plan = Plans::shared().lines(length, static_cast<int>(count), sign);
        for (int i = 0; i < length; ++i)
            for (std::size_t c = 0; c < count; ++c)
                lines[c * length + i] = data[static_cast<std::size_t>(i) * pitch + first + c];
        fftw_execute_dft(plan, raw(lines), raw(lines));
        for (int i = 0; i < length; ++i)
            for (std::size_t c = 0; c < count; ++c)
                to[(first + c) * column_pitch + static_cast<std::size_t>(i) * length_pitch] =
                    lines[c * length + i];
    }
    fftw_free(lines);
}

void add_ft_host_kernels(funnel::KernelTable& table) {
    table.add(ft_evolve, [](void*, const void* arguments) {
        const auto& a = *static_cast<const EvolveArguments*>(arguments);
        auto* data = reinterpret_cast<Point*>(a.data);
        evolve_planes(data, data, a);
    });
    table.add(ft_planes, [](void*, const void* arguments) {
        const auto& a = *static_cast<const PlanesArguments*>(arguments);
        transform_planes(reinterpret_cast<Point*>(a.data), a.planes, a.rows, a.nx, a.sign);
    });
    table.add(ft_lines, [](void*, const void* arguments) {
        const auto& a = *static_cast<const LinesArguments*>(arguments);
        auto* data = reinterpret_cast<Point*>(a.data);
        const auto columns = static_cast<std::size_t>(a.columns);
        transform_lines(data, a.length, columns, columns, a.sign, data, 1, columns);
    });
}

}  // namespace nas
