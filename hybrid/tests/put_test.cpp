// One-sided puts, gets, additions and signals, within a node and between (pretended) nodes; what leaves a
// rank's memory is refused before anything is written.
#include <algorithm>
#include <cstring>
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

/// Every rank writes three rows of its number into everybody's memory, then reads its right neighbour's back.
void rows_are_put_and_got(funnel::Staging& staging) {
    const int me = staging.node().world_rank(), world = staging.node().world_size();
    constexpr std::uint64_t rows = 3, width = 5, pitch = 64;
    std::memset(staging.local(), 0xff, bytes);
    MPI_Barrier(staging.node().world());
    std::vector<std::byte> source(rows * 2 * width, std::byte{0xee});  // every other run is not sent
    for (std::uint64_t row = 0; row < rows; ++row)
        std::fill_n(source.begin() + static_cast<std::ptrdiff_t>(2 * row * width), width,
                    static_cast<std::byte>(me * 16 + static_cast<int>(row)));
    std::vector<int> everybody;
    for (int rank = 0; rank < world; ++rank) everybody.push_back(rank);
    for (int target : everybody)
        staging.put(target, {8 * static_cast<std::uint64_t>(me), pitch, width, rows}, source.data(),
                    2 * width);
    staging.signal(everybody, 3, 1);
    for (int rank : everybody) staging.wait_for(rank, 3, 1, "rows");

    const auto expected = [&](std::uint64_t row, int rank, std::uint64_t at) {
        return at < width ? static_cast<std::byte>(rank * 16 + static_cast<int>(row)) : std::byte{0xff};
    };
    const auto matches = [&](const std::byte* memory, std::uint64_t memory_pitch, std::uint64_t count) {
        bool right = true;
        for (std::uint64_t row = 0; row < rows; ++row)
            for (int rank : everybody)
                for (std::uint64_t at = 0; at < count; ++at)
                    right = right && memory[row * memory_pitch + 8 * static_cast<std::uint64_t>(rank) + at] ==
                                         expected(row, rank, at);
        return right;
    };
    CHECK(matches(staging.local(), pitch, 8));
    MPI_Barrier(staging.node().world());  // everybody's rows are there
    const std::uint64_t all = 8 * static_cast<std::uint64_t>(world);
    std::vector<std::byte> got(rows * all);
    staging.get((me + 1) % world, {0, pitch, all, rows}, got.data(), all);
    staging.complete();
    CHECK(matches(got.data(), all, 8));
    std::vector<std::byte> whole(rows * pitch);
    staging.get((me + 1) % world, 0, whole.data(), whole.size());
    staging.complete();
    CHECK(matches(whole.data(), pitch, 8));

    using funnel::Fault;
    CHECK_FAULT(Fault::out_of_range, staging.put(0, {bytes - 100, 64, 5, 3}, source.data(), 5));
    CHECK_FAULT(Fault::out_of_range, staging.get(world, {0, 64, 5, 3}, got.data(), 5));
    CHECK_FAULT(Fault::out_of_range,
                staging.get(0, {0, ~std::uint64_t{0} / 2, 5, 3}, got.data(), 5));  // rows · pitch overflows
    CHECK_FAULT(Fault::wrong_use, staging.put(0, {0, 4, 5, 3}, source.data(), 5));
    MPI_Barrier(staging.node().world());
}

/// Everybody adds to one number of every rank at once: each value is handed out once.
void additions_are_atomic(funnel::Staging& staging) {
    const int world = staging.node().world_size();
    constexpr int additions = 200;
    std::memset(staging.local(), 0, 64);
    MPI_Barrier(staging.node().world());
    for (int target = 0; target < world; ++target) {
        std::vector<int> mine(static_cast<std::size_t>(world) * additions), all(mine.size());
        for (int i = 0; i < additions; ++i) {
            const std::uint64_t before = staging.fetch_add(target, 8, 3);
            CHECK(before % 3 == 0 && before / 3 < mine.size());
            if (before / 3 < mine.size()) ++mine[before / 3];
        }
        MPI_Allreduce(mine.data(), all.data(), static_cast<int>(mine.size()), MPI_INT, MPI_SUM,
                      staging.node().world());
        CHECK(std::all_of(all.begin(), all.end(), [](int times) { return times == 1; }));
    }
    CHECK_FAULT(funnel::Fault::wrong_use, staging.fetch_add(0, 12, 1));
    CHECK_FAULT(funnel::Fault::out_of_range, staging.fetch_add(0, bytes, 1));
}

/// What names a channel or a rank that is not there would write into another rank's memory.
void signals_are_checked(funnel::Staging& staging) {
    using funnel::Fault;
    const int world = staging.node().world_size();
    CHECK(staging.channels() == 6);
    staging.signal(0, 5, 1);
    for (int channel : {-1, 6, 1000}) {
        CHECK_FAULT(Fault::out_of_range, staging.signal(0, channel, 1));
        CHECK_FAULT(Fault::out_of_range, staging.signalled(0, channel));
    }
    CHECK_FAULT(Fault::out_of_range, staging.signal(world, 0, 1));
    CHECK_FAULT(Fault::out_of_range, staging.signal(-1, 0, 1));
    CHECK_FAULT(Fault::out_of_range, staging.signalled(world, 0));
    if (staging.node().world_rank() == 0)
        for (int rank = 0; rank < world; ++rank) staging.wait_for(rank, 5, 1, "the last channel");
}

void teams_want_kernels_and_channels(funnel::TeamOptions options) {
    using funnel::Fault;
    options.channels = 0;
    CHECK_FAULT(Fault::wrong_use, funnel::Team(MPI_COMM_WORLD, options));
    options.channels = 1;
    options.host_kernels = {};
    CHECK_FAULT(Fault::wrong_use, funnel::Team(MPI_COMM_WORLD, options));
    options.sharing = funnel::Sharing::funneled;
    CHECK_FAULT(Fault::wrong_use, funnel::Team(MPI_COMM_WORLD, options));
    options.standin = false;
    options.cuda_kernels = {};
    CHECK_FAULT(Fault::wrong_use, funnel::Team(MPI_COMM_WORLD, options));
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
        funnel::TeamOptions options = options_for_test(argc, argv, bytes);
        options.channels = 6;
        funnel::Team team(MPI_COMM_WORLD, options);
        puts_arrive_before_their_signal(team.staging());
        puts_out_of_range_are_refused(team.staging());
        planes_are_transposed(team.staging(), false);
        planes_are_transposed(team.staging(), true);
        rows_are_put_and_got(team.staging());
        additions_are_atomic(team.staging());
        signals_are_checked(team.staging());
        teams_want_kernels_and_channels(options);
    }
    const int status = failures_of_all_ranks(check::failures);
    MPI_Finalize();
    return status;
}
