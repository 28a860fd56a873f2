#include <mpi.h>

#include <algorithm>
#include <array>
#include <exception>
#include <vector>

#include "nas/kernels.h"
#include "nas/slab_transform.h"

namespace nas {
namespace {

constexpr std::uint64_t point_bytes = 16;
constexpr int ready_channel = 3;
enum Label : std::uint32_t { label_planes, label_lines };

/// Transposes inside the memory of the GPU that all ranks share, or from GPU to GPU of a node: a grid crosses
/// the host's link once each way, and the copies in of one transform overlap the copies out of the one before
/// it.
///
/// Planes are copied in and transformed as by the other device transform; then a kernel writes their rows
/// into the slabs of the ranks they belong to, transposed to contiguous lines. Two slabs a rank take turns,
/// so that the next transform's planes arrive while this one's lines leave.
class ResidentSlabTransform final : public SlabTransform {
  public:
    ResidentSlabTransform(funnel::Team& team, const SlabLayout& layout, const SlabOptions& options,
                          std::uint64_t slab_bytes)
        : staging_(team.staging()),
          lane_(team.lane()),
          layout_(layout),
          options_(options),
          streams_(std::clamp(hardware_queues / (2 * members_of_group(team)), 1, options.streams)),
          chunk_bytes_(task_bytes(options, slab_bytes)),
          forward_(make_device_slab_transform(team, layout, options)) {
        take_memory(team, slab_bytes);
    }

    ~ResidentSlabTransform() override {
        // An error under way reaches its rank elsewhere; giving memory back must not raise a second one.
        try {
            lane_.drain();
            for (const auto address : mapped_) lane_.unmap(address);
            // Memory that others still map may not be released; with an error under way nobody may come.
            if (!mapped_.empty() && std::uncaught_exceptions() == 0) MPI_Barrier(staging_.node().world());
            give_memory_back();
        } catch (const funnel::Error&) {
        }
    }

    /// Whether every rank got its memory; collective.
    bool has_memory() const { return has_memory_; }

    using SlabTransform::run;
    void run(const Stage& stage, const Stage* next) override {
        if (stage.regroup) {  // once a run, and its result has the other transform's order
            forward_->run(stage, nullptr);
            return;
        }
        if (planes_in_flight_.empty()) {
            lane_.clear_times();
            start_planes(stage);
        }
        double planes_wall = 0, lines_wall = 0;
        {
            Booked booked(planes_wall);
            for (const funnel::Ticket ticket : planes_in_flight_) lane_.wait(ticket);
            planes_in_flight_.clear();
        }
        {
            Booked booked(breakdown_.outstanding_communication);
            tell_and_wait();
        }
        {
            Booked booked(lines_wall);
            start_lines(stage);
            if (next != nullptr) start_planes(*next);
            for (const funnel::Ticket ticket : lines_in_flight_) lane_.wait(ticket);
            lines_in_flight_.clear();
        }
        const double wall = planes_wall + lines_wall;
        const double fft_2d = std::min(wall, lane_.time_under(label_planes).kernels);
        const double fft_1d = std::min(wall - fft_2d, lane_.time_under(label_lines).kernels);
        breakdown_.fft_2d += fft_2d;
        breakdown_.fft_1d += fft_1d;
        breakdown_.synchronous_local_copies += wall - fft_2d - fft_1d;
        lane_.clear_times();
    }

    std::size_t result_at(const Stage& stage, int line, int row, int x) const override {
        return (static_cast<std::size_t>(row) * stage.nx + x) * stage.planes + line;
    }

  private:
    /// Streams of one GPU beyond this number would wait for each other (see visible_gpus).
    static constexpr int hardware_queues = 32;

    static int members_of_group(const funnel::Team& team) {
        int members = 0;
        for (int rank = 0; rank < team.node().world_size(); ++rank) members += team.member_of(rank) >= 0;
        return members;
    }

