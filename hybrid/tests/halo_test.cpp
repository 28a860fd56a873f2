// After an exchange every ghost cell holds the value of the point it mirrors, corners included, round after
// round.
#include "nas/halo.h"

#include <vector>

#include "tests/check.h"
#include "tests/team_for_tests.h"

namespace {

constexpr int n = 8;

/// A value that names the point of the whole periodic grid, and the round.
double value_at(int x, int y, int z, int round) {
    const auto wrap = [](int i) { return (i % n + n) % n; };
    return wrap(x) + n * (wrap(y) + n * wrap(z)) + 1000.0 * round;
}

}  // namespace

int main(int argc, char** argv) {
    int provided = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    {
        int ranks = 0, rank = 0;
        MPI_Comm_size(MPI_COMM_WORLD, &ranks);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        const nas::RankBox box = nas::RankBox::of(ranks, rank);
        const nas::Grid grid = nas::Grid::of(n / box.px, n / box.py, n / box.pz);
        const std::uint64_t mail = nas::Halo::mail_bytes(grid),
                            words = static_cast<std::uint64_t>(grid.doubles());
        const std::uint64_t field_bytes = (words * sizeof(double) + 511) / 256 * 256;
        funnel::TeamOptions options = options_for_test(argc, argv, 4 * mail + 6 * field_bytes);
        options.cpu_memory_offset = mail + field_bytes;
        funnel::Team team(MPI_COMM_WORLD, options);
        nas::Halo halo(team, box, grid, 0);
        const nas::Field fields[2] = {halo.make_field(grid), halo.make_field(grid)};

        const std::uint64_t bytes = words * sizeof(double);
        auto* host = reinterpret_cast<double*>(team.staging().local() + mail);
        const auto copy = [&](const nas::Field& field) {
            return funnel::Copy{{team.node().local_rank(), mail}, bytes, field.data, bytes, bytes, 1};
        };
        for (int round = 0; round < 8; ++round) {
            const nas::Field& field = fields[round % 2];
            std::fill_n(host, words, -1.0);
            for (int z = 1; z <= grid.nz; ++z)
                for (int y = 1; y <= grid.ny; ++y)
                    for (int x = 1; x <= grid.nx; ++x)
                        host[grid.at(x, y, z)] = value_at(box.x * grid.nx + x - 1, box.y * grid.ny + y - 1,
                                                          box.z * grid.nz + z - 1, round);
            funnel::Task load = halo.begin_task();
            load.add_copy_in(copy(field));
            halo.exchange(field, load);
            funnel::Task store = halo.begin_task();
            store.add_copy_out(copy(field));
            team.lane().wait(team.lane().submit(store));
            bool right = true;
            for (int z = 0; z <= grid.nz + 1; ++z)
                for (int y = 0; y <= grid.ny + 1; ++y)
                    for (int x = 0; x <= grid.nx + 1; ++x)
                        right = right && host[grid.at(x, y, z)] == value_at(box.x * grid.nx + x - 1,
                                                                            box.y * grid.ny + y - 1,
                                                                            box.z * grid.nz + z - 1, round);
            CHECK(right);
        }
        team.lane().drain();
        MPI_Barrier(MPI_COMM_WORLD);
        for (const nas::Field& field : fields) halo.release(field);
    }
    const int status = failures_of_all_ranks(check::failures);
    MPI_Finalize();
    return status;
}
