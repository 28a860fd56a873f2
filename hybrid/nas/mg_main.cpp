#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

#include "nas/launch.h"
#include "nas/mg.h"
#include "nas/mg_layout.h"

namespace {

/// The mean over the ranks.
double mean(double value, const funnel::Node& node) {
    MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_SUM, node.world());
    return value / node.world_size();
}

struct Options {
    std::string size = "S";
    int iterations = 0;
    nas::MgOptions mg;
};

int run(const Options& options, const nas::CommonOptions& common) {
    const nas::MgClass& size = nas::mg_class(options.size);
    const nas::MgOptions& mg = options.mg;
    const int iterations =
        options.iterations > 0 ? std::min(options.iterations, size.iterations) : size.iterations;

    int ranks = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    funnel::TeamOptions team_options = common.team();
    const nas::MgMemory memory =
        nas::mg_memory(size, mg, ranks, team_options.sharing == funnel::Sharing::cpu);
    team_options.staging_bytes = memory.staging_bytes;
    team_options.cpu_memory_offset = memory.cpu_memory_offset;
    funnel::Team team(MPI_COMM_WORLD, team_options);
    const nas::MgResult result = nas::run_mg(team, size, mg, iterations);

    const double error = std::abs(result.norm - size.norm) / size.norm;
    // The official norm is that of the last iteration; a shortened run has none to compare with.
    const bool complete = iterations == size.iterations;
    const bool verified = complete && error <= nas::mg_tolerance;
    const double kernels = mean(result.kernel_seconds, team.node()),
                 copies = mean(result.copy_seconds, team.node());
    const double waited = mean(result.waited_seconds, team.node()),
                 coarse = mean(result.coarse_seconds, team.node());
    if (team.node().world_rank() == 0) {
        std::vector<double> sorted = result.iteration_seconds;
        std::sort(sorted.begin(), sorted.end());
        nas::Json breakdown, json = nas::result_header("busfare.hybrid.mg/1", team);
        breakdown["waited_for_ghost_cells"] = waited;
        breakdown["coarse_levels"] = coarse;
        if (mg.timed) {
            breakdown["kernels"] = kernels;
            breakdown["copies"] = copies;
        }
        json["class"] = std::string(1, size.name);
        json["coarse_points"] = mg.coarse_points;
        json["coarse"] = result.coarse_on_device ? "device" : "host";
        json["axes"] = result.axes;
        json["fused"] = mg.fused && team.sharing() != funnel::Sharing::cpu;
        json["timed"] = mg.timed;
        json["iterations"] = iterations;
        json["norm"] = result.norm;
        json["seconds"] = result.seconds;
        json["median_iteration_seconds"] = sorted[sorted.size() / 2];
        json["iteration_seconds"] = result.iteration_seconds;
        json["breakdown_seconds"] = breakdown;
        if (complete) {
            json["verified"] = verified;
            json["norm_error"] = error;
            json["mflops"] = 1e-6 * nas::mg_operations(size) / result.seconds;
        }
        common.write(json);
        if (complete && !verified)
            std::fprintf(stderr, "MG class %c: norm %.13e instead of %.13e\n", size.name, result.norm,
                         size.norm);
    }
    return complete && !verified ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    const std::map<std::string, nas::Coarse> places = {
        {"auto", nas::Coarse::automatic}, {"host", nas::Coarse::host}, {"device", nas::Coarse::device}};
    return nas::run_program(
        argc, argv,
        [&](CLI::App& app) {
            app.add_option("--class", options.size, "S, W, A, B, C, D or E");
            app.add_option("--iterations", options.iterations,
                           "fewer than the class's; nothing is verified then");
            app.add_option("--coarse-points", options.mg.coarse_points,
                           "levels up to this size are solved whole");
            app.add_option("--coarse", options.mg.coarse, "auto, host or device: where those are solved")
                ->transform(CLI::CheckedTransformer(places));
            app.add_option("--axes", options.mg.axes,
                           "2 or 3: how many axes are cut; 0: the program chooses");
            app.add_option("--fused", options.mg.fused,
                           "on or off: the correction is not stored on a device");
            app.add_flag("--timed", options.mg.timed, "measure the device's share");
        },
        [&](const nas::CommonOptions& common) { return run(options, common); });
}
