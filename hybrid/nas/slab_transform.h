#pragma once

#include <complex>
#include <cstdint>
#include <memory>
#include <vector>

#include "funnel/planes.h"
#include "funnel/team.h"
#include "nas/breakdown.h"

namespace nas {

/// One 3D transform of a slab decomposition: 2D transforms of this rank's planes, the transpose, 1D
/// transforms of the lines that have become local. Everything starts and ends in host memory (the team's
/// staging memory).
struct Stage {
    int planes, rows,
        nx;               ///< of the whole grid: the slabs cut `planes` before and `rows` after the transpose
    int sign;             ///< of the exponent
    bool evolve = false;  ///< multiply by exp(decay · k²) first
    double decay = 0;
    bool regroup = false;  ///< leave [row][line][x] at `from` instead of [line][row][x] in the receiving area
};

/// The two orders of [U11 §4.1.1].
enum class Algorithm {
    packed_slabs,  ///< all planes, then one exchange
    slabs,         ///< each plane (or few) put as soon as it is done
};

/// Where the blocks of the transpose pass: through host memory, or inside the memory of the one GPU that all
/// ranks share and between the GPUs of one node.
enum class Exchange { automatic, host, device };

struct SlabOptions {
    Algorithm algorithm = Algorithm::slabs;
    Exchange exchange = Exchange::automatic;  ///< automatic: on the device where it can, for slabs
    int streams = 3;                          ///< of each rank, on a device
    /// What one task moves, about; 0: an eighth of the slab, 1 to 32 MiB. On a core, of a message to another
    /// node; 0: a quarter.
    std::size_t chunk_bytes = 0;
    bool transposed_lines = false;  ///< 1D transforms on contiguous lines, between two tiled transposes
    bool timed = false;             ///< measure the device's share; costs a few microseconds a task
};

class SlabTransform {
  public:
    virtual ~SlabTransform() = default;
    /// Collective. The slab to transform lies at `from` in staging memory; the transpose arrives at
    /// `receive`. `next`: the stage that the next call will run, which may be begun already; it reads the
    /// same `from`. All ranks have run a stage before any of them comes back for the one after the next.
    virtual void run(const Stage& stage, const Stage* next) = 0;
    void run(const Stage& stage) { run(stage, nullptr); }

    /// The place, in points from `receive`, of a point of a stage that was not regrouped.
    virtual std::size_t result_at(const Stage& stage, int line, int row, int x) const = 0;

    const Breakdown& breakdown() const { return breakdown_; }
    Breakdown& breakdown() { return breakdown_; }

  protected:
    Breakdown breakdown_;
};

/// What one task moves, about: small enough that filling and draining the pipeline of copies and kernels is a
/// small part of a phase, and large enough that a task's fixed cost is too.
std::uint64_t task_bytes(const SlabOptions& options, std::uint64_t slab_bytes);

/// [line][row][x], which the transforms through host memory leave.
std::size_t result_by_lines(const Stage& stage, int ranks, int line, int row, int x);

/// Where the slabs lie in every rank's staging memory, in bytes.
struct SlabLayout {
    std::uint64_t from, receive, outbox;
};

/// On this rank's core.
std::unique_ptr<SlabTransform> make_host_slab_transform(funnel::Team& team, const SlabLayout& layout,
                                                        const SlabOptions& options);
/// On the device behind the team's lane, a few planes a task; copies and kernels of different tasks overlap.
std::unique_ptr<SlabTransform> make_device_slab_transform(funnel::Team& team, const SlabLayout& layout,
                                                          const SlabOptions& options);
/// The same with the transpose inside the GPU's memory, or between the memories of a node's GPUs; for teams
/// that `can_transpose_on_device`. Collective; nullptr where a GPU has no room for two more slabs a rank, or
/// does not reach another one.
std::unique_ptr<SlabTransform> make_resident_slab_transform(funnel::Team& team, const SlabLayout& layout,
                                                            const SlabOptions& options,
                                                            std::uint64_t slab_bytes);
/// Whether all ranks share one GPU's memory, or have GPUs of one node.
bool can_transpose_on_device(const funnel::Team& team);

}  // namespace nas
