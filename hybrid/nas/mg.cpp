#include "nas/mg.h"

#include <mpi.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "nas/breakdown.h"
#include "nas/halo.h"
#include "nas/mg_coarse.h"
#include "nas/mg_points.h"

namespace nas {
namespace {

constexpr int norm_blocks = 256;
constexpr std::uint64_t word = sizeof(double);

std::array<double, 4> minus(std::array<double, 4> weight) {
    for (double& w : weight) w = -w;
    return weight;
}

Grid local_grid(int log2_points, const RankBox& box) {
    const int n = 1 << log2_points;
    return Grid::of(n / box.px, n / box.py, n / box.pz, box.px == 1);
}

/// Cutting x costs most, a scattered access a ghost cell; cutting two axes only costs surface.
int axes_to_cut(const MgOptions& options, int ranks) {
    if (options.axes != 0 && options.axes != 2 && options.axes != 3)
        throw std::invalid_argument("--axes is 2 or 3");
    if (options.axes != 0) return options.axes;
    constexpr int most_ranks_on_two = 16;
    return ranks <= most_ranks_on_two ? 2 : 3;
}

/// The coarsest level that is still cut among the ranks: each keeps at least two points an axis, so that the
/// next finer level's points pair up.
int coarsest_distributed(const MgOptions& options, const RankBox& box) {
    const int most_cut = std::max({box.px, box.py, box.pz});
    const auto asked = std::bit_width(static_cast<unsigned>(std::max(options.coarse_points, 2))) - 1;
    return std::max<int>(asked, std::bit_width(static_cast<unsigned>(most_cut)));
}

std::uint64_t dense_bytes(const Grid& grid) {
    return (static_cast<std::uint64_t>(grid.nx + 2) * (grid.ny + 2) * (grid.nz + 2) * word + 255) / 256 * 256;
}

/// Staging memory, in order: the halo's mail, the norm's partial sums, the coarse level's dense block.
struct Places {
    std::uint64_t mail, partials, dense, end;

    static Places of(const Grid& finest, const Grid& coarsest) {
        Places p;
        p.mail = 0;
        p.partials = p.mail + Halo::mail_bytes(finest);
        p.dense = p.partials + 2 * norm_blocks * word;
        p.end = p.dense + dense_bytes(coarsest);
        return p;
    }
};

class Mg {
  public:
    Mg(funnel::Team& team, const MgClass& size, const MgOptions& options)
        : team_(team),
          size_(size),
          timed_(options.timed),
          axes_(axes_to_cut(options, team.node().world_size())),
          box_(RankBox::of(team.node().world_size(), team.node().world_rank(), axes_)),
          bottom_(coarsest_distributed(options, box_)),
          top_(size.log2_points),
          places_(Places::of(local_grid(top_, box_), local_grid(bottom_, box_))),
          fused_(options.fused && team.sharing() != funnel::Sharing::cpu),
          halo_(team, box_, local_grid(top_, box_), places_.mail, fused_ && may_read_in_place()),
          coarse_(bottom_, size.smoother) {
        if (bottom_ >= top_)
            throw std::invalid_argument("the coarse levels must be smaller than the class's grid");
        for (int level = bottom_; level <= top_; ++level) {
            u_.push_back(halo_.make_field(local_grid(level, box_)));
            r_.push_back(halo_.make_field(local_grid(level, box_)));
        }
        v_ = halo_.make_field(local_grid(top_, box_));
        choose_coarse(options);
        partials_ = team.lane().allocate(2 * norm_blocks * word);
        dense_ = team.lane().allocate(dense_bytes(local_grid(bottom_, box_)));
    }

    ~Mg() {
        // An error under way reaches its rank elsewhere; giving memory back must not raise a second one.
        try {
            team_.lane().drain();
            for (const auto& fields : {u_, r_})
                for (const Field& field : fields) halo_.release(field);
            halo_.release(v_);
            team_.lane().release(partials_);
            team_.lane().release(dense_);
        } catch (const funnel::Error&) {
        }
    }

