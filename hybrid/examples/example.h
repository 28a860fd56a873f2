#pragma once

#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <string>

#include "examples/kernels.h"
#include "funnel/team.h"

namespace examples {

/// What every example is called with: [MODE [cuda|standin [RANKS_PER_NODE]]], else `cpu`.
inline funnel::TeamOptions options_of(int argc, char** argv, std::size_t staging_bytes) {
    funnel::TeamOptions options;
    options.sharing = funnel::sharing_named(argc > 1 ? argv[1] : "cpu");
    options.standin = argc > 2 && std::string(argv[2]) == "standin";
    options.ranks_per_node = argc > 3 ? std::atoi(argv[3]) : 0;
    options.staging_bytes = staging_bytes;
    options.host_kernels = add_host_kernels;
#ifdef EXAMPLES_WITH_CUDA
    options.cuda_kernels = add_cuda_kernels;
#endif
    return options;
}

/// MPI around `body`, which returns whether this rank's results are right. Status 0: those of all ranks are.
inline int run_example(int argc, char** argv, std::size_t staging_bytes,
                       const std::function<bool(funnel::Team&)>& body) {
    int provided = 0, all_right = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    try {
        // In mode cpu the "device memory" is the second half of the staging memory.
        funnel::TeamOptions options = options_of(argc, argv, 2 * staging_bytes);
        options.cpu_memory_offset = staging_bytes;
        funnel::Team team(MPI_COMM_WORLD, options);
        const int right = body(team) ? 1 : 0;
        MPI_Allreduce(&right, &all_right, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
        if (team.node().world_rank() == 0)
            std::printf("%s: %s\n", argv[0], all_right == 1 ? "right" : "WRONG");
    } catch (const std::exception& problem) {
        std::fprintf(stderr, "%s: %s\n", argv[0], problem.what());
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    MPI_Finalize();
    return all_right == 1 ? 0 : 1;
}

}  // namespace examples
