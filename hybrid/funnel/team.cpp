#include "funnel/team.h"

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <new>
#include <set>

#include "funnel/election.h"
#include "funnel/inline_lane.h"
#include "funnel/member.h"

namespace funnel {
namespace {

const std::map<Sharing, std::string> names = {{Sharing::cpu, "cpu"},
                                              {Sharing::single, "single"},
                                              {Sharing::multiple, "multiple"},
                                              {Sharing::multiple_mps, "multiple-mps"},
                                              {Sharing::funneled, "funneled"}};

/// Clients of MPS draw on one pool, 120 queues of a GPU, and who comes when it is empty gets no context.
int queues_under_mps(int ranks) {
    constexpr int of_the_pool = 96, most_of_a_rank = 8, fewest = 2;
    return std::clamp(of_the_pool / ranks, fewest, most_of_a_rank);
}

void require_mps() {
    const char* pipes = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
    const std::filesystem::path control =
        std::filesystem::path(pipes ? pipes : "/tmp/nvidia-mps") / "control";
    if (!std::filesystem::exists(control))
        throw Error(Fault::wrong_use, "no MPS daemon answers at " + control.string() +
                                          ": start the job through run/with_mps.sh");
}

/// Without them the first task would end in a call of nothing.
void require_kernels(const TeamOptions& options) {
    const bool on_host = options.sharing == Sharing::cpu || options.standin;
    if (!(on_host ? options.host_kernels : options.cuda_kernels))
        throw Error(Fault::wrong_use,
                    on_host ? "TeamOptions::host_kernels is empty: mode cpu and the stand-in take their "
                              "kernels from it"
                            : "TeamOptions::cuda_kernels is empty: a GPU takes its kernels from it");
}

}  // namespace

std::string name_of(Sharing sharing) {
    return names.at(sharing);
}

Sharing sharing_named(const std::string& name) {
    std::string modes;
    for (const auto& [sharing, its_name] : names) {
        if (its_name == name) return sharing;
        modes += (modes.empty() ? "" : ", ") + its_name;
    }
    throw Error(Fault::wrong_use, "unknown mode '" + name + "': take one of " + modes);
}

std::vector<GpuPlace> Team::gpus() const {
    if (!options_.standin)
        return visible_gpus(options_.sharing == Sharing::multiple_mps ? queues_under_mps(node_.local_size())
                                                                      : most_queues);
    std::vector<GpuPlace> gpus;
    for (int ordinal = 0; ordinal < options_.standin_gpus; ++ordinal) gpus.push_back({ordinal, -1});
    return gpus;
}

Team::Team(MPI_Comm world, const TeamOptions& options)
    : options_(options), node_(world, options.ranks_per_node), watch_(node_) {
    require_kernels(options_);
    staging_ = std::make_unique<Staging>(node_, watch_, options_.staging_bytes, options_.channels);
    member_of_world_.assign(node_.world_size(), -1);
    if (options_.sharing == Sharing::cpu) {
        KernelTable kernels;
        options_.host_kernels(kernels);
        lane_ = std::make_unique<InlineLane>(std::move(kernels), *staging_, options_.cpu_memory_offset);
        for (int rank = 0; rank < node_.world_size(); ++rank)
            if (node_.local_rank_of(rank) >= 0) member_of_world_[rank] = node_.local_rank_of(rank);
    } else {
        open_group();
    }
    MPI_Barrier(node_.world());
}

void Team::open_group() {
    const std::vector<GpuPlace> all_gpus = gpus();
    if (all_gpus.empty())
        throw Error(Fault::wrong_use, "this node shows no GPU: use --device standin, or --mode cpu");
    if (options_.sharing == Sharing::multiple_mps && !options_.standin) require_mps();

    const int numa = numa_node_of_this_thread();
    std::vector<int> numa_of_rank(node_.local_size());
    MPI_Allgather(&numa, 1, MPI_INT, numa_of_rank.data(), 1, MPI_INT, node_.local());
    const Seating seating = elect(numa_of_rank, all_gpus);
    const int me = node_.local_rank();
    const std::set<int> used(seating.gpu_of_rank.begin(), seating.gpu_of_rank.end());
    const int of_this_node = me == 0 ? static_cast<int>(used.size()) : 0;
    MPI_Allreduce(&of_this_node, &gpus_used_, 1, MPI_INT, MPI_SUM, node_.world());
    if (options_.sharing == Sharing::single && node_.local_size() > static_cast<int>(all_gpus.size()))
        throw Error(Fault::wrong_use,
                    "mode single wants a GPU for each rank: " + std::to_string(node_.local_size()) +
                        " ranks, " + std::to_string(all_gpus.size()) + " GPUs");

    // Outside funneled mode every rank is the one member of its own group.
    const bool shared = options_.sharing == Sharing::funneled;
    const int owner = shared ? seating.owner_of_rank[me] : me;
    int members = 0;
    for (int rank = 0; rank < node_.local_size(); ++rank)
        if (shared ? seating.owner_of_rank[rank] == owner : rank == me)
            member_of_world_[node_.world_rank_of(rank)] = members++;
    if (members > GroupArea::most_members)
        throw Error(Fault::wrong_use,
                    "more than " + std::to_string(GroupArea::most_members) + " ranks share a GPU");

    areas_ = std::make_unique<SharedWindow>(node_.local(), owner == me ? sizeof(GroupArea) : 0);
    void* area = areas_->segments()[owner].base;

    std::string problem;
    try {
        if (owner == me) open_owner(area, all_gpus[seating.gpu_of_rank[me]].ordinal, members);
    } catch (const std::exception& error) {
        problem = error.what();
    }
    // All ranks leave together: one that left alone would wait for the others to free the windows.
    int first = problem.empty() ? INT_MAX : node_.world_rank();
    MPI_Allreduce(MPI_IN_PLACE, &first, 1, MPI_INT, MPI_MIN, node_.world());
    if (first != INT_MAX)
        throw Error(Fault::device_failed, !problem.empty()
                                              ? "opening the GPU: " + problem
                                              : "rank " + std::to_string(first) + " could not open its GPU");
    lane_ = std::make_unique<Member>(*static_cast<GroupArea*>(area), watch_,
                                     member_of_world_[node_.world_rank()]);
}

void Team::open_owner(void* area, int gpu, int members) {
    auto* fresh = static_cast<GroupArea*>(area);
    fresh->open.store(0);
    KernelTable kernels;
    (options_.standin ? options_.host_kernels : options_.cuda_kernels)(kernels);
    auto device =
        options_.standin ? make_standin_device(options_.standin_memory_bytes) : make_cuda_device(gpu);
    owner_ = std::make_unique<Owner>(std::move(device), std::move(kernels), *staging_, *fresh, members);
}

Team::~Team() {
    MPI_Barrier(node_.world());
    lane_.reset();
    owner_.reset();
    areas_.reset();
}

}  // namespace funnel
