// Ranks and their owner: results come back to the rank that asked, dependencies across ranks hold, faults
// travel back and leave everybody else working.
#include <numeric>
#include <stdexcept>
#include <vector>

#include "tests/check.h"
#include "tests/team_for_tests.h"

namespace {

using funnel::Fault;
constexpr std::uint64_t bytes = 1024;
constexpr std::uint32_t failing_kernel = 100, adding_kernel = 101, noting_kernel = 102;

struct AddArguments {
    std::uint64_t from, to, count;
};

/// Notes at `to[at]` the stream on which it runs.
struct NoteArguments {
    std::uint64_t to, at;
};

void add_test_kernels(funnel::KernelTable& table) {
    nas::add_host_kernels(table);
    table.add(failing_kernel, [](void*, const void*) { throw std::runtime_error("a kernel that breaks"); });
    table.add(adding_kernel, [](void*, const void* arguments) {
        const auto& a = *static_cast<const AddArguments*>(arguments);
        for (std::uint64_t i = 0; i < a.count; ++i)
            reinterpret_cast<double*>(a.to)[i] += reinterpret_cast<const double*>(a.from)[i];
    });
    table.add(noting_kernel, [](void* stream, const void* arguments) {
        const auto& a = *static_cast<const NoteArguments*>(arguments);
        reinterpret_cast<double*>(a.to)[a.at] = static_cast<double>(reinterpret_cast<std::intptr_t>(stream));
    });
}

funnel::Copy whole(const funnel::Team& team, std::uint64_t offset, funnel::DeviceAddress device) {
    return {{team.node().local_rank(), offset}, bytes, device, bytes, bytes, 1};
}

/// More tasks than the rank may keep open, on several streams; each adds one.
void floods(funnel::Team& team) {
    funnel::Lane& lane = team.lane();
    constexpr int streams = 3, rounds = 1000;
    auto* host = reinterpret_cast<double*>(team.staging().local());
    std::fill_n(host, bytes / sizeof(double), 1.0);
    std::vector<funnel::DeviceAddress> sums;
    const auto ones = lane.allocate(bytes);
    funnel::Task load;
    load.add_copy_in(whole(team, 0, ones));
    lane.wait(lane.submit(load));
    for (int stream = 0; stream < streams; ++stream) {
        sums.push_back(lane.allocate(bytes));
        funnel::Task zero;
        zero.add_kernel(nas::mg_zero, nas::ZeroArguments{sums[stream], bytes / sizeof(double)});
        lane.wait(lane.submit(zero));
    }
    for (int i = 0; i < rounds; ++i) {
        funnel::Task task;
        task.stream = static_cast<std::uint32_t>(i % streams);
        task.timed = i % 2;
        task.add_kernel(adding_kernel, AddArguments{ones, sums[i % streams], bytes / sizeof(double)});
        lane.submit(task);
    }
    double total = 0;
    for (int stream = 0; stream < streams; ++stream) {
        funnel::Task task;
        task.stream = static_cast<std::uint32_t>(stream);
        task.add_copy_out(whole(team, bytes, sums[stream]));
        lane.wait(lane.submit(task));
        total += host[bytes / sizeof(double)];
    }
    CHECK(total == rounds);
    CHECK(lane.time_under(0).kernels > 0);
    lane.release(ones);
    for (auto sum : sums) lane.release(sum);
}

/// A ring: each member adds its left neighbour's cell to its own, once the left one's is done. Submitted in
/// whatever order the ranks happen to run, so the owner must hold tasks back.
void depends_on_another_rank(funnel::Team& team) {
    if (team.sharing() != funnel::Sharing::funneled) return;
    funnel::Lane& lane = team.lane();
    const auto cell = lane.allocate(bytes);
    auto* host = reinterpret_cast<double*>(team.staging().local());
    std::fill_n(host, bytes / sizeof(double), 1.0);
    funnel::Task load;
    load.add_copy_in(whole(team, 0, cell));
    lane.wait(lane.submit(load));

    const funnel::Node& node = team.node();
    std::vector<std::uint64_t> cells(node.world_size());
    MPI_Allgather(&cell, 1, MPI_UINT64_T, cells.data(), 1, MPI_UINT64_T, node.world());
    int left = -1, members = 0;
    for (int rank = 0; rank < node.world_size(); ++rank) {
        if (team.member_of(rank) < 0) continue;
        ++members;
        if (team.member_of(rank) == lane.member() - 1) left = rank;
    }
    funnel::Task add;
    add.publish = 1;
    if (left >= 0) {
        add.add_wait(lane.member() - 1, 1);
        add.add_kernel(adding_kernel, AddArguments{cells[left], cell, bytes / sizeof(double)});
    }
    add.add_copy_out(whole(team, bytes, cell));
    if (lane.member() == 0) MPI_Barrier(node.world());  // the first one comes last
    const funnel::Ticket ticket = lane.submit(add);
    if (lane.member() != 0) MPI_Barrier(node.world());
    lane.wait(ticket);
    CHECK(host[bytes / sizeof(double)] == lane.member() + 1);
    CHECK(members > 1 || node.world_size() == 1);
    MPI_Barrier(node.world());
    lane.release(cell);
}

/// Equal kernels of all members run as one launch, on one stream, and a copy of one member comes after its
/// own. The gate opens last, so every member's tasks are in its line by then.
void equal_kernels_are_merged(funnel::Team& team) {
    if (team.sharing() != funnel::Sharing::funneled) return;
    constexpr std::uint64_t rounds = 20, gate = 1000;
    funnel::Lane& lane = team.lane();
    const auto notes = lane.allocate(bytes);
    funnel::Ticket last = 0;
    for (std::uint64_t round = 0; round < rounds; ++round) {
        funnel::Task task;
        task.add_kernel(noting_kernel, NoteArguments{notes, round});
        if (round == 0) task.add_wait(0, gate);
        lane.submit(task);
    }
    funnel::Task copy;
    copy.add_copy_out(whole(team, 0, notes));
    last = lane.submit(copy);
    MPI_Barrier(team.node().world());
    if (lane.member() == 0) {
        funnel::Task open;
        open.stream = 1;
        open.publish = gate;
        lane.submit(open);
    }
    lane.wait(last);
    const auto* streams = reinterpret_cast<const double*>(team.staging().local());
    std::vector<double> first_streams(team.node().world_size());
    MPI_Allgather(streams, 1, MPI_DOUBLE, first_streams.data(), 1, MPI_DOUBLE, team.node().world());
    for (std::uint64_t round = 1; round < rounds; ++round) CHECK(streams[round] == streams[0]);
    for (int rank = 0; rank < team.node().world_size(); ++rank)
        if (team.member_of(rank) >= 0) CHECK(first_streams[rank] == streams[0]);
    MPI_Barrier(team.node().world());
    lane.release(notes);
}

void faults_come_back(funnel::Team& team) {
    funnel::Lane& lane = team.lane();
    const auto memory = lane.allocate(bytes);
    const auto run = [&](const funnel::Task& task) { lane.wait(lane.submit(task)); };

    CHECK_FAULT(Fault::allocation_refused, lane.allocate(std::size_t{1} << 40));
    CHECK_FAULT(Fault::wrong_use, lane.release(memory + 8));
    funnel::Task beyond_staging;
    beyond_staging.add_copy_in(whole(team, team.staging().bytes_of(team.node().world_rank()), memory));
    CHECK_FAULT(Fault::out_of_range, run(beyond_staging));
    funnel::Task nobody;
    nobody.add_copy_in({{team.node().local_size(), 0}, bytes, memory, bytes, bytes, 1});
    CHECK_FAULT(Fault::out_of_range, run(nobody));
    funnel::Task beyond_device;
    beyond_device.add_copy_out({{team.node().local_rank(), 0}, bytes, memory + bytes, bytes, bytes, 1});
    CHECK_FAULT(Fault::out_of_range, run(beyond_device));
    funnel::Task wrapping;
    wrapping.add_copy_in({{team.node().local_rank(), ~std::uint64_t{0} - 8}, bytes, memory, bytes, bytes, 1});
    CHECK_FAULT(Fault::out_of_range, run(wrapping));
    funnel::Task unknown;
    unknown.add_kernel(9999, 0);
    CHECK_FAULT(Fault::unknown_kernel, run(unknown));
    funnel::Task stranger;
    stranger.add_wait(63, 0);
    CHECK_FAULT(Fault::wrong_use, run(stranger));

    funnel::Task good;
    good.add_kernel(nas::mg_zero, nas::ZeroArguments{memory, bytes / sizeof(double)});
    run(good);
    lane.release(memory);
}

/// A broken GPU serves no more: everybody who shares it hears of it, also who asks later.
void a_broken_device_tells_everybody(funnel::Team& team) {
    funnel::Lane& lane = team.lane();
    MPI_Barrier(team.node().world());
    if (lane.member() == 0) {
        funnel::Task bad;
        bad.add_kernel(failing_kernel, 0);
        CHECK_FAULT(Fault::device_failed, lane.wait(lane.submit(bad)));
    }
    MPI_Barrier(team.node().world());
    funnel::Task good;
    good.add_kernel(failing_kernel, 0);
    CHECK_FAULT(Fault::device_failed, lane.wait(lane.submit(good)));
}

}  // namespace

int main(int argc, char** argv) {
    int provided = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    {
        funnel::TeamOptions options = options_for_test(argc, argv, 2 * bytes);
        options.host_kernels = add_test_kernels;
        funnel::Team team(MPI_COMM_WORLD, options);
        floods(team);
        depends_on_another_rank(team);
        equal_kernels_are_merged(team);
        faults_come_back(team);
        a_broken_device_tells_everybody(team);
    }
    const int status = failures_of_all_ranks(check::failures);
    MPI_Finalize();
    return status;
}