    /// Whether no rank's device refused; collective.
    template <class Ask>
    bool all_granted(const Ask& ask) {
        int granted = 1;
        try {
            ask();
        } catch (const funnel::Error& error) {
            if (error.fault() != funnel::Fault::allocation_refused) throw;
            granted = 0;
        }
        MPI_Allreduce(MPI_IN_PLACE, &granted, 1, MPI_INT, MPI_MIN, staging_.node().world());
        return granted == 1;
    }

    void take_memory(const funnel::Team& team, std::uint64_t slab_bytes) {
        has_memory_ = all_granted([&] {
            for (auto& slab : slab_) slab = lane_.allocate(slab_bytes);
        });
        if (!has_memory_) return;
        const int world = staging_.node().world_size();
        for (int parity = 0; parity < 2; ++parity) {
            slabs_of_all_[parity].resize(world);
            MPI_Allgather(&slab_[parity], 1, MPI_UINT64_T, slabs_of_all_[parity].data(), 1, MPI_UINT64_T,
                          staging_.node().world());
        }
        if (members_of_group(team) < world) map_remote_groups(team);
    }

    /// Addresses of slabs on other GPUs are of no use here: takes those under which this rank's GPU reaches
    /// them.
    void map_remote_groups(const funnel::Team& team) {
        const int world = staging_.node().world_size();
        std::array<funnel::MemoryHandle, 2> mine{};
        has_memory_ = all_granted([&] { mine = {lane_.share(slab_[0]), lane_.share(slab_[1])}; });
        if (!has_memory_) return;
        std::vector<funnel::MemoryHandle> handles(2 * world);
        MPI_Allgather(mine.data(), sizeof mine, MPI_BYTE, handles.data(), sizeof mine, MPI_BYTE,
                      staging_.node().world());
        has_memory_ = all_granted([&] {
            for (int rank = 0; rank < world; ++rank)
                for (int parity = 0; parity < 2 && team.member_of(rank) < 0; ++parity) {
                    slabs_of_all_[parity][rank] = lane_.map(handles[2 * rank + parity]);
                    mapped_.push_back(slabs_of_all_[parity][rank]);
                }
        });
    }

    void give_memory_back() {
        for (const auto slab : slab_)
            if (slab != 0) lane_.release(slab);
        for (const auto buffer : buffers_) lane_.release(buffer);
    }

    void reserve(std::uint64_t bytes) {
        if (bytes <= buffer_bytes_) return;
        lane_.drain();
        for (const auto buffer : buffers_) lane_.release(buffer);
        buffers_.clear();
        for (int i = 0; i < streams_; ++i) buffers_.push_back(lane_.allocate(bytes));
        buffer_bytes_ = bytes;
    }

    funnel::Task task_on(int stream, std::uint32_t label) const {
        funnel::Task task;
        task.stream = static_cast<std::uint32_t>(stream);
        task.label = label;
        task.timed = options_.timed ? 1 : 0;
        return task;
    }

    void start_planes(const Stage& stage) {
        parity_ = 1 - parity_;
        const int world = staging_.node().world_size(), me = staging_.node().world_rank();
        const int planes = stage.planes / world;
        const std::uint64_t plane_bytes = static_cast<std::uint64_t>(stage.rows) * stage.nx * point_bytes;
        const int chunk = static_cast<int>(
            std::clamp<std::uint64_t>(chunk_bytes_ / plane_bytes, 1, static_cast<std::uint64_t>(planes)));
        reserve(chunk * plane_bytes);
        for (int first = 0, number = 0; first < planes; first += chunk, ++number) {
            const int stream = number % streams_, count = std::min(chunk, planes - first);
            const funnel::DeviceAddress buffer = buffers_[stream];
            const std::uint64_t bytes = count * plane_bytes;
            funnel::Task task = task_on(stream, label_planes);
            task.add_copy_in({{staging_.node().local_rank(), layout_.from + first * plane_bytes},
                              bytes,
                              buffer,
                              bytes,
                              bytes,
                              1});
            if (stage.evolve)
                task.add_kernel(ft_evolve, EvolveArguments{buffer, count, stage.rows, stage.nx,
                                                           me * planes + first, stage.planes, stage.decay});
            task.add_kernel(ft_planes, PlanesArguments{buffer, count, stage.rows, stage.nx, stage.sign});
            ScatterArguments scatter{
                buffer, count, stage.rows, stage.nx, me * planes + first, stage.planes, stage.rows / world,
                {}};
            std::copy(slabs_of_all_[parity_].begin(), slabs_of_all_[parity_].end(), scatter.to.begin());
            task.add_kernel(ft_scatter, scatter);
            planes_in_flight_.push_back(lane_.submit(task));
        }
    }

