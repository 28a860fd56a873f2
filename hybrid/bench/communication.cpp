// Communication between hosts and devices by message size [U11 §3.2, figure 3]: latency of one, bandwidth of
// a flood.
//
// Rank 0 sends and rank 1 receives, whatever the mode; with more ranks the others look on. Paths:
//   host_to_device, device_to_host   a task's copy from or to this rank's staging memory
//   host_to_host                     a one-sided put and its signal
//   device_to_device                 out of one rank's device memory, through host memory, into the other's.
//   `shared`
//                                    lands in the receiver's staging memory at once; `separate` keeps a
//                                    buffer for the GPU and one for communication and copies between them, as
//                                    [U11 §3.2] had to.
//   tiny_tasks                       all ranks at once: 64-byte copies and one-point kernels, seconds an
//   operation
#include <algorithm>
#include <functional>
#include <vector>

#include "nas/breakdown.h"
#include "nas/kernels.h"
#include "nas/launch.h"

namespace {

using nas::Json;

constexpr int channel = 3;
constexpr std::size_t most_bytes = 16u << 20;

class Bench {
  public:
    explicit Bench(funnel::Team& team)
        : staging_(team.staging()), lane_(team.lane()), node_(team.node()), me_(node_.world_rank()) {
        device_ = lane_.allocate(most_bytes);
    }
    ~Bench() { lane_.release(device_); }

    std::vector<Json> by_size() {
        std::vector<Json> rows;
        for (std::size_t bytes = 8; bytes <= most_bytes; bytes *= 8) {
            const int count = bytes >= (1u << 20) ? 16 : 64;
            rows.push_back(row("host_to_device", bytes, count, [&](int n) { copies(n, bytes, true); }));
            rows.push_back(row("device_to_host", bytes, count, [&](int n) { copies(n, bytes, false); }));
            if (node_.world_size() < 2) continue;
            rows.push_back(row("host_to_host", bytes, count, [&](int n) { puts(n, bytes); }));
            rows.push_back(
                row("device_to_device_shared", bytes, count, [&](int n) { relay(n, bytes, false); }));
            rows.push_back(
                row("device_to_device_separate", bytes, count, [&](int n) { relay(n, bytes, true); }));
        }
        return rows;
    }

    Json tiny_tasks() {
        constexpr int count = 400;
        Json json;
        json["copy_64_bytes_seconds"] =
            seconds_per_operation(count, [&](int n) { copies(n, 64, true, true); });
        json["kernel_seconds"] = seconds_per_operation(count, [&](int n) { kernels(n); });
        return json;
    }

  private:
    /// Seconds that one of `count` operations takes this rank, all ranks working; the median of several
    /// rounds.
    double seconds_per_operation(int count, const std::function<void(int)>& work) {
        std::vector<double> seconds;
        for (int round = -1; round < 5; ++round) {
            MPI_Barrier(node_.world());
            const nas::Stopwatch watch;
            work(count);
            MPI_Barrier(node_.world());
            if (round >= 0) seconds.push_back(watch.seconds() / count);
        }
        std::sort(seconds.begin(), seconds.end());
        return seconds[seconds.size() / 2];
    }

    Json row(const std::string& path, std::size_t bytes, int count, const std::function<void(int)>& work) {
        Json json;
        const double alone = seconds_per_operation(1, work), flooded = seconds_per_operation(count, work);
        json["path"] = path;
        json["bytes"] = bytes;
        json["seconds"] = alone;
        json["flooded_bytes_per_second"] = static_cast<double>(bytes) / flooded;
        return json;
    }

    funnel::Copy copy(int world_rank, std::uint64_t offset, std::size_t bytes) const {
        return {{node_.local_rank_of(world_rank), offset}, bytes, device_, bytes, bytes, 1};
    }
    /// A flood goes round a few streams, as the benchmarks' tasks do.
    funnel::Task on_stream(int number) const {
        funnel::Task task;
        task.stream = static_cast<std::uint32_t>(number % 3);
        return task;
    }

    void copies(int count, std::size_t bytes, bool in, bool every_rank = false) {
        if (me_ != 0 && !every_rank) return;
        for (int i = 0; i < count; ++i) {
            funnel::Task task = on_stream(i);
            in ? task.add_copy_in(copy(me_, 0, bytes)) : task.add_copy_out(copy(me_, 0, bytes));
            lane_.submit(task);
        }
        lane_.drain();
    }

    void kernels(int count) {
        for (int i = 0; i < count; ++i) {
            funnel::Task task = on_stream(i);
            task.add_kernel(nas::mg_set_points, nas::SetPointsArguments{device_, 1, {0}, {1.0}});
            lane_.submit(task);
        }
        lane_.drain();
    }

    void puts(int count, std::size_t bytes) {
        for (int i = 0; i < count; ++i) {
            ++sent_;
            if (me_ == 0) {
                staging_.put(1, most_bytes, staging_.local(), bytes);
                staging_.signal(1, channel, sent_);
            }
        }
        if (me_ == 1) staging_.wait_for(0, channel, sent_, "the flood's last put");
    }

    /// The receiver's copy of message i overlaps the sender's work on the next; two places take turns, and
    /// the receiver signals back when a place is free again.
    void relay(int count, std::size_t bytes, bool separate) {
        for (int i = 0; i < count; ++i) {
            ++sent_;
            const std::uint64_t place = (1 + sent_ % 2) * most_bytes;
            const bool direct = !separate && staging_.at(1) != nullptr;
            if (me_ == 0) {
                const int places = separate ? 1 : 2;
                if (i >= places) staging_.wait_for(1, channel, sent_ - places, "a free place");
                funnel::Task task;
                task.add_copy_out(direct ? copy(1, place, bytes) : copy(0, place, bytes));
                lane_.wait(lane_.submit(task));
                if (!direct)
                    staging_.put(1, separate ? 3 * most_bytes : place, staging_.local() + place, bytes);
                staging_.signal(1, channel, sent_);
            } else if (me_ == 1) {
                staging_.wait_for(0, channel, sent_, "a message");
                // With separate buffers one place receives, and the GPU's buffer is filled from it.
                if (separate) staging_.put(1, place, staging_.local() + 3 * most_bytes, bytes);
                funnel::Task task;
                task.add_copy_in(copy(1, place, bytes));
                lane_.wait(lane_.submit(task));
                staging_.signal(0, channel, sent_);
            }
        }
        if (me_ == 0) staging_.wait_for(1, channel, sent_, "the last message's arrival");
    }

    funnel::Staging& staging_;
    funnel::Lane& lane_;
    const funnel::Node& node_;
    int me_;
    funnel::DeviceAddress device_;
    std::uint64_t sent_ = 0;
};

int run(const nas::CommonOptions& common) {
    funnel::TeamOptions team_options = common.team();
    team_options.staging_bytes = 5 * most_bytes;
    team_options.cpu_memory_offset = 4 * most_bytes;
    funnel::Team team(MPI_COMM_WORLD, team_options);
    std::fill_n(team.staging().local(), 4 * most_bytes, std::byte{1});
    Bench bench(team);
    Json json = nas::result_header("busfare.hybrid.communication/1", team);
    json["by_size"] = bench.by_size();
    json["tiny_tasks"] = bench.tiny_tasks();
    if (team.node().world_rank() == 0) common.write(json);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    return nas::run_program(argc, argv, [](CLI::App&) {}, run);
}