    /// u = 0, v = the charges, r = v - A u.
    void start() {
        funnel::Task task = new_task();
        task.add_kernel(mg_zero, ZeroArguments{u(top_).data, static_cast<std::uint64_t>(v_.grid.doubles())});
        task.add_kernel(mg_zero, ZeroArguments{v_.data, static_cast<std::uint64_t>(v_.grid.doubles())});
        const std::vector<Charge> charges = mg_charges(size_, box_, v_.grid, team_.node().world());
        SetPointsArguments set{v_.data, static_cast<std::int32_t>(charges.size()), {}, {}};
        for (std::size_t i = 0; i < charges.size(); ++i) {
            set.index[i] = static_cast<std::uint64_t>(charges[i].index);
            set.value[i] = charges[i].value;
        }
        task.add_kernel(mg_set_points, set);
        team_.lane().wait(team_.lane().submit(task));
        MPI_Barrier(team_.node().world());
    }

    void residual_of_top() { residual(top_, v_); }

    void v_cycle() {
        for (int level = top_; level > bottom_ + 1; --level) {
            funnel::Task task = new_task();
            task.add_kernel(mg_restrict, restriction(level));
            halo_.exchange(r(level - 1), task);
        }
        if (coarse_on_device_)
            solve_coarse_on_device();
        else
            solve_coarse();
        for (int level = bottom_ + 1; level <= top_; ++level) {
            correct(level);
            smooth(level);
        }
    }

    /// The last residual's task, with which an iteration ends.
    funnel::Ticket end_of_iteration() const { return last_; }

    double norm_of_residual() {
        funnel::Task task = new_task();
        task.add_kernel(mg_norm, NormArguments{r(top_).grid, r(top_).data, partials_, norm_blocks});
        const std::uint64_t bytes = 2 * norm_blocks * word;
        task.add_copy_out({{team_.node().local_rank(), places_.partials}, bytes, partials_, bytes, bytes, 1});
        team_.lane().wait(team_.lane().submit(task));
        const auto* partials = reinterpret_cast<const double*>(team_.staging().local() + places_.partials);
        double mine = 0, all = 0;
        for (int block = 0; block < norm_blocks; ++block) mine += partials[block];
        MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, team_.node().world());
        return std::sqrt(all / size_.points());
    }

    bool coarse_on_device() const { return coarse_on_device_; }
    int axes() const { return axes_; }
    double waited_seconds() const { return halo_.waited_seconds(); }
    double coarse_seconds() const { return coarse_seconds_; }
    void clear_times() {
        halo_.clear_waited();
        coarse_seconds_ = 0;
        team_.lane().clear_times();
    }

  private:
    Field& u(int level) { return u_[level - bottom_]; }
    Field& r(int level) { return r_[level - bottom_]; }

    bool may_read_in_place() const {
        const Grid coarsest = local_grid(bottom_, box_);
        return coarsest.wraps_x && coarsest.ny % Around::rows_together == 0;
    }

    /// The coarse correction of a level; the bottom's comes with its ghost cells.
    Around correction(int level) { return level == bottom_ ? Around::of(u(level).data) : u(level).around; }

    funnel::Task new_task() { return halo_.begin_task(timed_); }

    /// The coarse levels go to the device where every rank's memory can be reached there and one block of
    /// threads can hold them.
    void choose_coarse(const MgOptions& options) {
        const funnel::Node& node = team_.node();
        bool can = team_.sharing() != funnel::Sharing::cpu &&
                   node.world_size() <= SolveCoarseArguments::most_ranks &&
                   bottom_ <= SolveCoarseArguments::most_log2_points;
        for (int rank = 0; rank < node.world_size(); ++rank) can = can && team_.member_of(rank) >= 0;
        if (options.coarse == Coarse::device && !can)
            throw std::invalid_argument(
                "--coarse device wants at most 16 ranks, all on one GPU that they share, and coarse levels "
                "of at "
                "most 16 points an axis");
        coarse_on_device_ = can && options.coarse != Coarse::host;
        if (!coarse_on_device_) return;
        solve_.part = r(bottom_).grid;
        solve_.log2_points = bottom_;
        solve_.px = box_.px;
        solve_.py = box_.py;
        solve_.pz = box_.pz;
        solve_.smoother = size_.smoother;
        MPI_Allgather(&r(bottom_).data, 1, MPI_UINT64_T, solve_.residual.data(), 1, MPI_UINT64_T,
                      node.world());
        MPI_Allgather(&u(bottom_).data, 1, MPI_UINT64_T, solve_.correction.data(), 1, MPI_UINT64_T,
                      node.world());
        for (int rank = 1; rank < node.world_size(); ++rank) others_.push_back(rank);
    }

