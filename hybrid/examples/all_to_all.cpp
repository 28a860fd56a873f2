// The transpose of a matrix cut into rows of ranks: kernels make and transpose it, strided puts carry each
// rank's columns. (`funnel::PlaneExchange` does this for FT, a few planes at a time.)
#include <numeric>
#include <vector>

#include "examples/example.h"

namespace {

constexpr int channel = 0;
constexpr std::uint64_t word = sizeof(double);
constexpr std::int64_t block = 24;  // rows of each rank

bool run(funnel::Team& team) {
    funnel::Staging& staging = team.staging();
    funnel::Lane& lane = team.lane();
    const int me = team.node().world_rank(), world = team.node().world_size();
    const std::int64_t n = block * world;
    const std::uint64_t bytes = static_cast<std::uint64_t>(block * n) * word, received = bytes;
    const auto copy = [&](std::uint64_t offset, funnel::DeviceAddress device) {
        return funnel::Copy{{team.node().local_rank(), offset}, bytes, device, bytes, bytes, 1};
    };
    const funnel::DeviceAddress matrix = lane.allocate(bytes), transposed = lane.allocate(bytes);

    funnel::Task make;
    make.add_kernel(examples::fill, examples::Fill{matrix, me * block, block, n});
    make.add_copy_out(copy(0, matrix));
    lane.wait(lane.submit(make));

    // Columns [target · block, …) of this rank's rows become rows [me · block, …) of `block` in the target.
    for (int step = 1; step <= world; ++step) {
        const int target = (me + step) % world;
        staging.put(target, {received + me * block * block * word, block * word, block * word, block},
                    staging.local() + target * block * word, n * word);
    }
    std::vector<int> everybody(static_cast<std::size_t>(world));
    std::iota(everybody.begin(), everybody.end(), 0);
    staging.signal(everybody, channel, 1);
    for (int source : everybody) staging.wait_for(source, channel, 1, "a block");

    funnel::Task receive;
    receive.add_copy_in(copy(received, matrix));
    receive.add_kernel(examples::transpose, examples::Transpose{matrix, transposed, n, block});
    receive.add_copy_out(copy(0, transposed));
    lane.wait(lane.submit(receive));
    lane.release(matrix);
    lane.release(transposed);

    bool right = true;
    const auto* result = reinterpret_cast<const double*>(staging.local());
    for (std::int64_t row = 0; row < block; ++row)
        for (std::int64_t column = 0; column < n; ++column)
            right = right && result[row * n + column] == static_cast<double>(column * n + me * block + row);
    return right;
}

}  // namespace

int main(int argc, char** argv) {
    constexpr std::size_t most_ranks = 16;
    return examples::run_example(argc, argv, 2 * block * block * most_ranks * word, run);
}
