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

int run(const nas::Options& options) {
    const nas::MgClass& size = nas::mg_class(options.text("class"));
    nas::MgOptions mg;
    mg.coarse_points = static_cast<int>(options.integer("coarse-points"));
    mg.axes = static_cast<int>(options.integer("axes"));
    mg.fused = options.text("fused") != "off";
    const std::map<std::string, nas::Coarse> places = {
        {"auto", nas::Coarse::automatic}, {"host", nas::Coarse::host}, {"device", nas::Coarse::device}};
    const auto coarse_place = places.find(options.text("coarse"));
    if (coarse_place == places.end())
        throw std::invalid_argument("--coarse is auto, host or device, not '" + options.text("coarse") + "'");
    mg.coarse = coarse_place->second;
    mg.timed = options.flag("timed");
    const long long asked = options.integer("iterations");
    const int iterations =
        asked > 0 ? static_cast<int>(std::min<long long>(asked, size.iterations)) : size.iterations;

    int ranks = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    funnel::TeamOptions team_options = nas::team_options(options);
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
        breakdown.set("waited_for_ghost_cells", waited).set("coarse_levels", coarse);
        if (mg.timed) breakdown.set("kernels", kernels).set("copies", copies);
        json.set("class", std::string(1, size.name))
            .set("coarse_points", mg.coarse_points)
            .set("coarse", result.coarse_on_device ? "device" : "host")
            .set("axes", result.axes)
            .set("fused", mg.fused && team.sharing() != funnel::Sharing::cpu)
            .set("timed", mg.timed)
            .set("iterations", iterations)
            .set("norm", result.norm)
            .set("seconds", result.seconds)
            .set("median_iteration_seconds", sorted[sorted.size() / 2])
            .set("iteration_seconds", result.iteration_seconds)
            .set("breakdown_seconds", breakdown);
        if (complete)
            json.set("verified", verified)
                .set("norm_error", error)
                .set("mflops", 1e-6 * nas::mg_operations(size) / result.seconds);
        nas::write_json(options, json);
        if (complete && !verified)
            std::fprintf(stderr, "MG class %c: norm %.13e instead of %.13e\n", size.name, result.norm,
                         size.norm);
    }
    return complete && !verified ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
    return nas::run_program(argc, argv,
                            {{"class", "S", "S, W, A, B, C or D"},
                             {"iterations", "0", "fewer than the class's (then nothing is verified)"},
                             {"coarse-points", "16", "levels up to this size are solved whole"},
                             {"coarse", "auto", "auto, host or device: where those are solved"},
                             {"axes", "0", "2 or 3: how many axes are cut; 0 lets the program choose"},
                             {"fused", "on", "on or off: the correction is not stored on a device"},
                             {"timed", "no", "measure the device's share"}},
                            run);
}
