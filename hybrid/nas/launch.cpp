#include "nas/launch.h"

#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>

#include "nas/kernels.h"

namespace nas {
namespace {
constexpr int wrong_use_status = 2;

/// Funneled where every node shows a GPU, for that is what was measured to be fastest; else the CPUs.
funnel::Sharing fastest(bool standin) {
    int gpu = standin || !funnel::visible_gpus().empty() ? 1 : 0;
    MPI_Allreduce(MPI_IN_PLACE, &gpu, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    return gpu ? funnel::Sharing::funneled : funnel::Sharing::cpu;
}

}  // namespace

funnel::TeamOptions CommonOptions::team() const {
    funnel::TeamOptions team;
    team.standin = device == "standin";
    team.sharing = mode == "auto" ? fastest(team.standin) : funnel::sharing_named(mode);
    team.standin_gpus = standin_gpus;
    team.ranks_per_node = ranks_per_node;
    team.host_kernels = add_host_kernels;
    team.cuda_kernels = add_cuda_kernels;
    return team;
}

void CommonOptions::write(const Json& result) const {
    const std::string text = result.dump(-1, ' ', false, Json::error_handler_t::replace);
    if (json == "-") {
        std::printf("%s\n", text.c_str());
        return;
    }
    std::ofstream file(json);
    file << text << "\n";
    if (!file) throw std::runtime_error("cannot write " + json);
}

Json result_header(const std::string& schema, funnel::Team& team) {
    return {{"schema", schema},
            {"mode", funnel::name_of(team.sharing())},
            {"device", team.lane().device_name()},
            {"ranks", team.node().world_size()},
            {"ranks_per_node", team.node().local_size()},
            {"gpus", team.gpus_used()}};
}

int run_program(int argc, char** argv, const std::function<void(CLI::App&)>& declare,
                const std::function<int(const CommonOptions&)>& body) {
    int provided = 0, rank = 0, status = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    CommonOptions common;
    CLI::App app;
    app.option_defaults()->always_capture_default();
    declare(app);
    app.add_option("--mode", common.mode, "auto, cpu, single, multiple, multiple-mps or funneled");
    app.add_option("--device", common.device, "cuda, or standin (a host thread in the GPU's place)")
        ->check(CLI::IsMember({"cuda", "standin"}));
    app.add_option("--standin-gpus", common.standin_gpus, "stand-ins a node");
    app.add_option("--ranks-per-node", common.ranks_per_node, "above 0: pretend nodes of so many ranks");
    app.add_option("--json", common.json, "file for the result; - is standard output");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& problem) {
        // Every rank reads the same words, so one of them speaks for all.
        const bool help = problem.get_exit_code() == 0;
        if (rank == 0 && help) std::printf("%s", app.help().c_str());
        if (rank == 0 && !help) std::fprintf(stderr, "%s: %s\n", argv[0], problem.what());
        MPI_Finalize();
        return help ? 0 : wrong_use_status;
    }
    try {
        status = body(common);
    } catch (const std::exception& problem) {
        std::fprintf(stderr, "%s: rank %d: %s\n", argv[0], rank, problem.what());
        std::fflush(stderr);
        MPI_Abort(MPI_COMM_WORLD, wrong_use_status);
        std::_Exit(wrong_use_status);
    }
    MPI_Finalize();
    return status;
}

}  // namespace nas
