#include "nas/launch.h"

#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
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

std::vector<Options::Known> with_common_options(std::vector<Options::Known> own) {
    const std::vector<Options::Known> common = {
        {"mode", "auto", "auto, cpu, single, multiple, multiple-mps or funneled"},
        {"device", "cuda", "cuda, or standin (a host thread in the GPU's place)"},
        {"standin-gpus", "1", "stand-ins a node"},
        {"ranks-per-node", "0", "above 0: pretend nodes of so many ranks"},
        {"json", "-", "file for the result; - is standard output"},
    };
    own.insert(own.end(), common.begin(), common.end());
    return own;
}

funnel::TeamOptions team_options(const Options& options) {
    funnel::TeamOptions team;
    const std::string& device = options.text("device");
    if (device != "cuda" && device != "standin")
        throw std::invalid_argument("--device is cuda or standin, not '" + device + "'");
    team.standin = device == "standin";
    const std::string& mode = options.text("mode");
    team.sharing = mode == "auto" ? fastest(team.standin) : funnel::sharing_named(mode);
    team.standin_gpus = static_cast<int>(options.integer("standin-gpus"));
    team.ranks_per_node = static_cast<int>(options.integer("ranks-per-node"));
    team.host_kernels = add_host_kernels;
    team.cuda_kernels = add_cuda_kernels;
    return team;
}

Json result_header(const std::string& schema, funnel::Team& team) {
    Json result;
    result.set("schema", schema)
        .set("mode", funnel::name_of(team.sharing()))
        .set("device", team.lane().device_name())
        .set("ranks", team.node().world_size())
        .set("ranks_per_node", team.node().local_size())
        .set("gpus", team.gpus_used());
    return result;
}

void write_json(const Options& options, const Json& result) {
    const std::string& path = options.text("json");
    if (path == "-") {
        std::printf("%s\n", result.text().c_str());
        return;
    }
    std::ofstream file(path);
    file << result.text() << "\n";
    if (!file) throw std::runtime_error("cannot write " + path);
}

int run_program(int argc, char** argv, std::vector<Options::Known> own,
                const std::function<int(const Options&)>& body) {
    int provided = 0, rank = 0, status = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    std::optional<Options> options;
    try {
        options.emplace(argc, argv, with_common_options(std::move(own)));
    } catch (const std::invalid_argument& problem) {
        // Every rank reads the same words, so one of them speaks for all.
        if (rank == 0) std::fprintf(stderr, "%s: %s\n", argv[0], problem.what());
        MPI_Finalize();
        return wrong_use_status;
    }
    try {
        if (!options->help())
            status = body(*options);
        else if (rank == 0)
            std::printf("%s", options->usage().c_str());
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