    void tell_and_wait() {
        const int world = staging_.node().world_size(), me = staging_.node().world_rank();
        ++exchanges_;
        for (int step = 1; step <= world; ++step)
            staging_.signal((me + step) % world, ready_channel, exchanges_);
        for (int source = 0; source < world; ++source)
            staging_.wait_for(source, ready_channel, exchanges_, "planes of the transpose");
    }

    void start_lines(const Stage& stage) {
        const std::uint64_t line_bytes = static_cast<std::uint64_t>(stage.planes) * point_bytes;
        const auto columns = static_cast<std::uint64_t>(stage.rows / staging_.node().world_size()) * stage.nx;
        const std::uint64_t chunk = std::clamp<std::uint64_t>(chunk_bytes_ / line_bytes, 1, columns);
        for (std::uint64_t first = 0, number = 0; first < columns; first += chunk, ++number) {
            const std::uint64_t count = std::min(chunk, columns - first), bytes = count * line_bytes;
            const funnel::DeviceAddress lines = slab_[parity_] + first * line_bytes;
            // Streams of their own: behind the next transform's planes they would wait for them.
            funnel::Task task = task_on(streams_ + static_cast<int>(number) % streams_, label_lines);
            task.add_kernel(ft_lines, LinesArguments{lines, 0, stage.planes, static_cast<std::int32_t>(count),
                                                     stage.sign, 1});
            task.add_copy_out({{staging_.node().local_rank(), layout_.receive + first * line_bytes},
                               bytes,
                               lines,
                               bytes,
                               bytes,
                               1});
            lines_in_flight_.push_back(lane_.submit(task));
        }
    }

    funnel::Staging& staging_;
    funnel::Lane& lane_;
    SlabLayout layout_;
    SlabOptions options_;
    int streams_;  ///< of each of the two phases
    std::uint64_t chunk_bytes_;
    std::unique_ptr<SlabTransform> forward_;
    bool has_memory_ = false;
    funnel::DeviceAddress slab_[2] = {0, 0};
    std::vector<funnel::DeviceAddress> slabs_of_all_[2];  ///< as this rank's GPU reaches them
    std::vector<funnel::DeviceAddress> mapped_;           ///< those on other GPUs
    std::vector<funnel::DeviceAddress> buffers_;
    std::uint64_t buffer_bytes_ = 0;
    int parity_ = 0;
    std::uint64_t exchanges_ = 0;
    std::vector<funnel::Ticket> planes_in_flight_, lines_in_flight_;
};

}  // namespace

bool can_transpose_on_device(const funnel::Team& team) {
    const int ranks = team.node().world_size();
    if (team.sharing() == funnel::Sharing::cpu || ranks > ScatterArguments::most_targets) return false;
    // Contexts of their own on one GPU stay as they are without a funnel: that is what it is compared with.
    const bool gpus_apart =
        team.sharing() == funnel::Sharing::funneled || team.sharing() == funnel::Sharing::single;
    for (int rank = 0; rank < ranks; ++rank)
        if (team.member_of(rank) < 0 && !(gpus_apart && team.node().local_rank_of(rank) >= 0)) return false;
    return true;
}

std::unique_ptr<SlabTransform> make_resident_slab_transform(funnel::Team& team, const SlabLayout& layout,
                                                            const SlabOptions& options,
                                                            std::uint64_t slab_bytes) {
    auto transform = std::make_unique<ResidentSlabTransform>(team, layout, options, slab_bytes);
    if (!transform->has_memory()) return nullptr;
    return transform;
}

}  // namespace nas
