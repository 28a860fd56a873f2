#include <algorithm>
#include <cstdio>
#include <map>

#include "nas/ft.h"
#include "nas/launch.h"

namespace {

using nas::Json;

Json of(const nas::Breakdown& b) {
    Json json;
    json.set("fft_1d", b.fft_1d)
        .set("fft_2d", b.fft_2d)
        .set("outstanding_communication", b.outstanding_communication)
        .set("synchronous_local_copies", b.synchronous_local_copies)
        .set("barrier", b.barrier);
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

int run(const nas::Options& options) {
    const nas::FtClass& size = nas::ft_class(options.text("class"));
    nas::SlabOptions slabs;
    const std::string& algorithm = options.text("algorithm");
    if (algorithm != "slabs" && algorithm != "packed-slabs")
        throw std::invalid_argument("--algorithm is slabs or packed-slabs, not '" + algorithm + "'");
    slabs.algorithm = algorithm == "slabs" ? nas::Algorithm::slabs : nas::Algorithm::packed_slabs;
    const std::map<std::string, nas::Exchange> exchanges = {
        {"auto", nas::Exchange::automatic}, {"host", nas::Exchange::host}, {"device", nas::Exchange::device}};
    const auto exchange = exchanges.find(options.text("exchange"));
    if (exchange == exchanges.end())
        throw std::invalid_argument("--exchange is auto, host or device, not '" + options.text("exchange") +
                                    "'");
    slabs.exchange = exchange->second;
    slabs.streams = static_cast<int>(options.integer("streams"));
    slabs.chunk_bytes = static_cast<std::size_t>(options.integer("chunk-bytes"));
    slabs.transposed_lines = options.flag("transposed-lines");
    slabs.timed = options.flag("timed");
    const long long asked = options.integer("iterations");
    const int iterations =
        asked > 0 ? static_cast<int>(std::min<long long>(asked, size.iterations())) : size.iterations();

    funnel::TeamOptions team_options = nas::team_options(options);
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
        json.set("class", std::string(1, size.name))
            .set("algorithm", algorithm)
            .set("exchange", result.exchanged_on_device ? "device" : "host")
            .set("streams", slabs.streams)
            .set("chunk_bytes", slabs.chunk_bytes)
            .set("transposed_lines", slabs.transposed_lines)
            .set("timed", slabs.timed)
            .set("iterations", iterations)
            .set("verified", verified)
            .set("largest_checksum_error", error)
            .set("seconds", result.seconds)
            .set("median_iteration_seconds", sorted[sorted.size() / 2])
            .set("iteration_seconds", result.iteration_seconds)
            .set("breakdown_seconds", of(breakdown));
        if (iterations == size.iterations())
            json.set("mflops", 1e-6 * nas::ft_operations(size) / result.seconds);
        nas::write_json(options, json);
        if (!verified) std::fprintf(stderr, "FT class %c: checksums are off by %g\n", size.name, error);
    }
    return verified ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    return nas::run_program(argc, argv,
                            {{"class", "S", "S, W, A, B, C or D"},
                             {"algorithm", "slabs", "slabs or packed-slabs"},
                             {"exchange", "auto", "auto, host or device: where the transpose passes"},
                             {"iterations", "0", "fewer than the class's"},
                             {"streams", "3", "streams of each rank"},
                             {"chunk-bytes", "0", "what one task moves, about; 0 lets the program choose"},
                             {"transposed-lines", "no", "1D transforms between two tiled transposes"},
                             {"timed", "no", "measure the device's share of the breakdown"}},
                            run);
}
