#include "funnel/election.h"

#include <sys/syscall.h>
#include <unistd.h>

namespace funnel {

Seating elect(const std::vector<int>& numa_of_rank, const std::vector<GpuPlace>& gpus) {
    const auto ranks = static_cast<int>(numa_of_rank.size());
    const auto count = static_cast<int>(gpus.size());
    if (count == 0) throw Error(Fault::wrong_use, "no GPU to share");

    Seating seating;
    seating.gpu_of_rank.assign(ranks, -1);
    std::vector<int> room(count, ranks / count);
    for (int gpu = 0; gpu < ranks % count; ++gpu) ++room[gpu];

    const auto seat = [&](int rank, bool same_numa_only) {
        for (int gpu = 0; gpu < count && seating.gpu_of_rank[rank] < 0; ++gpu) {
            const bool near = numa_of_rank[rank] >= 0 && numa_of_rank[rank] == gpus[gpu].numa_node;
            if (room[gpu] == 0 || (same_numa_only && !near)) continue;
            seating.gpu_of_rank[rank] = gpu;
            --room[gpu];
        }
    };
    for (int rank = 0; rank < ranks; ++rank) seat(rank, true);
    for (int rank = 0; rank < ranks; ++rank) seat(rank, false);

    std::vector<int> owner_of_gpu(count, -1);
    const auto nominate = [&](int rank, bool near_only) {
        int& owner = owner_of_gpu[seating.gpu_of_rank[rank]];
        const int gpu_numa = gpus[seating.gpu_of_rank[rank]].numa_node;
        if (owner < 0 && (!near_only || (gpu_numa >= 0 && numa_of_rank[rank] == gpu_numa))) owner = rank;
    };
    for (int rank = 0; rank < ranks; ++rank) nominate(rank, true);
    for (int rank = 0; rank < ranks; ++rank) nominate(rank, false);

    for (int rank = 0; rank < ranks; ++rank)
        seating.owner_of_rank.push_back(owner_of_gpu[seating.gpu_of_rank[rank]]);
    return seating;
}

int numa_node_of_this_thread() {
    unsigned cpu = 0, node = 0;
    if (syscall(SYS_getcpu, &cpu, &node, nullptr) != 0) return -1;
    return static_cast<int>(node);
}

}  // namespace funnel
