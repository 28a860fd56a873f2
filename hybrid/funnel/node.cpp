#include "funnel/node.h"

namespace funnel {

Node::Node(MPI_Comm world, int ranks_per_node) {
    MPI_Comm_dup(world, &world_);
    MPI_Comm_rank(world_, &world_rank_);
    MPI_Comm_size(world_, &world_size_);

    MPI_Comm machine;
    MPI_Comm_split_type(world_, MPI_COMM_TYPE_SHARED, world_rank_, MPI_INFO_NULL, &machine);
    int place = 0;
    MPI_Comm_rank(machine, &place);
    MPI_Comm_split(machine, ranks_per_node > 0 ? place / ranks_per_node : 0, place, &local_);
    MPI_Comm_free(&machine);
    MPI_Comm_rank(local_, &local_rank_);
    MPI_Comm_size(local_, &local_size_);

    world_of_local_.resize(local_size_);
    MPI_Allgather(&world_rank_, 1, MPI_INT, world_of_local_.data(), 1, MPI_INT, local_);
    local_of_world_.assign(world_size_, -1);
    for (int rank = 0; rank < local_size_; ++rank) local_of_world_[world_of_local_[rank]] = rank;
}

Node::~Node() {
    MPI_Comm_free(&local_);
    MPI_Comm_free(&world_);
}

}  // namespace funnel
