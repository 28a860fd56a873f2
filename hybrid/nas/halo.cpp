#include "nas/halo.h"

#include <algorithm>
#include <map>
#include <stdexcept>

#include "nas/breakdown.h"

namespace nas {
namespace {

constexpr int mail_channel = 1, ready_channel = 2;

std::uint64_t ghost_cells(const Grid& grid) {
    std::uint64_t cells = 0;
    for (int d = 0; d < directions; ++d)
        if (d != no_direction) cells += static_cast<std::uint64_t>(ghost_box(grid, d).cells());
    return cells;
}

std::uint64_t box_bytes(const Grid& finest) {
    return (ghost_cells(finest) * sizeof(double) + 255) / 256 * 256;
}

}  // namespace

RankBox RankBox::of(int ranks, int rank, int axes) {
    if (ranks < 1 || (ranks & (ranks - 1)) != 0)
        throw std::invalid_argument("MG wants a power of two of ranks");
    RankBox box{1, 1, 1, 0, 0, 0};
    for (int axis = 0, left = ranks; left > 1; left /= 2, axis = (axis + 1) % axes)
        (axis == 0 ? box.pz : axis == 1 ? box.py : box.px) *= 2;
    box.x = rank % box.px;
    box.y = rank / box.px % box.py;
    box.z = rank / (box.px * box.py);
    return box;
}

int RankBox::rank_at(int dx, int dy, int dz) const {
    const auto wrap = [](int i, int n) { return (i % n + n) % n; };
    return wrap(x + dx, px) + px * (wrap(y + dy, py) + py * wrap(z + dz, pz));
}

std::size_t Halo::mail_bytes(const Grid& finest) {
    return 3 * box_bytes(finest);
}

Halo::Halo(funnel::Team& team, const RankBox& box, const Grid& finest, std::uint64_t mail_offset,
           bool in_place)
    : team_(team), box_(box), mail_offset_(mail_offset), mail_(box_bytes(finest)), in_place_(in_place) {
    if (in_place && (!finest.wraps_x || team.sharing() == funnel::Sharing::cpu))
        throw std::invalid_argument("neighbours are read in place on a device, where rows are whole");
    // Every rank sees the same shifts, so this order, and with it the mail's layout, is the same everywhere.
    std::map<int, Bundle> by_shift;
    for (int d = 0; d < directions; ++d) {
        if (d == no_direction) continue;
        const Direction to = direction(d);
        const int shift = ((to.x + box.px) % box.px) +
                          box.px * (((to.y + box.py) % box.py) + box.py * ((to.z + box.pz) % box.pz));
        Bundle& bundle = by_shift[shift];
        bundle.directions.push_back(d);
        bundle.source = box.rank_at(to.x, to.y, to.z);
        bundle.target = box.rank_at(-to.x, -to.y, -to.z);
    }
    std::uint64_t at = 0;
    for (auto& [shift, bundle] : by_shift) {
        bundle.source_near = team.member_of(bundle.source) >= 0;
        bundle.target_near = team.member_of(bundle.target) >= 0;
        any_far_ = any_far_ || !bundle.source_near || !bundle.target_near;
        bundle.finest_at = at;
        if (!bundle.target_near) far_targets_.push_back(bundle.target);
        for (int d : bundle.directions) at += static_cast<std::uint64_t>(ghost_box(finest, d).cells());
        for (int rank : {bundle.source, bundle.target})
            if (rank != team.node().world_rank() && team.member_of(rank) >= 0 &&
                std::find(near_ranks_.begin(), near_ranks_.end(), rank) == near_ranks_.end())
                near_ranks_.push_back(rank);
        bundles_.push_back(bundle);
    }
    if (any_far_) {
        packed_out_ = team.lane().allocate(mail_);
        packed_in_ = team.lane().allocate(mail_);
    }
}

Halo::~Halo() {
    // An error under way reaches its rank elsewhere; giving memory back must not raise a second one.
    try {
        if (!any_far_) return;
        team_.lane().release(packed_out_);
        team_.lane().release(packed_in_);
    } catch (const funnel::Error&) {
    }
}

Field Halo::make_field(const Grid& grid) {
    Field field{
        grid, team_.lane().allocate(static_cast<std::size_t>(grid.doubles()) * sizeof(double)), {}, {}};
    field.around = Around::of(field.data);
    funnel::Task zero;
    zero.add_kernel(mg_zero, ZeroArguments{field.data, static_cast<std::uint64_t>(grid.doubles())});
    team_.lane().wait(team_.lane().submit(zero));

    // On a device an address means the same to all members. On CPUs each process maps the memory elsewhere.
    const funnel::Node& node = team_.node();
    const bool in_staging = team_.sharing() == funnel::Sharing::cpu;
    const std::uint64_t mine =
        in_staging ? field.data - reinterpret_cast<std::uint64_t>(team_.staging().local()) : field.data;
    std::vector<std::uint64_t> all(node.world_size());
    MPI_Allgather(&mine, 1, MPI_UINT64_T, all.data(), 1, MPI_UINT64_T, node.world());
    for (const Bundle& bundle : bundles_)
        for (int d : bundle.directions) {
            if (!bundle.source_near) continue;
            const std::uint64_t its =
                all[bundle.source] +
                (in_staging ? reinterpret_cast<std::uint64_t>(team_.staging().at(bundle.source)) : 0);
            const Direction to = direction(d);
            // Kernels that cannot wrap around a row's end find it in the ghost cells all the same.
            if (!in_place_ || to.x != 0)
                field.neighbour[d] = its;
            else
                field.around.data[(to.y + 1) + 3 * (to.z + 1)] = beyond(grid, its, to.y, to.z);
        }
    return field;
}

void Halo::release(const Field& field) {
    team_.lane().release(field.data);
}

funnel::Task Halo::begin_task(bool timed) {
    funnel::Task task = left_;
    task.timed = timed ? 1 : 0;
    left_ = {};
    return task;
}

void Halo::wait_next_for(const std::vector<int>& ranks) {
    for (int rank : ranks) left_.add_wait(team_.member_of(rank), epoch_);
}

void Halo::meet(funnel::Task producer, const std::vector<int>& ranks) {
    producer.publish = ++epoch_;
    team_.lane().submit(producer);
    wait_next_for(ranks);
}

void Halo::meet(const std::vector<int>& ranks) {
    ++epoch_;
    wait_next_for(ranks);
}

funnel::Ticket Halo::exchange(const Field& field, funnel::Task producer) {
    funnel::Lane& lane = team_.lane();
    funnel::Staging& staging = team_.staging();
    const bool on_cpu = team_.sharing() == funnel::Sharing::cpu;
    const int parity = static_cast<int>(++epoch_ % 2);
    constexpr std::uint64_t word = sizeof(double);

    FillArguments filling{field.grid, field.data, 0, field.neighbour};
    PackArguments packing{field.grid, field.data, packed_out_, {}};
    packing.at.fill(-1);
    for (const Bundle& bundle : bundles_) {
        std::uint64_t cells = 0;
        for (int d : bundle.directions) {
            if (!bundle.target_near) packing.at[d] = static_cast<std::int32_t>(bundle.finest_at + cells);
            if (!bundle.source_near) {
                filling.packed |= 1u << d;
                filling.source[d] = packed_in_ + (bundle.finest_at + cells) * word;
            }
            cells += static_cast<std::uint64_t>(ghost_box(field.grid, d).cells());
        }
        const std::uint64_t at = bundle.finest_at * word, bytes = cells * word;
        if (!bundle.source_near)
            left_.add_copy_in(
                {{staging.node().local_rank(), inbox(parity) + at}, bytes, packed_in_ + at, bytes, bytes, 1});
        if (!bundle.target_near) {
            const int local = staging.node().local_rank_of(bundle.target);
            const funnel::HostPlace place =
                local >= 0 ? funnel::HostPlace{local, inbox(parity) + at}
                           : funnel::HostPlace{staging.node().local_rank(), outbox() + at};
            producer.add_copy_out({place, bytes, packed_out_ + at, bytes, bytes, 1});
        }
    }
    if (any_far_) producer.add_kernel(mg_pack_ghosts, packing);
    if (any_far_ || !in_place_) left_.add_kernel(mg_fill_ghosts, filling);

    if (!on_cpu && !near_ranks_.empty()) {
        producer.publish = epoch_;
        wait_next_for(near_ranks_);
    }
    const funnel::Ticket produced = lane.submit(producer);
    if (on_cpu) staging.signal(near_ranks_, ready_channel, epoch_);
    if (any_far_ || on_cpu) {
        Booked booked(waited_);
        if (any_far_) lane.wait(produced);
        for (const Bundle& bundle : bundles_) {
            if (staging.at(bundle.target) != nullptr) continue;  // the device wrote there
            std::uint64_t cells = 0;
            for (int d : bundle.directions)
                cells += static_cast<std::uint64_t>(ghost_box(field.grid, d).cells());
            const std::uint64_t at = bundle.finest_at * word;
            staging.put(bundle.target, inbox(parity) + at, staging.local() + outbox() + at, cells * word);
        }
        staging.signal(far_targets_, mail_channel, epoch_);
        for (const Bundle& bundle : bundles_)
            if (!bundle.source_near) staging.wait_for(bundle.source, mail_channel, epoch_, "ghost cells");
        if (on_cpu)
            for (int rank : near_ranks_) staging.wait_for(rank, ready_channel, epoch_, "a finished stencil");
    }
    return produced;
}

}  // namespace nas
