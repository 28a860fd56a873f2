// A program of another project: two ranks without a GPU, each on its core.
#include "funnel/team.h"

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int size = 0;
    {
        funnel::TeamOptions options;
        options.staging_bytes = 4096;
        options.host_kernels = [](funnel::KernelTable&) {};
        funnel::Team team(MPI_COMM_WORLD, options);
        size = team.node().world_size();
    }
    MPI_Finalize();
    return size == 2 ? 0 : 1;
}
