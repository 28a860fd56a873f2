// FT's 3D transform on CPUs beside FFTW's own distributed one: same size, same ranks, same run, rounds taken
// in turn.
//
// Both end with the slabs cut the other way (FFTW_MPI_TRANSPOSED_OUT), which saves either a second transpose.
#include <fftw3-mpi.h>

#include <algorithm>
#include <functional>

#include "nas/ft.h"
#include "nas/launch.h"

namespace {

using Point = std::complex<double>;

/// Seconds of one round, from a barrier until all ranks are done.
double round_seconds(const std::function<void()>& work) {
    MPI_Barrier(MPI_COMM_WORLD);
    const nas::Stopwatch watch;
    work();
    MPI_Barrier(MPI_COMM_WORLD);
    return watch.seconds();
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

/// Plane waves, so that rounds neither grow nor fade to denormal numbers and are not zeros.
void fill(Point* data, std::size_t points) {
    for (std::size_t i = 0; i < points; ++i) data[i] = std::polar(1.0, static_cast<double>(i % 1000));
}

struct Options {
    std::string size = "A";
    int rounds = 9;
};

int run(const Options& options, const nas::CommonOptions& common) {
    const nas::FtClass& size = nas::ft_class(options.size);
    const int rounds = options.rounds;
    funnel::TeamOptions team_options = common.team();
    team_options.sharing = funnel::Sharing::cpu;
    int ranks = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    team_options.staging_bytes = nas::ft_staging_bytes(size, ranks, true);
    funnel::Team team(MPI_COMM_WORLD, team_options);
    const std::size_t slab = static_cast<std::size_t>(size.points()) / ranks;
    const auto transform = nas::make_host_slab_transform(
        team, {0, slab * sizeof(Point), 2 * slab * sizeof(Point)}, nas::SlabOptions{});
    fill(reinterpret_cast<Point*>(team.staging().local()), slab);

    fftw_mpi_init();
    std::ptrdiff_t planes = 0, first = 0, rows = 0, first_row = 0;
    const std::ptrdiff_t points = fftw_mpi_local_size_3d_transposed(size.nz, size.ny, size.nx, MPI_COMM_WORLD,
                                                                    &planes, &first, &rows, &first_row);
    fftw_complex* data = fftw_alloc_complex(static_cast<std::size_t>(points));
    const fftw_plan plan = fftw_mpi_plan_dft_3d(size.nz, size.ny, size.nx, data, data, MPI_COMM_WORLD,
                                                FFTW_FORWARD, FFTW_MEASURE | FFTW_MPI_TRANSPOSED_OUT);

    std::vector<double> ours, theirs;
    for (int round = -1; round < rounds; ++round) {
        const double our_seconds =
            round_seconds([&] { transform->run({size.nz, size.ny, size.nx, -1, false, 0, false}); });
        fill(reinterpret_cast<Point*>(data), slab);
        const double fftw_seconds = round_seconds([&] { fftw_execute(plan); });
        if (round < 0) continue;
        ours.push_back(our_seconds);
        theirs.push_back(fftw_seconds);
    }
    if (team.node().world_rank() == 0) {
        nas::Json json = nas::result_header("busfare.hybrid.against_fftw_mpi/1", team);
        json["class"] = std::string(1, size.name);
        json["our_seconds"] = ours;
        json["fftw_mpi_seconds"] = theirs;
        json["median_ratio"] = median(ours) / median(theirs);
        common.write(json);
    }
    fftw_destroy_plan(plan);
    fftw_free(data);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    return nas::run_program(
        argc, argv,
        [&](CLI::App& app) {
            app.add_option("--class", options.size, "size of the transform");
            app.add_option("--rounds", options.rounds, "timed rounds");
        },
        [&](const nas::CommonOptions& common) { return run(options, common); });
}
