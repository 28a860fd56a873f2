#pragma once

#include <mpi.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "funnel/node.h"
#include "funnel/shared_window.h"
#include "funnel/task.h"
#include "funnel/watch.h"

namespace funnel {

/// `rows` runs of `width` bytes in a rank's staging memory, `pitch` bytes apart.
struct Rows {
    std::uint64_t offset = 0, pitch = 0, width = 0, rows = 1;
};

/// Every rank's share of the global address space: memory that the node's ranks load and store, that the
/// network writes (MPI RMA) and, once the owner has registered it, that the GPU's copy engines read and
/// write. U11 needs two buffers and a local copy for this ([U11 §3.2]); one MPI shared window serves as both
/// here.
///
/// A segment starts with one signal counter per channel and source rank; each counter has one writer.
class Staging {
  public:
    static constexpr int default_channels = 4;

    /// Collective. `bytes` is what this rank offers; ranks may offer different amounts, and all the same
    /// number of `channels`. Throws Fault::wrong_use where MPI cannot reach the other nodes one-sided.
    Staging(const Node& node, Watch& watch, std::size_t bytes, int channels = default_channels);
    ~Staging();
    Staging(const Staging&) = delete;
    Staging& operator=(const Staging&) = delete;

    const Node& node() const { return node_; }
    int channels() const { return channels_; }

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
    void put(int target, std::uint64_t target_offset, const void* source, std::size_t bytes) {
        put(target, {target_offset, bytes, bytes, 1}, source, bytes);
    }
    /// The same row by row: `source` has its rows `source_pitch` bytes apart.
    void put(int target, const Rows& rows, const void* source, std::uint64_t source_pitch);
    /// Reads from another rank's memory: within the node done on return, from another node after `complete`.
    void get(int source, std::uint64_t source_offset, void* destination, std::size_t bytes) {
        get(source, {source_offset, bytes, bytes, 1}, destination, bytes);
    }
    void get(int source, const Rows& rows, void* destination, std::uint64_t destination_pitch);
    /// Waits until every put has arrived at other nodes, and every get from there.
    void complete();

    /// Adds to a 64-bit integer in any rank's memory and returns what it was before. `offset` is a multiple
    /// of 8. Atomic with all ranks' additions to it; put there only while nobody adds.
    std::uint64_t fetch_add(int target, std::uint64_t offset, std::uint64_t value);

    /// Tells every one of `targets` that this rank's count on `channel` is now `count`. Everything put to a
    /// target before is there when it sees that. Between nodes this waits twice, however many targets.
    void signal(std::span<const int> targets, int channel, std::uint64_t count);
    void signal(int target, int channel, std::uint64_t count) {
        signal(std::span(&target, 1), channel, count);
    }
    /// The latest count that `source` signalled to this rank.
    std::uint64_t signalled(int source, int channel) const;
    /// Waits until `source` has signalled at least `count`.
    void wait_for(int source, int channel, std::uint64_t count, const std::string& what) const;

    /// Lets MPI move what is under way to or from other nodes; nothing to do within one node. Waiting does
    /// that too, for tasks as well; a rank that computes for long calls it now and then.
    void progress() const;

  private:
    std::size_t header_bytes() const;
    std::size_t counter_index(int source, int channel) const;
    std::atomic<std::uint64_t>& counter(std::byte* segment, int source, int channel) const;
    void check_range(const char* what, int rank, const Rows& rows) const;
    void open_to_world(std::byte* base, std::size_t bytes);

    const Node& node_;
    Watch& watch_;
    int channels_;
    SharedWindow shared_;            ///< the memory
    MPI_Win global_ = MPI_WIN_NULL;  ///< the same memory, open to the whole world
    std::vector<std::size_t> bytes_of_world_;
    bool in_flight_ = false;  ///< puts or gets that `complete` waits for
};

}  // namespace funnel
