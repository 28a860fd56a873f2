// A rank that gets no device ends all ranks at once, each with a reason: none of them waits for another.
#include "tests/check.h"
#include "tests/team_for_tests.h"

int main(int argc, char** argv) {
    int provided = 0, rank = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    funnel::TeamOptions options = options_for_test(argc, argv, 1 << 16);
    constexpr int without = 1;
    options.host_kernels = [rank](funnel::KernelTable& table) {
        if (rank == without)
            throw funnel::Error(funnel::Fault::device_failed, "the pool of connections is empty");
        nas::add_host_kernels(table);
    };
    std::string message;
    try {
        funnel::Team team(MPI_COMM_WORLD, options);
    } catch (const funnel::Error& error) {
        message = error.what();
    }
    CHECK(message.find(rank == without ? "the pool of connections is empty"
                                       : "rank 1 could not open its GPU") != std::string::npos);
    const int status = failures_of_all_ranks(check::failures);
    MPI_Finalize();
    return status;
}
