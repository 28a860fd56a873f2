// One-sided puts and signals, within a node and between (pretended) nodes; what leaves a rank's memory is
// refused before anything is written.
#include <numeric>
#include <vector>

#include "funnel/planes.h"
#include "tests/check.h"
#include "tests/team_for_tests.h"

namespace {

constexpr std::size_t bytes = 64u << 10;

void puts_arrive_before_their_signal(funnel::Staging& staging) {
    const int me = staging.node().world_rank(), world = staging.node().world_size();
    const std::size_t block = bytes / 2 / static_cast<std::size_t>(world);
    for (std::uint64_t round = 1; round <= 50; ++round) {
        const std::vector<std::byte> data(block, static_cast<std::byte>(me * 16 + round % 16));
        for (int target = 0; target < world; ++target) {
            staging.put(target, me * block, data.data(), block);
            staging.signal(target, 0, round);
        }
        bool right = true;
        for (int source = 0; source < world; ++source) {
            staging.wait_for(source, 0, round, "a put");
            for (std::size_t i = 0; i < block; ++i)
                right = right && staging.local()[source * block + i] ==
                                     static_cast<std::byte>(source * 16 + round % 16);
        }
        CHECK(right);
        MPI_Barrier(staging.node().world());
    }
}

void puts_out_of_range_are_refused(funnel::Staging& staging) {
    using funnel::Fault;
    const std::vector<std::byte> data(64);
    for (int target = 0; target < staging.node().world_size(); ++target) {
        CHECK_FAULT(Fault::out_of_range, staging.put(target, bytes - 63, data.data(), 64));
        CHECK_FAULT(Fault::out_of_range, staging.put(target, bytes + 1, data.data(), 0));
        CHECK_FAULT(Fault::out_of_range, staging.put(target, ~std::uint64_t{0} - 8, data.data(), 64));
    }
    CHECK_FAULT(Fault::out_of_range, staging.put(staging.node().world_size(), 0, data.data(), 1));
    CHECK_FAULT(Fault::out_of_range, staging.put(-1, 0, data.data(), 1));
    if (staging.node().world_rank() == 0) staging.put(0, bytes - 64, data.data(), 64);
}

/// Block q of plane p of rank r carries (r, p, q); after the exchange rank q holds them all in plane order.
void planes_are_transposed(funnel::Staging& staging, bool packed) {
    const int me = staging.node().world_rank(), world = staging.node().world_size();
    constexpr int planes = 5;
    constexpr std::uint64_t block = sizeof(std::uint64_t) * 3;
    funnel::PlaneExchange exchange(staging, packed ? 1 : 2, 0, bytes / 2);
    for (std::uint64_t round = 1; round <= 3; ++round) {
        exchange.begin(planes, block);
        for (int plane = 0; plane < planes; ++plane) {
            for (int target = 0; target < world; ++target) {
                const auto place =
                    packed ? exchange.outbox_place_for(target, plane) : exchange.place_for(target, plane);
                auto* words = reinterpret_cast<std::uint64_t*>(staging.resolve(place, block));
                words[0] = round * 100 + me;
                words[1] = plane;
                words[2] = target;
            }
            if (!packed) exchange.deliver(plane, 1);
        }
        if (packed) exchange.deliver_packed();
        exchange.wait();
        const auto* words = reinterpret_cast<const std::uint64_t*>(staging.local());
        bool right = true;
        for (int source = 0; source < world; ++source)
            for (int plane = 0; plane < planes; ++plane, words += 3)
                right = right && words[0] == round * 100 + source &&
                        words[1] == static_cast<std::uint64_t>(plane) &&
                        words[2] == static_cast<std::uint64_t>(me);
        CHECK(right);
        MPI_Barrier(staging.node().world());
    }
}

}  // namespace

int main(int argc, char** argv) {
    int provided = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    {
        funnel::Team team(MPI_COMM_WORLD, options_for_test(argc, argv, bytes));
        puts_arrive_before_their_signal(team.staging());
        puts_out_of_range_are_refused(team.staging());
        planes_are_transposed(team.staging(), false);
        planes_are_transposed(team.staging(), true);
    }
    const int status = failures_of_all_ranks(check::failures);
    MPI_Finalize();
    return status;
}
