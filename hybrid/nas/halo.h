#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "funnel/team.h"
#include "nas/grid.h"
#include "nas/kernels.h"

namespace nas {

/// The ranks as a periodic box of px × py × pz, x fastest.
struct RankBox {
    int px, py, pz;
    int x, y, z;  ///< this rank's place

    /// Powers of two, z cut first, then y, then, with three `axes`, x: faces that lie contiguous in memory
    /// travel most.
    static RankBox of(int ranks, int rank, int axes = 3);
    int rank_at(int dx, int dy, int dz) const;
};

/// A distributed grid function: this rank's array and, where they can be reached in place, its neighbours'.
struct Field {
    Grid grid;
    std::uint64_t data;
    std::array<std::uint64_t, directions> neighbour;  ///< 0: out of reach, or read where it lies
    Around around;                                    ///< for kernels
};

/// Keeps the ghost cells of fields current, all 26 directions in one step.
///
/// A neighbour whose array lies in the same memory (the same GPU through its owner, or the same node on CPUs)
/// is read in place [U11 §5.2.2], either to fill the ghost cells or, `in_place`, by the kernels themselves,
/// which need none then; faces for the others are packed on the device, one message to a rank, and travel
/// through staging memory. Everybody calls in the same order, and every field's exchange is followed
/// by another one before the field is written again: the order of exchanges alone then keeps a neighbour's
/// array untouched while it is read.
class Halo {
  public:
    /// Staging memory that a halo of this finest grid takes.
    static std::size_t mail_bytes(const Grid& finest);

    /// `mail_offset`: where that memory starts, the same on every rank. `in_place`: kernels find the points
    /// of neighbours in the same memory through `Field::around`, and only the others' ghost cells are filled;
    /// for whole rows.
    Halo(funnel::Team& team, const RankBox& box, const Grid& finest, std::uint64_t mail_offset,
         bool in_place = false);
    ~Halo();

    /// Collective: a field with zeroed memory on every rank.
    Field make_field(const Grid& grid);
    void release(const Field& field);

    /// Everything is submitted in tasks that begin here: what the last exchange left to do comes first in
    /// them, which spares the owner a task of its own for it.
    funnel::Task begin_task(bool timed = false);

    /// Runs `producer`, whose kernels write the field's interior; the next task fills the field's ghost cells
    /// on every rank. Returns the producer's ticket.
    funnel::Ticket exchange(const Field& field, funnel::Task producer);

    /// Runs `producer`; the next task of this rank waits for the producers of those `ranks` of the world, all
    /// of them within this rank's group. Every rank of the group takes part in the same order.
    void meet(funnel::Task producer, const std::vector<int>& ranks);
    /// A meeting to which this rank brings nothing.
    void meet(const std::vector<int>& ranks);

    double waited_seconds() const { return waited_; }
    void clear_waited() { waited_ = 0; }

  private:
    /// The directions in which the neighbour is one and the same rank; they travel in one message.
    struct Bundle {
        std::vector<int> directions;
        int source, target;             ///< ranks of the world
        bool source_near, target_near;  ///< reachable in place
        std::uint64_t finest_at;        ///< doubles from the start of the mail
    };
    void wait_next_for(const std::vector<int>& ranks);
    std::uint64_t inbox(int parity) const { return mail_offset_ + parity * mail_; }
    std::uint64_t outbox() const { return mail_offset_ + 2 * mail_; }

    funnel::Team& team_;
    RankBox box_;
    std::uint64_t mail_offset_;
    std::uint64_t mail_;  ///< bytes of one box of mail
    std::vector<Bundle> bundles_;
    std::vector<int> near_ranks_;   ///< other ranks reachable in place
    std::vector<int> far_targets_;  ///< ranks that messages go to
    bool any_far_ = false, in_place_;
    funnel::DeviceAddress packed_out_ = 0, packed_in_ = 0;
    std::uint64_t epoch_ = 0;
    funnel::Task left_;  ///< for the next task to begin with
    double waited_ = 0;
};

}  // namespace nas
