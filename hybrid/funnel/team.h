#pragma once

#include <mpi.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "funnel/group_area.h"
#include "funnel/lane.h"
#include "funnel/node.h"
#include "funnel/owner.h"
#include "funnel/staging.h"
#include "funnel/watch.h"

namespace funnel {

/// How the ranks of a node reach a device.
enum class Sharing {
    cpu,           ///< no device: every rank computes on its core
    single,        ///< a GPU to each rank
    multiple,      ///< several ranks a GPU, each with its own context, time-sliced by the driver
    multiple_mps,  ///< the same under NVIDIA's MPS daemon, which must be running
    funneled,      ///< several ranks a GPU, through its owner's one context
};
std::string name_of(Sharing sharing);
Sharing sharing_named(const std::string& name);  ///< throws for an unknown name

struct TeamOptions {
    Sharing sharing = Sharing::cpu;
    bool standin = false;                            ///< a stand-in for each GPU
    int standin_gpus = 1;                            ///< how many of them the node is to have
    std::size_t standin_memory_bytes = 1ull << 32;   ///< of each
    std::size_t staging_bytes = 0;                   ///< of this rank
    std::size_t cpu_memory_offset = 0;               ///< where in it the lane's memory starts in mode cpu
    int channels = Staging::default_channels;        ///< of signals
    int ranks_per_node = 0;                          ///< above 0: pretend smaller nodes
    std::function<void(KernelTable&)> host_kernels;  ///< needed by the CPU and the stand-in
    std::function<void(KernelTable&)> cuda_kernels;  ///< needed by a GPU
};

/// Everything one rank needs: its node, its staging memory, its lane to a device, and, in the ranks elected
/// for it, the owner that serves the group. Constructing and destroying it is collective.
class Team {
  public:
    Team(MPI_Comm world, const TeamOptions& options);
    ~Team();

    const Node& node() const { return node_; }
    Staging& staging() { return *staging_; }
    Lane& lane() { return *lane_; }
    Sharing sharing() const { return options_.sharing; }

    /// The member number of a rank of the world within this rank's group (the ranks that share its device
    /// memory); -1 for a rank of another group.
    int member_of(int world_rank) const { return member_of_world_[world_rank]; }

    /// How many GPUs (or stand-ins) the ranks of all nodes use; 0 in mode cpu.
    int gpus_used() const { return gpus_used_; }

  private:
    std::vector<GpuPlace> gpus() const;
    void open_group();
    void open_owner(void* area, int gpu, int members);

    TeamOptions options_;
    Node node_;
    Watch watch_;
    std::unique_ptr<Staging> staging_;
    std::unique_ptr<SharedWindow> areas_;  ///< a GroupArea in each owner's segment
    std::unique_ptr<Owner> owner_;
    std::unique_ptr<Lane> lane_;
    std::vector<int> member_of_world_;
    int gpus_used_ = 0;
};

}  // namespace funnel
