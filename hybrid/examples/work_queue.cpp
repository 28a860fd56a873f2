// A queue of work: rank 0's memory holds the number of the next item, each rank takes items by an atomic
// addition until none is left, and rank 0 gets everybody's sum at the end. The sum is π.
#include <cmath>
#include <numbers>
#include <vector>

#include "examples/example.h"

namespace {

constexpr int channel = 0, items = 200;
constexpr std::int64_t lanes = 64;
constexpr std::uint64_t next_item = 0, my_result = 64, sums = 128;

struct Result {
    double sum = 0;
    std::uint64_t taken = 0;
};

bool run(funnel::Team& team) {
    funnel::Staging& staging = team.staging();
    funnel::Lane& lane = team.lane();
    const funnel::Node& node = team.node();
    constexpr std::uint64_t bytes = lanes * sizeof(double);
    const funnel::DeviceAddress device = lane.allocate(bytes);
    const auto* host = reinterpret_cast<const double*>(staging.local() + sums);

    if (node.world_rank() == 0) *reinterpret_cast<std::uint64_t*>(staging.local() + next_item) = 0;
    MPI_Barrier(node.world());
    Result mine;
    for (;; ++mine.taken) {
        const std::uint64_t item = staging.fetch_add(0, next_item, 1);
        if (item >= items) break;
        const double width = 1.0 / items, first = static_cast<double>(item) * width;
        funnel::Task task;
        task.add_kernel(examples::integrate, examples::Integrate{device, lanes, first, width / lanes});
        task.add_copy_out({{node.local_rank(), sums}, bytes, device, bytes, bytes, 1});
        lane.wait(lane.submit(task));
        for (int part = 0; part < lanes; ++part) mine.sum += host[part];
    }
    lane.release(device);
    *reinterpret_cast<Result*>(staging.local() + my_result) = mine;
    staging.signal(0, channel, 1);
    if (node.world_rank() != 0) return true;

    std::vector<Result> results(static_cast<std::size_t>(node.world_size()));
    for (int rank = 0; rank < node.world_size(); ++rank) {
        staging.wait_for(rank, channel, 1, "a result");
        staging.get(rank, my_result, &results[rank], sizeof(Result));
    }
    staging.complete();
    Result all;
    for (const Result& result : results) {
        all.sum += result.sum;
        all.taken += result.taken;
    }
    return all.taken == items && std::abs(all.sum - std::numbers::pi) < 1e-9;
}

}  // namespace

int main(int argc, char** argv) {
    return examples::run_example(argc, argv, sums + lanes * sizeof(double), run);
}
