#include <algorithm>
#include <deque>

#include "nas/kernels.h"
#include "nas/slab_transform.h"

namespace nas {
namespace {

constexpr std::uint64_t point_bytes = 16;
enum Label : std::uint32_t { label_planes, label_lines };

class DeviceSlabTransform final : public SlabTransform {
  public:
    DeviceSlabTransform(funnel::Team& team, const SlabLayout& layout, const SlabOptions& options)
        : staging_(team.staging()),
          lane_(team.lane()),
          layout_(layout),
          options_(options),
          exchange_(team.staging(), 0, layout.receive, layout.outbox) {}

    ~DeviceSlabTransform() override {
        // An error under way reaches its rank elsewhere; giving memory back must not raise a second one.
        try {
            lane_.drain();
            for (auto buffer : buffers_) lane_.release(buffer);
        } catch (const funnel::Error&) {
        }
    }

    using SlabTransform::run;
    void run(const Stage& stage, const Stage*) override {
        lane_.clear_times();
        double planes_wall = 0, lines_wall = 0;
        {
            Booked booked(planes_wall);
            transform_and_send(stage);
        }
        {
            Booked booked(breakdown_.outstanding_communication);
            if (options_.algorithm == Algorithm::packed_slabs) exchange_.deliver_packed();
            exchange_.wait();
        }
        {
            Booked booked(lines_wall);
            transform_received(stage);
        }
        const double planes_kernels = std::min(planes_wall, lane_.time_under(label_planes).kernels);
        const double lines_kernels = std::min(lines_wall, lane_.time_under(label_lines).kernels);
        breakdown_.fft_2d += planes_kernels;
        breakdown_.fft_1d += lines_kernels;
        breakdown_.synchronous_local_copies += planes_wall - planes_kernels + lines_wall - lines_kernels;
    }

    std::size_t result_at(const Stage& stage, int line, int row, int x) const override {
        return result_by_lines(stage, staging_.node().world_size(), line, row, x);
    }

  private:
    struct Chunk {
        funnel::Ticket ticket;
        int first, count;
    };

    /// One buffer a stream, as large as the largest task so far, and one to transpose into.
    void reserve(std::uint64_t bytes) {
        if (bytes <= buffer_bytes_) return;
        lane_.drain();
        for (auto buffer : buffers_) lane_.release(buffer);
        buffers_.clear();
        const int buffers_per_stream = options_.transposed_lines ? 2 : 1;
        for (int i = 0; i < buffers_per_stream * options_.streams; ++i)
            buffers_.push_back(lane_.allocate(bytes));
        buffer_bytes_ = bytes;
    }
    funnel::DeviceAddress buffer(int stream) const { return buffers_[stream]; }
    funnel::DeviceAddress scratch(int stream) const {
        return options_.transposed_lines ? buffers_[options_.streams + stream] : 0;
    }

    funnel::Task start(int stream, std::uint32_t label) const {
        funnel::Task task;
        task.stream = static_cast<std::uint32_t>(stream);
        task.label = label;
        task.timed = options_.timed ? 1 : 0;
        return task;
    }

    /// Adds a copy out, in a further task on the same stream when this one is full.
    void add_copy_out(funnel::Task& task, const funnel::Copy& copy) {
        if (!task.room_for_copy()) {
            lane_.submit(task);
            task = start(static_cast<int>(task.stream), task.label);
        }
        task.add_copy_out(copy);
    }

