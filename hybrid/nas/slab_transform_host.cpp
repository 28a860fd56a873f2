#include <algorithm>
#include <cstring>

#include "nas/ft_host.h"
#include "nas/slab_transform.h"

namespace nas {
namespace {

using Point = std::complex<double>;

class HostSlabTransform final : public SlabTransform {
  public:
    HostSlabTransform(funnel::Team& team, const SlabLayout& layout, const SlabOptions& options)
        : staging_(team.staging()),
          layout_(layout),
          options_(options),
          packed_(options.algorithm == Algorithm::packed_slabs),
          exchange_(team.staging(), 0, layout.receive, layout.outbox) {}

    using SlabTransform::run;
    void run(const Stage& stage, const Stage*) override {
        transform_and_send(stage);
        {
            Booked booked(breakdown_.outstanding_communication);
            exchange_.wait();
        }
        Booked booked(breakdown_.fft_1d);
        transform_received(stage);
    }

    std::size_t result_at(const Stage& stage, int line, int row, int x) const override {
        return result_by_lines(stage, staging_.node().world_size(), line, row, x);
    }

  private:
    Point* points(std::uint64_t offset) const { return reinterpret_cast<Point*>(staging_.local() + offset); }

    funnel::HostPlace place_for(int target, int plane) const {
        return packed_ ? exchange_.outbox_place_for(target, plane) : exchange_.place_for(target, plane);
    }

    void transform_and_send(const Stage& stage) {
        const int world = staging_.node().world_size(), me = staging_.node().world_rank();
        const int planes = stage.planes / world, block_rows = stage.rows / world;
        const std::size_t plane_points = static_cast<std::size_t>(stage.rows) * stage.nx;
        const std::size_t block_bytes = static_cast<std::size_t>(block_rows) * stage.nx * sizeof(Point);
        const std::uint64_t plane_bytes = plane_points * sizeof(Point);
        // A core that computes hides little of a message, and each costs both ranks a visit to MPI: few of
        // them.
        constexpr int messages = 4;
        const auto wanted = static_cast<int>(options_.chunk_bytes / plane_bytes);
        const int chunk = std::max(1, options_.chunk_bytes > 0 ? wanted : planes / messages);
        int delivered = 0;
        plane_.resize(plane_points);
        exchange_.begin(planes, block_bytes);
        for (int plane = 0; plane < planes; ++plane) {
            // A rank alone is its own only target and takes the plane whole.
            auto* result = plane_.data();
            if (world == 1)
                result = reinterpret_cast<Point*>(staging_.resolve(place_for(me, plane), block_bytes));
            {
                Booked booked(breakdown_.fft_2d);
                const Point* source = points(layout_.from) + plane * plane_points;
                if (stage.evolve) {
                    evolve_planes(
                        source, result,
                        {0, 1, stage.rows, stage.nx, me * planes + plane, stage.planes, stage.decay});
                    source = result;
                }
                transform_planes(source, result, 1, stage.rows, stage.nx, stage.sign);
            }
            Booked booked(packed_ ? breakdown_.synchronous_local_copies
                                  : breakdown_.outstanding_communication);
            for (int step = 1; step <= world && world > 1; ++step) {
                const int target = (me + step) % world;
                std::memcpy(staging_.resolve(place_for(target, plane), block_bytes),
                            result + static_cast<std::size_t>(target) * block_rows * stage.nx, block_bytes);
            }
            if (const int ready = plane + 1 - delivered;
                !packed_ && (ready == chunk || plane + 1 == planes)) {
                exchange_.deliver(delivered, ready);
                delivered = plane + 1;
            } else {
                staging_.progress();
            }
        }
        Booked booked(breakdown_.outstanding_communication);
        if (packed_) exchange_.deliver_packed();
    }

    void transform_received(const Stage& stage) {
        const int block_rows = stage.rows / staging_.node().world_size();
        const std::size_t columns = static_cast<std::size_t>(block_rows) * stage.nx;
        Point* received = points(layout_.receive);
        if (!stage.regroup) {
            transform_lines(received, columns, received, columns, stage.planes, columns, stage.sign);
            return;
        }
        const auto nx = static_cast<std::size_t>(stage.nx);
        for (int row = 0; row < block_rows; ++row)
            transform_lines(received + row * nx, columns, points(layout_.from) + row * stage.planes * nx, nx,
                            stage.planes, nx, stage.sign);
    }

    funnel::Staging& staging_;
    SlabLayout layout_;
    SlabOptions options_;
    bool packed_;
    funnel::PlaneExchange exchange_;
    std::vector<Point> plane_;
};

}  // namespace

std::unique_ptr<SlabTransform> make_host_slab_transform(funnel::Team& team, const SlabLayout& layout,
                                                        const SlabOptions& options) {
    return std::make_unique<HostSlabTransform>(team, layout, options);
}

}  // namespace nas