    RestrictArguments restriction(int level) {
        return {r(level).grid, r(level - 1).grid, r(level - 1).data, r(level).around};
    }

    void residual(int level, const Field& base) {
        funnel::Task task = new_task();
        add_residual(task, level, base);
        last_ = halo_.exchange(r(level), task);
    }

    /// r of the level with the coarse correction applied. Fused, the correction itself is not stored, and is
    /// added to u(level) by `smooth`; else it is added here, at the lower levels to nothing.
    void correct(int level) {
        const Grid &coarse = u(level - 1).grid, &fine = u(level).grid;
        funnel::Task task = new_task();
        if (fused_) {
            task.add_kernel(mg_correct_residual,
                            CorrectResidualArguments{coarse, fine, r(level).data, correction(level - 1),
                                                     minus(mg_operator)});
        } else {
            task.add_kernel(mg_interpolate, InterpolateArguments{coarse, fine, u(level - 1).data,
                                                                 u(level).data, level < top_ ? 1 : 0});
            add_residual(task, level, level < top_ ? r(level) : v_);
        }
        halo_.exchange(r(level), task);
    }

    void smooth(int level) {
        funnel::Task task = new_task();
        if (fused_)
            task.add_kernel(mg_correct_and_smooth,
                            CorrectAndSmoothArguments{u(level - 1).grid, u(level).grid, u(level).data,
                                                      correction(level - 1), r(level).around,
                                                      level < top_ ? 1 : 0, size_.smoother});
        else
            task.add_kernel(mg_stencil, StencilArguments{u(level).grid, u(level).data, u(level).data,
                                                         r(level).around, size_.smoother});
        halo_.exchange(u(level), task);
    }

    void add_residual(funnel::Task& task, int level, const Field& base) {
        task.add_kernel(mg_stencil, StencilArguments{r(level).grid, base.data, r(level).data, u(level).around,
                                                     minus(mg_operator)});
    }

    /// Rank 0 runs the kernel for all, once all have restricted; all go on once it is done.
    void solve_coarse_on_device() {
        const bool mine = team_.node().world_rank() == 0;
        funnel::Task restricted = new_task();
        restricted.add_kernel(mg_restrict, restriction(bottom_ + 1));
        halo_.meet(restricted, mine ? others_ : std::vector<int>{});
        if (!mine) {
            halo_.meet({0});
            return;
        }
        funnel::Task solve = new_task();
        solve.add_kernel(mg_solve_coarse, solve_);
        halo_.meet(solve, {});
    }

    /// Restricts to the bottom level, gathers it everywhere, solves it on the host, and takes back this
    /// rank's part with its ghost cells.
    void solve_coarse() {
        Booked booked(coarse_seconds_);
        const Grid& grid = r(bottom_).grid;
        const int me = team_.node().local_rank(), ranks = team_.node().world_size();
        const auto points = static_cast<std::size_t>(grid.points());
        funnel::Task gather = new_task();
        gather.add_kernel(mg_restrict, restriction(bottom_ + 1));
        gather.add_kernel(mg_gather, DenseArguments{grid, r(bottom_).data, dense_, 0});
        gather.add_copy_out({{me, places_.dense}, points * word, dense_, points * word, points * word, 1});
        team_.lane().wait(team_.lane().submit(gather));

        gathered_.resize(points * ranks);
        auto* dense = reinterpret_cast<double*>(team_.staging().local() + places_.dense);
        MPI_Allgather(dense, static_cast<int>(points), MPI_DOUBLE, gathered_.data(), static_cast<int>(points),
                      MPI_DOUBLE, team_.node().world());
        const Grid& whole = coarse_.grid();
        for (int rank = 0; rank < ranks; ++rank) {
            const RankBox its = RankBox::of(ranks, rank, axes_);
            const double* from = gathered_.data() + rank * points;
            for (int z = 0; z < grid.nz; ++z)
                for (int y = 0; y < grid.ny; ++y, from += grid.nx)
                    std::memcpy(coarse_.residual() + whole.at(1 + its.x * grid.nx, 1 + its.y * grid.ny + y,
                                                              1 + its.z * grid.nz + z),
                                from, grid.nx * word);
        }
        coarse_.solve();

        const std::size_t width = grid.nx + 2;
        for (int z = 0; z < grid.nz + 2; ++z)
            for (int y = 0; y < grid.ny + 2; ++y, dense += width)
                std::memcpy(dense,
                            coarse_.correction() +
                                whole.at(box_.x * grid.nx, box_.y * grid.ny + y, box_.z * grid.nz + z),
                            width * word);
        const std::uint64_t bytes = width * (grid.ny + 2) * (grid.nz + 2) * word;
        funnel::Task scatter = new_task();
        scatter.add_copy_in({{me, places_.dense}, bytes, dense_, bytes, bytes, 1});
        scatter.add_kernel(mg_scatter, DenseArguments{grid, u(bottom_).data, dense_, 1});
        team_.lane().submit(scatter);
    }

