#include "nas/mg.h"

#include <mpi.h>

#include <cmath>
#include <stdexcept>

#include "nas/breakdown.h"
#include "nas/halo.h"
#include "nas/mg_coarse.h"
#include "nas/mg_layout.h"
#include "nas/mg_points.h"

namespace nas {
namespace {

constexpr std::uint64_t word = sizeof(double);

std::array<double, 4> minus(std::array<double, 4> weight) {
    for (double& w : weight) w = -w;
    return weight;
}

class Mg {
  public:
    Mg(funnel::Team& team, const MgClass& size, const MgOptions& options)
        : team_(team),
          size_(size),
          timed_(options.timed),
          layout_(MgLayout::of(size, options, team.node().world_size(), team.node().world_rank())),
          bottom_(layout_.bottom),
          top_(layout_.top),
          fused_(options.fused && team.sharing() != funnel::Sharing::cpu),
          halo_(team, layout_.box, layout_.grid(top_), layout_.mail, fused_ && may_read_in_place()),
          coarse_(bottom_, size.smoother) {
        for (int level = bottom_; level <= top_; ++level) {
            u_.push_back(halo_.make_field(layout_.grid(level)));
            r_.push_back(halo_.make_field(layout_.grid(level)));
        }
        v_ = halo_.make_field(layout_.grid(top_));
        choose_coarse(options);
        partials_ = team.lane().allocate(MgLayout::norm_bytes);
        dense_ = team.lane().allocate(layout_.dense_bytes());
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
        const std::vector<Charge> charges = mg_charges(size_, layout_.box, v_.grid, team_.node().world());
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
        task.add_kernel(mg_norm, NormArguments{r(top_).grid, r(top_).data, partials_, MgLayout::norm_blocks});
        const std::uint64_t bytes = MgLayout::norm_bytes;
        task.add_copy_out({{team_.node().local_rank(), layout_.partials}, bytes, partials_, bytes, bytes, 1});
        team_.lane().wait(team_.lane().submit(task));
        const auto* partials = reinterpret_cast<const double*>(team_.staging().local() + layout_.partials);
        double mine = 0, all = 0;
        for (int block = 0; block < MgLayout::norm_blocks; ++block) mine += partials[block];
        MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, team_.node().world());
        return std::sqrt(all / size_.points());
    }

    bool coarse_on_device() const { return coarse_on_device_; }
    int axes() const { return layout_.axes; }
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
        const Grid coarsest = layout_.grid(bottom_);
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
        solve_.px = layout_.box.px;
        solve_.py = layout_.box.py;
        solve_.pz = layout_.box.pz;
        solve_.smoother = size_.smoother;
        MPI_Allgather(&r(bottom_).data, 1, MPI_UINT64_T, solve_.residual.data(), 1, MPI_UINT64_T,
                      node.world());
        MPI_Allgather(&u(bottom_).data, 1, MPI_UINT64_T, solve_.correction.data(), 1, MPI_UINT64_T,
                      node.world());
        for (int rank = 1; rank < node.world_size(); ++rank) peers_.push_back(rank);
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
        halo_.meet(restricted, mine ? peers_ : std::vector<int>{});
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
        gather.add_copy_out({{me, layout_.dense}, points * word, dense_, points * word, points * word, 1});
        team_.lane().wait(team_.lane().submit(gather));

        gathered_.resize(points * ranks);
        auto* dense = reinterpret_cast<double*>(team_.staging().local() + layout_.dense);
        MPI_Allgather(dense, static_cast<int>(points), MPI_DOUBLE, gathered_.data(), static_cast<int>(points),
                      MPI_DOUBLE, team_.node().world());
        for (int rank = 0; rank < ranks; ++rank)
            coarse_.put_residual(RankBox::of(ranks, rank, layout_.axes), grid,
                                 gathered_.data() + rank * points);
        coarse_.solve();
        coarse_.get_correction(layout_.box, grid, dense);

        const std::uint64_t bytes =
            static_cast<std::uint64_t>(grid.nx + 2) * (grid.ny + 2) * (grid.nz + 2) * word;
        funnel::Task scatter = new_task();
        scatter.add_copy_in({{me, layout_.dense}, bytes, dense_, bytes, bytes, 1});
        scatter.add_kernel(mg_scatter, DenseArguments{grid, u(bottom_).data, dense_, 1});
        team_.lane().submit(scatter);
    }

    funnel::Team& team_;
    const MgClass& size_;
    bool timed_;
    MgLayout layout_;
    int bottom_, top_;  ///< as in the layout
    bool fused_;        ///< the correction is not stored
    Halo halo_;
    CoarseSolver coarse_;
    std::vector<Field> u_, r_;
    Field v_;
    bool coarse_on_device_ = false;
    SolveCoarseArguments solve_{};
    std::vector<int> peers_;  ///< every rank but 0
    funnel::Ticket last_ = 0;
    funnel::DeviceAddress partials_ = 0, dense_ = 0;
    std::vector<double> gathered_;
    double coarse_seconds_ = 0;
};

}  // namespace

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
