#include "nas/ft.h"

#include <mpi.h>

#include <numbers>
#include <stdexcept>

#include "nas/random.h"

namespace nas {
namespace {

using Point = std::complex<double>;

/// α of the heat equation that FT solves [NPB FT].
constexpr double alpha = 1e-6;

std::uint64_t slab_bytes(const FtClass& size, int ranks) {
    return static_cast<std::uint64_t>(size.points()) / ranks * sizeof(Point);
}

class Ft {
  public:
    Ft(funnel::Team& team, const FtClass& size, const SlabOptions& options)
        : team_(team), size_(size), ranks_(team.node().world_size()), rank_(team.node().world_rank()) {
        if (size.nz % ranks_ != 0 || size.ny % ranks_ != 0)
            throw std::invalid_argument("the number of ranks must divide the class's y and z extents");
        const std::uint64_t slab = slab_bytes(size, ranks_);
        layout_ = {0, slab, 2 * slab};
        transform_ = make_transform(options, slab);
    }

    void set_initial_state() {
        const int planes = size_.nz / ranks_;
        const std::uint64_t plane_points = static_cast<std::uint64_t>(size_.nx) * size_.ny;
        Random random(2 * plane_points * planes * rank_);
        Point* state = points(layout_.from);
        for (std::uint64_t i = 0; i < plane_points * planes; ++i) {
            const double real = random.next();
            state[i] = {real, random.next()};
        }
    }

    /// z-slabs of xy-planes become y-slabs of zx-planes, so that the inverse begins with local planes again
    /// and one transpose is enough for each transform.
    void forward() {
        transform_->run({size_.nz, size_.ny, size_.nx, 1, false, 0, true});
        MPI_Barrier(team_.node().world());
    }

    /// `more`: the inverse of the next time follows and may be begun.
    void inverse(int time, bool more) {
        const Stage next = inverse_at(time + 1);
        transform_->run(inverse_at(time), more ? &next : nullptr);
    }

    /// The reduction is also the barrier that keeps the next transpose out of memory still being read.
    Point checksum() {
        const int rows = size_.nz / ranks_, first = rank_ * rows;
        const Point* result = points(layout_.receive);
        Point mine = 0, all = 0;
        for (int j = 1; j <= 1024; ++j) {
            const int x = j % size_.nx, y = 3 * j % size_.ny, z = 5 * j % size_.nz;
            if (z < first || z >= first + rows) continue;
            mine += result[transform_->result_at(inverse_at(1), y, z - first, x)];
        }
        Booked booked(transform_->breakdown().barrier);
        MPI_Allreduce(&mine, &all, 2, MPI_DOUBLE, MPI_SUM, team_.node().world());
        return all / size_.points();
    }

    bool on_device() const { return on_device_; }
    Breakdown& breakdown() { return transform_->breakdown(); }

  private:
    std::unique_ptr<SlabTransform> make_transform(const SlabOptions& options, std::uint64_t slab) {
        if (team_.sharing() == funnel::Sharing::cpu) return make_host_slab_transform(team_, layout_, options);
        const bool can = can_transpose_on_device(team_) && options.algorithm == Algorithm::slabs;
        const bool required = options.exchange == Exchange::device;
        if (required && !can)
            throw std::invalid_argument(
                "--exchange device wants slabs, mode funneled or single, and all ranks on one node");
        if (can && options.exchange != Exchange::host) {
            auto transform = make_resident_slab_transform(team_, layout_, options, slab);
            on_device_ = transform != nullptr;
            if (on_device_) return transform;
            if (required)
                throw std::invalid_argument(
                    "--exchange device: a GPU's memory has no room for it, or it does not reach the others");
        }
        return make_device_slab_transform(team_, layout_, options);
    }

    Stage inverse_at(int time) const {
        const double decay = -4 * alpha * std::numbers::pi * std::numbers::pi * time;
        return {size_.ny, size_.nz, size_.nx, -1, true, decay, false};
    }

    Point* points(std::uint64_t offset) const {
        return reinterpret_cast<Point*>(team_.staging().local() + offset);
    }

    funnel::Team& team_;
    const FtClass& size_;
    int ranks_, rank_;
    SlabLayout layout_;
    bool on_device_ = false;  ///< whether the transpose stays inside the GPU's memory
    std::unique_ptr<SlabTransform> transform_;
};

}  // namespace

std::size_t ft_staging_bytes(const FtClass& size, int ranks, bool outbox) {
    return (outbox ? 3 : 2) * slab_bytes(size, ranks);
}

FtResult run_ft(funnel::Team& team, const FtClass& size, const SlabOptions& options, int iterations) {
    Ft ft(team, size, options);
    ft.set_initial_state();  // one untimed round: pages touched, plans made [NPB FT]
    ft.forward();
    ft.inverse(1, false);
    ft.checksum();

    FtResult result;
    result.exchanged_on_device = ft.on_device();
    MPI_Barrier(team.node().world());
    const Stopwatch total;
    ft.set_initial_state();
    ft.forward();
    ft.breakdown() = {};
    for (int iteration = 1; iteration <= iterations; ++iteration) {
        const Stopwatch watch;
        ft.inverse(iteration, iteration < iterations);
        result.checksums.push_back(ft.checksum());
        result.iteration_seconds.push_back(watch.seconds());
    }
    result.seconds = total.seconds();
    result.breakdown = ft.breakdown();
    return result;
}

}  // namespace nas