    funnel::Team& team_;
    const MgClass& size_;
    bool timed_;
    int axes_;
    RankBox box_;
    int bottom_, top_;  ///< levels: log2 of the points an axis
    Places places_;
    bool fused_;  ///< the correction is not stored
    Halo halo_;
    CoarseSolver coarse_;
    std::vector<Field> u_, r_;
    Field v_;
    bool coarse_on_device_ = false;
    SolveCoarseArguments solve_{};
    std::vector<int> others_;  ///< every rank but 0
    funnel::Ticket last_ = 0;
    funnel::DeviceAddress partials_ = 0, dense_ = 0;
    std::vector<double> gathered_;
    double coarse_seconds_ = 0;
};

}  // namespace

MgMemory mg_memory(const MgClass& size, const MgOptions& options, int ranks, bool cpu) {
    const RankBox box = RankBox::of(ranks, 0, axes_to_cut(options, ranks));
    const Grid finest = local_grid(size.log2_points, box);
    const int bottom = coarsest_distributed(options, box);
    const std::uint64_t end = Places::of(finest, local_grid(bottom, box)).end;
    std::uint64_t fields = 0;
    constexpr std::uint64_t slack = 512;  // allocations are rounded up to 256 bytes
    if (cpu) {
        for (int level = bottom; level <= size.log2_points; ++level)
            fields += 2 * (static_cast<std::uint64_t>(local_grid(level, box).doubles()) * word + slack);
        fields += static_cast<std::uint64_t>(finest.doubles()) * word + slack;
        fields += 2 * norm_blocks * word + slack + dense_bytes(local_grid(bottom, box)) + slack;
        fields += Halo::mail_bytes(finest) + 2 * slack;
    }
    return {end + fields + slack, (end + slack - 1) / slack * slack};
}

MgResult run_mg(funnel::Team& team, const MgClass& size, const MgOptions& options, int iterations) {
    Mg mg(team, size, options);
    mg.start();  // one untimed iteration [NPB MG]
    mg.residual_of_top();
    mg.v_cycle();
    mg.residual_of_top();
    team.lane().drain();

    mg.start();
    mg.clear_times();
    MPI_Barrier(team.node().world());
    MgResult result;
    const Stopwatch total;
    mg.residual_of_top();
    mg.norm_of_residual();
    // A device gets an iteration ahead of the one that is waited for, so that it never runs dry.
    const bool ahead = team.sharing() != funnel::Sharing::cpu;
    double ended = total.seconds();
    funnel::Ticket before = 0;
    const auto book_end_of = [&](funnel::Ticket iteration) {
        team.lane().wait(iteration);
        const double now = total.seconds();
        result.iteration_seconds.push_back(now - ended);
        ended = now;
    };
    for (int iteration = 0; iteration < iterations; ++iteration) {
        mg.v_cycle();
        mg.residual_of_top();
        if (!ahead) book_end_of(mg.end_of_iteration());
        if (ahead && iteration > 0) book_end_of(before);
        before = mg.end_of_iteration();
    }
    if (ahead) book_end_of(before);
    result.coarse_on_device = mg.coarse_on_device();
    result.axes = mg.axes();
    result.norm = mg.norm_of_residual();
    result.seconds = total.seconds();
    result.kernel_seconds = team.lane().time_under(0).kernels;
    result.copy_seconds = team.lane().time_under(0).copy_in + team.lane().time_under(0).copy_out;
    result.waited_seconds = mg.waited_seconds();
    result.coarse_seconds = mg.coarse_seconds();
    return result;
}

}  // namespace nas
