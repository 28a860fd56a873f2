#pragma once

#include <mpi.h>

#include <vector>

namespace funnel {

/// The ranks that share this machine's memory.
///
/// `ranks_per_node` above 0 splits a machine into several pretended nodes of that many ranks: what crosses
/// between them then takes the path that real nodes take.
class Node {
  public:
    Node(MPI_Comm world, int ranks_per_node);
    ~Node();
    Node(const Node&) = delete;
    Node& operator=(const Node&) = delete;

    MPI_Comm world() const { return world_; }
    MPI_Comm local() const { return local_; }
    int world_rank() const { return world_rank_; }
    int world_size() const { return world_size_; }
    int local_rank() const { return local_rank_; }
    int local_size() const { return local_size_; }
    /// The number within this node of a rank of the world; -1 for a rank on another node.
    int local_rank_of(int world_rank) const { return local_of_world_[world_rank]; }
    int world_rank_of(int local_rank) const { return world_of_local_[local_rank]; }
    bool all_local() const { return local_size_ == world_size_; }

  private:
    MPI_Comm world_, local_;
    int world_rank_, world_size_, local_rank_, local_size_;
    std::vector<int> local_of_world_, world_of_local_;
};

}  // namespace funnel
