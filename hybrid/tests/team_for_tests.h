#pragma once

#include <cstring>
#include <string>

#include "funnel/team.h"
#include "nas/kernels.h"

/// A team as the command line of a test says: MODE [RANKS_PER_NODE [STANDIN_GPUS]].
inline funnel::TeamOptions options_for_test(int argc, char** argv, std::size_t staging_bytes) {
    funnel::TeamOptions options;
    options.sharing = funnel::sharing_named(argc > 1 ? argv[1] : "funneled");
    options.ranks_per_node = argc > 2 ? std::stoi(argv[2]) : 0;
    options.standin_gpus = argc > 3 ? std::stoi(argv[3]) : 1;
    options.standin = true;
    options.standin_memory_bytes = 64u << 20;
    options.staging_bytes = staging_bytes;
    options.host_kernels = nas::add_host_kernels;
    options.cuda_kernels = nas::add_cuda_kernels;
    return options;
}

/// Adds up what failed on all ranks, so that every rank returns the same status.
inline int failures_of_all_ranks(int mine) {
    int all = 0;
    MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    return all > 0 ? 1 : 0;
}
