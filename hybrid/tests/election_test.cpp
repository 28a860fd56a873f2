// Who sits at which GPU, and who owns it.
#include "funnel/election.h"

#include <algorithm>

#include "tests/check.h"

using funnel::elect;
using funnel::GpuPlace;

int main() {
    {  // One GPU on NUMA node 1: everybody shares it, the first rank that runs near it owns it.
        const auto seating = elect({0, 0, 1, 1}, {GpuPlace{0, 1}});
        CHECK((seating.gpu_of_rank == std::vector<int>{0, 0, 0, 0}));
        CHECK((seating.owner_of_rank == std::vector<int>{2, 2, 2, 2}));
    }
    {  // Nothing known of NUMA: the lowest rank.
        const auto seating = elect({-1, -1}, {GpuPlace{0, -1}});
        CHECK((seating.owner_of_rank == std::vector<int>{0, 0}));
    }
    {  // Two GPUs, ranks interleaved over two NUMA nodes: each to the near one.
        const auto seating = elect({0, 1, 0, 1}, {GpuPlace{0, 1}, GpuPlace{1, 0}});
        CHECK((seating.gpu_of_rank == std::vector<int>{1, 0, 1, 0}));
        CHECK((seating.owner_of_rank == std::vector<int>{0, 1, 0, 1}));
    }
    {  // All ranks near one GPU: still spread evenly, five ranks over two GPUs.
        const auto seating = elect({0, 0, 0, 0, 0}, {GpuPlace{0, 0}, GpuPlace{1, 1}});
        CHECK(std::count(seating.gpu_of_rank.begin(), seating.gpu_of_rank.end(), 0) == 3);
        CHECK(std::count(seating.gpu_of_rank.begin(), seating.gpu_of_rank.end(), 1) == 2);
        CHECK((seating.owner_of_rank == std::vector<int>{0, 0, 0, 3, 3}));
    }
    CHECK_FAULT(funnel::Fault::wrong_use, elect({0}, {}));
    return check::failures;
}
