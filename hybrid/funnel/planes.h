#pragma once

#include <cstdint>
#include <vector>

#include "funnel/staging.h"

namespace funnel {

/// The all-to-all transpose of a slab decomposition, a few planes at a time.
///
/// Every rank holds `planes` planes, cut into one block of `block_bytes` for each rank. Afterwards rank q
/// holds block q of every plane of every rank, in the order of the global plane number: block of plane p at
/// `p · block_bytes` of its receiving area. A plane is sent as soon as it is ready. Nobody reads before all
/// planes are there, so a source waits once, behind its last plane, and signals once.
class PlaneExchange {
  public:
    /// `receive_offset`: where the receiving area starts in every rank's staging memory; `outbox_offset`: an
    /// area of `planes · world · block_bytes` for what must be handed to another node (or to everybody, when
    /// packed).
    PlaneExchange(Staging& staging, int channel, std::uint64_t receive_offset, std::uint64_t outbox_offset);

    /// Starts a new exchange; the previous one must be over on all ranks.
    void begin(int planes, std::uint64_t block_bytes);

    /// Where this rank's plane p has to be written for `target`, block by block (consecutive planes follow
    /// each other): straight into the target's memory on this node, else into the outbox.
    HostPlace place_for(int target, int plane) const;
    /// The same, always in the outbox: laid out so that all planes for one target are contiguous.
    HostPlace outbox_place_for(int target, int plane) const;
    bool direct(int target) const { return staging_.at(target) != nullptr; }

    /// Planes [first, first + count) are complete where `place_for` said: starts what must travel, and with
    /// the last of the planes waits for all of it and tells the targets.
    void deliver(int first, int count);
    /// All planes lie in the outbox: one put to each target.
    void deliver_packed();

    /// Waits until all planes of all ranks have arrived here.
    void wait();

  private:
    std::uint64_t receive_place(int plane) const;
    void hand_over(int target, int first, int count);

    Staging& staging_;
    std::vector<int> targets_;  ///< starting with the neighbour, so that not all flood rank 0 first
    int channel_;
    std::uint64_t receive_offset_, outbox_offset_;
    int planes_ = 0;
    std::uint64_t block_bytes_ = 0;
    std::uint64_t delivered_ = 0;  ///< planes of all exchanges so far
    std::uint64_t expected_ = 0;   ///< from each source, over all exchanges so far
};

}  // namespace funnel
