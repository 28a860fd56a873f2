#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "nas/mg_host.h"

namespace nas {
namespace {

double* doubles(std::uint64_t address) {
    return reinterpret_cast<double*>(address);
}

/// A field with ghost cells: itself, or, where they are not kept, a copy with what its neighbours have.
class Whole {
  public:
    Whole(const Grid& g, const Around& around) : data_(doubles(around.part())) {
        if (std::all_of(around.data.begin(), around.data.end(),
                        [&](std::uint64_t data) { return data == around.part(); }))
            return;
        copy_.resize(g.doubles());
        for (int z = 0; z <= g.nz + 1; ++z)
            for (int y = 0; y <= g.ny + 1; ++y) {
                const double* from = doubles(around.at((y > g.ny) - (y < 1), (z > g.nz) - (z < 1)));
                double* row = copy_.data() + g.at(0, y, z);
                std::copy_n(from + g.at(1, y, z), g.nx, row + 1);
                row[0] = row[g.nx];
                row[g.nx + 1] = row[1];
            }
        data_ = copy_.data();
    }
    const double* data() const { return data_; }
    Around around() const { return Around::of(reinterpret_cast<std::uint64_t>(data_)); }

  private:
    std::vector<double> copy_;
    const double* data_;
};

}  // namespace

void stencil(const StencilArguments& a) {
    const Grid& g = a.grid;
    const Whole whole(g, a.in);
    const double* in = whole.data();
    const double* base = doubles(a.base);
    double* out = doubles(a.out);
    const auto [w0, w1, w2, w3] = a.weight;
    // The four edge and four corner neighbours in the yz-plane are summed once and used for three points [NPB
    // MG].
    std::vector<double> faces(g.nx + 2), corners(g.nx + 2);
    double* const f = faces.data();
    double* const c = corners.data();
    for (int z = 1; z <= g.nz; ++z)
        for (int y = 1; y <= g.ny; ++y) {
            const double* mid = in + g.at(0, y, z);
            const double* south = in + g.at(0, y - 1, z);
            const double* north = in + g.at(0, y + 1, z);
            const double* below = in + g.at(0, y, z - 1);
            const double* above = in + g.at(0, y, z + 1);
            const double* south_below = in + g.at(0, y - 1, z - 1);
            const double* north_below = in + g.at(0, y + 1, z - 1);
            const double* south_above = in + g.at(0, y - 1, z + 1);
            const double* north_above = in + g.at(0, y + 1, z + 1);
#pragma GCC ivdep
            for (int x = 0; x <= g.nx + 1; ++x) {
                f[x] = south[x] + north[x] + below[x] + above[x];
                c[x] = south_below[x] + north_below[x] + south_above[x] + north_above[x];
            }
            const double* b = base + g.at(0, y, z);
            double* o = out + g.at(0, y, z);
#pragma GCC ivdep
            for (int x = 1; x <= g.nx; ++x)
                o[x] = b[x] + w0 * mid[x] + w1 * (mid[x - 1] + mid[x + 1] + f[x]) +
                       w2 * (c[x] + f[x - 1] + f[x + 1]) + w3 * (c[x - 1] + c[x + 1]);
        }
}

void restrict_residual(const RestrictArguments& a) {
    const Grid &fine = a.fine, &coarse = a.coarse;
    const Whole whole(fine, a.from);
    const double* r = whole.data();
    double* s = doubles(a.to);
    std::vector<double> faces(fine.nx + 2), corners(fine.nx + 2);
    for (int z = 1; z <= coarse.nz; ++z)
        for (int y = 1; y <= coarse.ny; ++y) {
            const std::int64_t at = fine.at(0, 2 * y, 2 * z), row = fine.stride, plane = fine.plane();
            for (int x = 0; x <= fine.nx + 1; ++x) {
                const double* p = r + at + x;
                faces[x] = p[-row] + p[row] + p[-plane] + p[plane];
                corners[x] = p[-row - plane] + p[row - plane] + p[-row + plane] + p[row + plane];
            }
            const double* mid = r + at;
            double* out = s + coarse.at(0, y, z);
            for (int x = 1; x <= coarse.nx; ++x) {
                const int i = 2 * x;
                out[x] = 0.5 * mid[i] + 0.25 * (mid[i - 1] + mid[i + 1] + faces[i]) +
                         0.125 * (corners[i] + faces[i - 1] + faces[i + 1]) +
                         0.0625 * (corners[i - 1] + corners[i + 1]);
            }
        }
}

void interpolate(const InterpolateArguments& a) {
    const Grid &coarse = a.coarse, &fine = a.fine;
    const double* z = doubles(a.from);
    double* u = doubles(a.to);
    // Fine point 2i lies on coarse point i, fine point 2i+1 halfway to the next; ghosts are filled along.
    for (int fz = 0; fz <= fine.nz + 1; ++fz)
        for (int fy = 0; fy <= fine.ny + 1; ++fy) {
            const double* r00 = z + coarse.at(0, fy / 2, fz / 2);
            const double* r10 = r00 + (fy % 2) * coarse.stride;
            const double* r01 = r00 + (fz % 2) * coarse.plane();
            const double* r11 = r10 + (fz % 2) * coarse.plane();
            double* out = u + fine.at(0, fy, fz);
            for (int x = 0; x <= coarse.nx; ++x) {
                const double here = 0.25 * (r00[x] + r10[x] + r01[x] + r11[x]);
                const double next = 0.25 * (r00[x + 1] + r10[x + 1] + r01[x + 1] + r11[x + 1]);
                const double between = 0.5 * (here + next);
                if (a.replace) {
                    out[2 * x] = here;
                    out[2 * x + 1] = between;
                } else {
                    out[2 * x] += here;
                    out[2 * x + 1] += between;
                }
            }
        }
}

void correct_residual(const CorrectResidualArguments& a) {
    const Whole coarse(a.coarse, a.from);
    std::vector<double> correction(a.fine.doubles());
    const auto z = reinterpret_cast<std::uint64_t>(correction.data());
    interpolate({a.coarse, a.fine, coarse.around().part(), z, 1});
    stencil({a.fine, a.residual, a.residual, Around::of(z), a.weight});
}

void correct_and_smooth(const CorrectAndSmoothArguments& a) {
    const Whole coarse(a.coarse, a.from);
    interpolate({a.coarse, a.fine, coarse.around().part(), a.to, a.replace});
    stencil({a.fine, a.to, a.to, a.residual, a.weight});
}

void pack_ghosts(const PackArguments& a) {
    const double* data = doubles(a.data);
    for (int d = 0; d < directions; ++d) {
        if (a.at[d] < 0) continue;
        const GhostBox box = ghost_box(a.grid, d);
        double* out = doubles(a.buffer) + a.at[d];
        for (int z = 0; z < box.nz; ++z)
            for (int y = 0; y < box.ny; ++y)
                for (int x = 0; x < box.nx; ++x) *out++ = data[a.grid.at(box.sx + x, box.sy + y, box.sz + z)];
    }
}

void fill_ghosts(const FillArguments& a) {
    double* data = doubles(a.data);
    for (int d = 0; d < directions; ++d) {
        if (d == no_direction) continue;
        const GhostBox box = ghost_box(a.grid, d);
        if (a.source[d] == 0) continue;
        const double* source = doubles(a.source[d]);
        const bool packed = (a.packed >> d & 1) != 0;
        for (int z = 0; z < box.nz; ++z)
            for (int y = 0; y < box.ny; ++y)
                for (int x = 0; x < box.nx; ++x)
                    data[a.grid.at(box.x0 + x, box.y0 + y, box.z0 + z)] =
                        packed ? *source++ : source[a.grid.at(box.sx + x, box.sy + y, box.sz + z)];
    }
}

void copy_dense(const DenseArguments& a, bool gather) {
    const int ghost = a.with_ghosts ? 1 : 0;
    const Grid& g = a.grid;
    double* dense = doubles(a.buffer);
    const std::size_t width = g.nx + 2 * ghost;
    for (int z = 1 - ghost; z <= g.nz + ghost; ++z)
        for (int y = 1 - ghost; y <= g.ny + ghost; ++y) {
            double* row = doubles(a.data) + g.at(1 - ghost, y, z);
            gather ? std::memcpy(dense, row, width * sizeof(double))
                   : std::memcpy(row, dense, width * sizeof(double));
            dense += width;
        }
}

void norm(const NormArguments& a) {
    const Grid& g = a.grid;
    const double* data = doubles(a.data);
    double* partials = doubles(a.partials);
    std::fill_n(partials, 2 * a.blocks, 0.0);
    for (int z = 1; z <= g.nz; ++z) {
        double& sum = partials[z % a.blocks];
        double& most = partials[a.blocks + z % a.blocks];
        for (int y = 1; y <= g.ny; ++y) {
            const double* row = data + g.at(0, y, z);
            for (int x = 1; x <= g.nx; ++x) {
                sum += row[x] * row[x];
                most = std::max(most, std::abs(row[x]));
            }
        }
    }
}

void add_mg_host_kernels(funnel::KernelTable& table) {
    table.add(mg_zero, [](void*, const void* arguments) {
        const auto& a = *static_cast<const ZeroArguments*>(arguments);
        std::memset(reinterpret_cast<void*>(a.data), 0, a.count * sizeof(double));
    });
    table.add(mg_set_points, [](void*, const void* arguments) {
        const auto& a = *static_cast<const SetPointsArguments*>(arguments);
        for (int i = 0; i < a.count; ++i) doubles(a.data)[a.index[i]] = a.value[i];
    });
    table.add(mg_stencil, [](void*, const void* a) { stencil(*static_cast<const StencilArguments*>(a)); });
    table.add(mg_restrict,
              [](void*, const void* a) { restrict_residual(*static_cast<const RestrictArguments*>(a)); });
    table.add(mg_interpolate,
              [](void*, const void* a) { interpolate(*static_cast<const InterpolateArguments*>(a)); });
    table.add(mg_correct_residual, [](void*, const void* a) {
        correct_residual(*static_cast<const CorrectResidualArguments*>(a));
    });
    table.add(mg_correct_and_smooth, [](void*, const void* a) {
        correct_and_smooth(*static_cast<const CorrectAndSmoothArguments*>(a));
    });
    table.add(mg_solve_coarse,
              [](void*, const void* a) { solve_coarse(*static_cast<const SolveCoarseArguments*>(a)); });
    table.add(mg_pack_ghosts,
              [](void*, const void* a) { pack_ghosts(*static_cast<const PackArguments*>(a)); });
    table.add(mg_fill_ghosts,
              [](void*, const void* a) { fill_ghosts(*static_cast<const FillArguments*>(a)); });
    table.add(mg_gather,
              [](void*, const void* a) { copy_dense(*static_cast<const DenseArguments*>(a), true); });
    table.add(mg_scatter,
              [](void*, const void* a) { copy_dense(*static_cast<const DenseArguments*>(a), false); });
    table.add(mg_norm, [](void*, const void* a) { norm(*static_cast<const NormArguments*>(a)); });
}

}  // namespace nas