    void transform_and_send(const Stage& stage) {
        const int world = staging_.node().world_size(), me = staging_.node().world_rank();
        const bool packed = options_.algorithm == Algorithm::packed_slabs;
        const int planes = stage.planes / world;
        const std::uint64_t plane_bytes = static_cast<std::uint64_t>(stage.rows) * stage.nx * point_bytes;
        const std::uint64_t block_bytes = plane_bytes / world;
        const int chunk = static_cast<int>(std::clamp<std::uint64_t>(
            task_bytes(options_, planes * plane_bytes) / plane_bytes, 1, static_cast<std::uint64_t>(planes)));
        reserve(chunk * plane_bytes);
        exchange_.begin(planes, block_bytes);

        std::deque<Chunk> in_flight;
        const auto deliver_finished = [&](bool wait) {
            while (!in_flight.empty()) {
                const Chunk& next = in_flight.front();
                if (wait)
                    lane_.wait(next.ticket);
                else if (!lane_.finished(next.ticket))
                    return;
                if (!packed) exchange_.deliver(next.first, next.count);
                in_flight.pop_front();
            }
        };
        for (int first = 0, number = 0; first < planes; first += chunk, ++number) {
            const int stream = number % options_.streams;
            const int count = std::min(chunk, planes - first);
            funnel::Task task = start(stream, label_planes);
            task.add_copy_in({{staging_.node().local_rank(), layout_.from + first * plane_bytes},
                              plane_bytes,
                              buffer(stream),
                              plane_bytes,
                              count * plane_bytes,
                              1});
            if (stage.evolve)
                task.add_kernel(ft_evolve, EvolveArguments{buffer(stream), count, stage.rows, stage.nx,
                                                           me * planes + first, stage.planes, stage.decay});
            task.add_kernel(ft_planes,
                            PlanesArguments{buffer(stream), count, stage.rows, stage.nx, stage.sign});
            for (int step = 1; step <= world; ++step) {
                const int target = (me + step) % world;
                const auto place =
                    packed ? exchange_.outbox_place_for(target, first) : exchange_.place_for(target, first);
                add_copy_out(task, {place, block_bytes, buffer(stream) + target * block_bytes, plane_bytes,
                                    block_bytes, static_cast<std::uint64_t>(count)});
            }
            in_flight.push_back({lane_.submit(task), first, count});
            deliver_finished(false);
        }
        deliver_finished(true);
    }

    void transform_received(const Stage& stage) {
        const int block_rows = stage.rows / staging_.node().world_size();
        const std::uint64_t row_bytes = static_cast<std::uint64_t>(stage.nx) * point_bytes;
        const auto lines = static_cast<std::uint64_t>(stage.planes);
        std::uint64_t most_rows = static_cast<std::uint64_t>(block_rows);
        if (stage.regroup) most_rows = std::min<std::uint64_t>(most_rows, funnel::Task::most_copies - 1);
        const int chunk = static_cast<int>(std::clamp<std::uint64_t>(
            task_bytes(options_, block_rows * lines * row_bytes) / (lines * row_bytes), 1, most_rows));
        reserve(chunk * lines * row_bytes);

        const int me = staging_.node().local_rank();
        for (int first = 0, number = 0; first < block_rows; first += chunk, ++number) {
            const int stream = number % options_.streams;
            const int rows = std::min(chunk, block_rows - first);
            const std::uint64_t width = rows * row_bytes;
            const funnel::Copy there{{me, layout_.receive + first * row_bytes},
                                     block_rows * row_bytes,
                                     buffer(stream),
                                     width,
                                     width,
                                     lines};
            funnel::Task task = start(stream, label_lines);
            task.add_copy_in(there);
            task.add_kernel(ft_lines, LinesArguments{buffer(stream), scratch(stream), stage.planes,
                                                     rows * stage.nx, stage.sign, 0});
            if (stage.regroup) {
                for (int row = 0; row < rows; ++row)
                    task.add_copy_out({{me, layout_.from + (first + row) * lines * row_bytes},
                                       row_bytes,
                                       buffer(stream) + row * row_bytes,
                                       width,
                                       row_bytes,
                                       lines});
            } else {
                task.add_copy_out(there);
            }
            lane_.submit(task);
        }
        lane_.drain();
    }

    funnel::Staging& staging_;
    funnel::Lane& lane_;
    SlabLayout layout_;
    SlabOptions options_;
    funnel::PlaneExchange exchange_;
    std::vector<funnel::DeviceAddress> buffers_;
    std::uint64_t buffer_bytes_ = 0;
};

}  // namespace

std::uint64_t task_bytes(const SlabOptions& options, std::uint64_t slab_bytes) {
    constexpr std::uint64_t mib = 1u << 20;
    if (options.chunk_bytes > 0) return options.chunk_bytes;
    return std::clamp<std::uint64_t>(slab_bytes / 8, mib, 32 * mib);
}

std::size_t result_by_lines(const Stage& stage, int ranks, int line, int row, int x) {
    return (static_cast<std::size_t>(line) * (stage.rows / ranks) + row) * stage.nx + x;
}

std::unique_ptr<SlabTransform> make_device_slab_transform(funnel::Team& team, const SlabLayout& layout,
                                                          const SlabOptions& options) {
    return std::make_unique<DeviceSlabTransform>(team, layout, options);
}

}  // namespace nas
