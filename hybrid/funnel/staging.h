#pragma once

#include <mpi.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "funnel/node.h"
#include "funnel/shared_window.h"
#include "funnel/task.h"
#include "funnel/watch.h"

namespace funnel {

/// Every rank's share of the global address space: memory that the node's ranks load and store, that the
/// network writes (MPI RMA) and, once the owner has registered it, that the GPU's copy engines read and
/// write. U11 needs two buffers and a local copy for this ([U11 §3.2]); one MPI shared window serves as both
/// here.
///
/// A segment starts with one signal counter per channel and source rank; each counter has one writer.
class Staging {
  public:
    static constexpr int channels = 4;

    /// Collective. `bytes` is what this rank offers; ranks may offer different amounts.
    Staging(const Node& node, const Watch& watch, std::size_t bytes);
    ~Staging();
    Staging(const Staging&) = delete;
    Staging& operator=(const Staging&) = delete;

    const Node& node() const { return node_; }

    /// This rank's memory, and that of another rank of this node (nullptr for a rank elsewhere).
    std::byte* local() const { return at(node_.world_rank()); }
    std::byte* at(int world_rank) const;
    std::size_t bytes_of(int world_rank) const { return bytes_of_world_[world_rank]; }

    /// The whole segments of this node, for registration with a device.
    const std::vector<SharedWindow::Segment>& segments() const { return shared_.segments(); }
    /// Resolves a place that a task names; throws when `bytes` from it leave that rank's memory.
    std::byte* resolve(const HostPlace& place, std::uint64_t bytes) const;

    /// Writes `bytes` into another rank's memory. Within the node it is a copy and done on return; to another
    /// node it is under way until `complete`. The source must stay untouched until then.
    void put(int target, std::uint64_t target_offset, const void* source, std::size_t bytes);
    /// Waits until every put and signal to other nodes has arrived.
    void complete();

    /// Tells `target` that this rank's count on `channel` is now `count`. Everything put to `target` before
    /// is there when it sees that.
    void signal(int target, int channel, std::uint64_t count);
    /// The latest count that `source` signalled to this rank.
    std::uint64_t signalled(int source, int channel) const;
    /// Waits until `source` has signalled at least `count`.
    void wait_for(int source, int channel, std::uint64_t count, const std::string& what) const;

    /// Lets MPI move what is under way to or from other nodes; nothing to do within one node.
    void progress() const;

  private:
    std::size_t header_bytes() const;
    std::atomic<std::uint64_t>& counter(std::byte* segment, int source, int channel) const;

    const Node& node_;
    const Watch& watch_;
    SharedWindow shared_;            ///< the memory
    MPI_Win global_ = MPI_WIN_NULL;  ///< the same memory, open to the whole world
    std::vector<std::size_t> bytes_of_world_;
    std::vector<bool> in_flight_;  ///< by world rank
};

}  // namespace funnel
