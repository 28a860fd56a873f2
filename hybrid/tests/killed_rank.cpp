// Not a test by itself: the last rank kills itself in the middle of an all-to-all while the others wait for
// its planes. ended_by_killed_rank.sh checks how the job ends.
#include <csignal>

#include "funnel/planes.h"
#include "tests/team_for_tests.h"

int main(int argc, char** argv) {
    int provided = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    constexpr int planes = 4;
    constexpr std::uint64_t block = 4096;
    int world = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    funnel::Team team(MPI_COMM_WORLD, options_for_test(argc, argv, 2 * planes * block * world));
    funnel::PlaneExchange exchange(team.staging(), 0, 0, planes * block * world);
    exchange.begin(planes, block);
    for (int plane = 0; plane < planes; ++plane) {
        if (plane == 2 && team.node().world_rank() == world - 1) std::raise(SIGKILL);
        exchange.deliver(plane, 1);
    }
    exchange.wait();
    MPI_Finalize();
    return 0;
}
