// What one rank's lane shares, another's maps and writes, on another stand-in or on its own context's; and
// only what was mapped is unmapped.
#include <vector>

#include "tests/check.h"
#include "tests/team_for_tests.h"

using funnel::Fault;

int main(int argc, char** argv) {
    int provided = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    {
        funnel::Team team(MPI_COMM_WORLD, options_for_test(argc, argv, 1 << 16));
        funnel::Lane& lane = team.lane();
        const int me = team.node().world_rank(), world = team.node().world_size();
        constexpr std::uint64_t points = 1000, bytes = points * sizeof(double);
        const funnel::DeviceAddress mine = lane.allocate(bytes);
        const funnel::MemoryHandle handle = lane.share(mine);
        std::vector<funnel::MemoryHandle> all(world);
        MPI_Allgather(&handle, sizeof handle, MPI_BYTE, all.data(), sizeof handle, MPI_BYTE, MPI_COMM_WORLD);

        // Each writes to the one after it, from its own staging memory.
        const int target = (me + 1) % world, source = (me + world - 1) % world;
        const bool near = team.member_of(target) >= 0;
        std::vector<funnel::DeviceAddress> addresses(world);
        MPI_Allgather(&mine, 1, MPI_UINT64_T, addresses.data(), 1, MPI_UINT64_T, MPI_COMM_WORLD);
        const funnel::DeviceAddress there = near ? addresses[target] : lane.map(all[target]);
        funnel::Task write;
        write.add_kernel(nas::mg_set_points, nas::SetPointsArguments{there, 1, {points - 1}, {1.0 + me}});
        lane.wait(lane.submit(write));
        MPI_Barrier(MPI_COMM_WORLD);
        funnel::Task read;
        read.add_copy_out({{team.node().local_rank(), 0}, bytes, mine, bytes, bytes, 1});
        lane.wait(lane.submit(read));
        CHECK(reinterpret_cast<const double*>(team.staging().local())[points - 1] == 1.0 + source);

        CHECK_FAULT(Fault::wrong_use, lane.unmap(mine));
        CHECK_FAULT(Fault::wrong_use, lane.share(mine + 8));
        if (!near) {
            lane.unmap(there);
            CHECK_FAULT(Fault::wrong_use, lane.unmap(there));
        }
        MPI_Barrier(MPI_COMM_WORLD);
        lane.release(mine);
    }
    const int status = failures_of_all_ranks(check::failures);
    MPI_Finalize();
    return status;
}
