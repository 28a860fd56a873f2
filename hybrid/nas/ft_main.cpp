#include <algorithm>
#include <cstdio>
#include <map>

#include "nas/ft.h"
#include "nas/launch.h"

namespace {

using nas::Json;

Json of(const nas::Breakdown& b) {
    Json json;
    json["fft_1d"] = b.fft_1d;
    json["fft_2d"] = b.fft_2d;
    json["outstanding_communication"] = b.outstanding_communication;
    json["synchronous_local_copies"] = b.synchronous_local_copies;
    json["barrier"] = b.barrier;
    return json;
}

/// The mean over the ranks, which is what [U11 figure 11] draws.
nas::Breakdown mean_over_ranks(const nas::Breakdown& mine, const funnel::Node& node) {
    double parts[5] = {mine.fft_1d, mine.fft_2d, mine.outstanding_communication,
                       mine.synchronous_local_copies, mine.barrier};
    MPI_Allreduce(MPI_IN_PLACE, parts, 5, MPI_DOUBLE, MPI_SUM, node.world());
    for (double& part : parts) part /= node.world_size();
    return {parts[0], parts[1], parts[2], parts[3], parts[4]};
}

struct Options {
    std::string size = "S";
    int iterations = 0;
    nas::SlabOptions slabs;
};

int run(const Options& options, const nas::CommonOptions& common) {
    const nas::FtClass& size = nas::ft_class(options.size);
    const nas::SlabOptions& slabs = options.slabs;
    const int iterations =
        options.iterations > 0 ? std::min(options.iterations, size.iterations()) : size.iterations();

    funnel::TeamOptions team_options = common.team();
    {
        const funnel::Node node(MPI_COMM_WORLD, team_options.ranks_per_node);
        const bool outbox = !node.all_local() || slabs.algorithm == nas::Algorithm::packed_slabs;
        team_options.staging_bytes = nas::ft_staging_bytes(size, node.world_size(), outbox);
    }
    funnel::Team team(MPI_COMM_WORLD, team_options);
    const nas::FtResult result = nas::run_ft(team, size, slabs, iterations);
    const double error = nas::largest_error(result.checksums, size.checksums);
    const bool verified = error <= nas::ft_tolerance;
    const nas::Breakdown breakdown = mean_over_ranks(result.breakdown, team.node());
    if (team.node().world_rank() == 0) {
        std::vector<double> sorted = result.iteration_seconds;
        std::sort(sorted.begin(), sorted.end());
        Json json = nas::result_header("busfare.hybrid.ft/1", team);
        json["class"] = std::string(1, size.name);
        json["algorithm"] = slabs.algorithm == nas::Algorithm::slabs ? "slabs" : "packed-slabs";
        json["exchange"] = result.exchanged_on_device ? "device" : "host";
        json["streams"] = slabs.streams;
        json["chunk_bytes"] = slabs.chunk_bytes;
        json["transposed_lines"] = slabs.transposed_lines;
        json["timed"] = slabs.timed;
        json["iterations"] = iterations;
        json["verified"] = verified;
        json["largest_checksum_error"] = error;
        json["checksums"] = Json::array();
        for (const auto& sum : result.checksums) json["checksums"].push_back({sum.real(), sum.imag()});
        json["seconds"] = result.seconds;
        json["median_iteration_seconds"] = sorted[sorted.size() / 2];
        json["iteration_seconds"] = result.iteration_seconds;
        json["breakdown_seconds"] = of(breakdown);
        if (iterations == size.iterations())
            json["mflops"] = 1e-6 * nas::ft_operations(size) / result.seconds;
        common.write(json);
        if (!verified) std::fprintf(stderr, "FT class %c: checksums are off by %g\n", size.name, error);
    }
    return verified ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    const std::map<std::string, nas::Algorithm> algorithms = {{"slabs", nas::Algorithm::slabs},
                                                              {"packed-slabs", nas::Algorithm::packed_slabs}};
    const std::map<std::string, nas::Exchange> exchanges = {
        {"auto", nas::Exchange::automatic}, {"host", nas::Exchange::host}, {"device", nas::Exchange::device}};
    return nas::run_program(
        argc, argv,
        [&](CLI::App& app) {
            app.add_option("--class", options.size, "S, W, A, B, C, D or E");
            app.add_option("--algorithm", options.slabs.algorithm, "slabs or packed-slabs")
                ->transform(CLI::CheckedTransformer(algorithms));
            app.add_option("--exchange", options.slabs.exchange,
                           "auto, host or device: where the transpose passes")
                ->transform(CLI::CheckedTransformer(exchanges));
            app.add_option("--iterations", options.iterations, "fewer than the class's");
            app.add_option("--streams", options.slabs.streams, "streams of each rank");
            app.add_option("--chunk-bytes", options.slabs.chunk_bytes,
                           "what one task moves, about; 0: the program chooses");
            app.add_flag("--transposed-lines", options.slabs.transposed_lines,
                         "1D transforms between two tiled transposes");
            app.add_flag("--timed", options.slabs.timed, "measure the device's share of the breakdown");
        },
        [&](const nas::CommonOptions& common) { return run(options, common); });
}
