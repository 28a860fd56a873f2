// Jacobi's method on a plate cut into rows of ranks. Each sweep is one task: the neighbours' rows in, the
// kernel, this rank's border rows out, straight into a neighbour's memory where it is on this node.
#include <algorithm>
#include <vector>

#include "examples/example.h"

namespace {

constexpr std::int64_t rows = 16, width = 64;  // of each rank
constexpr int sweeps = 40, channel = 0;
constexpr std::uint64_t row_bytes = width * sizeof(double), field_bytes = (rows + 2) * row_bytes;

// Staging memory: two inboxes by turns, an outbox, the field. Side 0 is the rank above, side 1 the one below.
std::uint64_t inbox(int sweep, int side) {
    return static_cast<std::uint64_t>(2 * (sweep % 2) + side) * row_bytes;
}
constexpr std::uint64_t outbox = 4 * row_bytes, field = 6 * row_bytes;

/// Sweeps by one processor over a plate of `all_rows`, the row above it at 1, everything else at 0.
std::vector<double> swept_alone(std::int64_t all_rows) {
    std::vector<double> from(static_cast<std::size_t>((all_rows + 2) * width)), to;
    std::fill_n(from.begin(), width, 1.0);
    to = from;
    for (int sweep = 0; sweep < sweeps; ++sweep, from.swap(to)) {
        const examples::Sweep kernel{reinterpret_cast<std::uint64_t>(from.data()),
                                     reinterpret_cast<std::uint64_t>(to.data()), all_rows, width};
        for (std::int64_t item = 0; item < kernel.items(); ++item) kernel.run(item);
    }
    return from;
}

bool run(funnel::Team& team) {
    funnel::Staging& staging = team.staging();
    funnel::Lane& lane = team.lane();
    const funnel::Node& node = team.node();
    const int me = node.world_rank();
    const int neighbour[2] = {me - 1, me + 1 < node.world_size() ? me + 1 : -1};
    std::vector<int> neighbours;
    for (int rank : neighbour)
        if (rank >= 0) neighbours.push_back(rank);

    auto* host = reinterpret_cast<double*>(staging.local() + field);
    std::fill_n(host, (rows + 2) * width, 0.0);
    if (me == 0) std::fill_n(host, width, 1.0);
    const funnel::DeviceAddress plates[2] = {lane.allocate(field_bytes), lane.allocate(field_bytes)};
    const auto copy = [](funnel::HostPlace place, funnel::DeviceAddress device, std::uint64_t bytes) {
        return funnel::Copy{place, bytes, device, bytes, bytes, 1};
    };
    funnel::Task load;
    for (auto plate : plates) load.add_copy_in(copy({node.local_rank(), field}, plate, field_bytes));
    lane.submit(load);

    for (int sweep = 0; sweep < sweeps; ++sweep) {
        const funnel::DeviceAddress from = plates[sweep % 2], to = plates[1 - sweep % 2];
        funnel::Task task;
        for (int side = 0; side < 2; ++side)
            if (neighbour[side] >= 0 && sweep > 0)
                task.add_copy_in(copy({node.local_rank(), inbox(sweep, side)},
                                      from + (side == 0 ? 0 : (rows + 1) * row_bytes), row_bytes));
        task.add_kernel(examples::sweep, examples::Sweep{from, to, rows, width});
        for (int side = 0; side < 2; ++side) {
            if (neighbour[side] < 0) continue;
            const int local = node.local_rank_of(neighbour[side]);
            const funnel::HostPlace place =
                local >= 0 ? funnel::HostPlace{local, inbox(sweep + 1, 1 - side)}
                           : funnel::HostPlace{node.local_rank(), outbox + side * row_bytes};
            task.add_copy_out(copy(place, to + (side == 0 ? 1 : rows) * row_bytes, row_bytes));
        }
        lane.wait(lane.submit(task));
        for (int side = 0; side < 2; ++side)
            if (neighbour[side] >= 0 && staging.at(neighbour[side]) == nullptr)
                staging.put(neighbour[side], inbox(sweep + 1, 1 - side),
                            staging.local() + outbox + side * row_bytes, row_bytes);
        staging.signal(neighbours, channel, sweep + 1);
        for (int rank : neighbours) staging.wait_for(rank, channel, sweep + 1, "a border row");
    }

    funnel::Task store;
    store.add_copy_out(copy({node.local_rank(), field}, plates[sweeps % 2], field_bytes));
    lane.wait(lane.submit(store));
    for (auto plate : plates) lane.release(plate);
    const std::vector<double> alone = swept_alone(rows * node.world_size());
    return std::equal(host + width, host + (rows + 1) * width, alone.begin() + (me * rows + 1) * width);
}

}  // namespace

int main(int argc, char** argv) {
    return examples::run_example(argc, argv, 2 * field_bytes + field, run);
}
