#include "nas/mg_layout.h"

#include <algorithm>
#include <bit>
#include <stdexcept>

namespace nas {
namespace {

/// Cutting x costs most, a scattered access a ghost cell; cutting two axes only costs surface.
int axes_to_cut(const MgOptions& options, int ranks) {
    if (options.axes != 0 && options.axes != 2 && options.axes != 3)
        throw std::invalid_argument("--axes is 2 or 3");
    if (options.axes != 0) return options.axes;
    constexpr int most_ranks_on_two = 16;
    return ranks <= most_ranks_on_two ? 2 : 3;
}

/// The coarsest level that is still cut among the ranks: each keeps at least two points an axis, so that the
/// next finer level's points pair up.
int coarsest_distributed(const MgOptions& options, const RankBox& box) {
    const int most_cut = std::max({box.px, box.py, box.pz});
    const auto wanted = std::bit_width(static_cast<unsigned>(std::max(options.coarse_points, 2))) - 1;
    return std::max<int>(wanted, std::bit_width(static_cast<unsigned>(most_cut)));
}

}  // namespace

MgLayout MgLayout::of(const MgClass& size, const MgOptions& options, int ranks, int rank) {
    MgLayout layout{};
    layout.axes = axes_to_cut(options, ranks);
    layout.box = RankBox::of(ranks, rank, layout.axes);
    layout.bottom = coarsest_distributed(options, layout.box);
    layout.top = size.log2_points;
    if (layout.bottom >= layout.top)
        throw std::invalid_argument("the coarse levels must be smaller than the class's grid");
    layout.mail = 0;
    layout.partials = layout.mail + Halo::mail_bytes(layout.grid(layout.top));
    layout.dense = layout.partials + norm_bytes;
    layout.end = layout.dense + layout.dense_bytes();
    return layout;
}

Grid MgLayout::grid(int level) const {
    const int n = 1 << level;
    return Grid::of(n / box.px, n / box.py, n / box.pz, box.px == 1);
}

std::uint64_t MgLayout::dense_bytes() const {
    const Grid coarsest = grid(bottom);
    const std::uint64_t cells =
        static_cast<std::uint64_t>(coarsest.nx + 2) * (coarsest.ny + 2) * (coarsest.nz + 2);
    return (cells * sizeof(double) + 255) / 256 * 256;
}

MgMemory mg_memory(const MgClass& size, const MgOptions& options, int ranks, bool cpu) {
    const MgLayout layout = MgLayout::of(size, options, ranks, 0);
    constexpr std::uint64_t slack = 512;  // allocations are rounded up to 256 bytes
    const auto field_bytes = [&](int level) {
        return static_cast<std::uint64_t>(layout.grid(level).doubles()) * sizeof(double) + slack;
    };
    std::uint64_t fields = 0;
    if (cpu) {
        for (int level = layout.bottom; level <= layout.top; ++level) fields += 2 * field_bytes(level);
        fields += field_bytes(layout.top);
        fields += MgLayout::norm_bytes + slack + layout.dense_bytes() + slack;
        fields += Halo::mail_bytes(layout.grid(layout.top)) + 2 * slack;
    }
    return {layout.end + fields + slack, (layout.end + slack - 1) / slack * slack};
}

}  // namespace nas
