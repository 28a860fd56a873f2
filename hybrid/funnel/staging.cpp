#include "funnel/staging.h"

#include <algorithm>
#include <cstring>

#include "funnel/errors_return.h"

namespace funnel {

namespace {

/// Why a window over several nodes was refused, and what helps.
std::string no_window() {
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    MPI_Get_library_version(version, &length);
    const std::string library(version, static_cast<std::size_t>(length));
    const std::string refused = "this MPI offers no one-sided communication between these nodes";
    // Its default component wants shared memory or RDMA; `pt2pt`, which needs neither, left with version 5.
    if (library.find("Open MPI v4") != std::string::npos || library.find("Open MPI v3") != std::string::npos)
        return refused + ": Open MPI's default needs RDMA; start with mpirun --mca osc pt2pt,sm";
    return refused + " (" + library.substr(0, library.find_first_of(",\n")) +
           "): install MPICH, or Open MPI 4 started with --mca osc pt2pt,sm";
}

/// `rows` runs of `width` bytes, `pitch` bytes apart, as a datatype.
class RowsType {
  public:
    RowsType(const Rows& rows, std::uint64_t pitch) {
        MPI_Type_create_hvector(static_cast<int>(rows.rows), static_cast<int>(rows.width),
                                static_cast<MPI_Aint>(pitch), MPI_BYTE, &type_);
        MPI_Type_commit(&type_);
    }
    ~RowsType() { MPI_Type_free(&type_); }
    RowsType(const RowsType&) = delete;
    RowsType& operator=(const RowsType&) = delete;
    operator MPI_Datatype() const { return type_; }

  private:
    MPI_Datatype type_;
};

/// Calls `operation(bytes from here, type here, bytes from there, type there, count)` for what moves `rows`:
/// once where a datatype describes them, else for each piece of each row, because MPI counts are ints.
template <class Operation>
void in_pieces(const Rows& rows, std::uint64_t pitch_here, Operation operation) {
    constexpr std::uint64_t most = std::uint64_t{1} << 30;
    if (rows.rows > 1 && rows.rows <= most && rows.width <= most) {
        const RowsType here(rows, pitch_here), there(rows, rows.pitch);
        operation(0, here, 0, there, 1);
        return;
    }
    for (std::uint64_t row = 0; row < rows.rows; ++row)
        for (std::uint64_t done = 0; done < rows.width; done += most)
            operation(row * pitch_here + done, MPI_BYTE, row * rows.pitch + done, MPI_BYTE,
                      static_cast<int>(std::min(most, rows.width - done)));
}

void copy_rows(std::byte* to, std::uint64_t to_pitch, const std::byte* from, std::uint64_t from_pitch,
               const Rows& rows) {
    for (std::uint64_t row = 0; row < rows.rows; ++row)
        std::memcpy(to + row * to_pitch, from + row * from_pitch, rows.width);
}

}  // namespace

std::size_t Staging::header_bytes() const {
    const std::size_t bytes = sizeof(std::uint64_t) * static_cast<std::size_t>(channels_) *
                              static_cast<std::size_t>(node_.world_size());
    return (bytes + SharedWindow::page - 1) / SharedWindow::page * SharedWindow::page;
}

Staging::Staging(const Node& node, Watch& watch, std::size_t bytes, int channels)
    : node_(node),
      watch_(watch),
      channels_(channels < 1 ? throw Error(Fault::wrong_use, "a team has at least one channel") : channels),
      shared_(node.local(), header_bytes() + bytes) {
    const auto [base, whole] = segments()[node.local_rank()];
    std::memset(base, 0, header_bytes());
    // Every rank touches its own memory first: it then lies near that rank, and nobody has to fault in all of
    // it alone when it is registered.
    for (std::size_t at = header_bytes(); at < whole; at += SharedWindow::page) base[at] = std::byte{0};
    bytes_of_world_.resize(node.world_size());
    const std::uint64_t offered = bytes;
    static_assert(sizeof(std::size_t) == sizeof(std::uint64_t));
    MPI_Allgather(&offered, 1, MPI_UINT64_T, bytes_of_world_.data(), 1, MPI_UINT64_T, node.world());
    int fewest_and_most[2] = {channels, -channels};
    MPI_Allreduce(MPI_IN_PLACE, fewest_and_most, 2, MPI_INT, MPI_MIN, node.world());
    if (fewest_and_most[0] != -fewest_and_most[1])
        throw Error(Fault::wrong_use, "the ranks of a team have different numbers of channels");
    if (!node.all_local()) open_to_world(base, whole);
    MPI_Barrier(node.world());
}

void Staging::open_to_world(std::byte* base, std::size_t bytes) {
    const ErrorsReturn errors(node_.world());
    if (MPI_Win_create(base, static_cast<MPI_Aint>(bytes), 1, MPI_INFO_NULL, node_.world(), &global_) !=
        MPI_SUCCESS)
        throw Error(Fault::wrong_use, no_window());
    MPI_Win_lock_all(MPI_MODE_NOCHECK, global_);
    watch_.while_waiting([this] { progress(); });
}

Staging::~Staging() {
    if (global_ == MPI_WIN_NULL) return;
    watch_.while_waiting({});
    MPI_Win_unlock_all(global_);
    MPI_Win_free(&global_);
}

std::byte* Staging::at(int world_rank) const {
    const int local = node_.local_rank_of(world_rank);
    return local < 0 ? nullptr : segments()[local].base + header_bytes();
}

std::byte* Staging::resolve(const HostPlace& place, std::uint64_t bytes) const {
    if (place.segment < 0 || place.segment >= node_.local_size())
        throw Error(Fault::out_of_range, "a copy names rank " + std::to_string(place.segment) +
                                             " of a node of " + std::to_string(node_.local_size()));
    const std::size_t size = bytes_of_world_[node_.world_rank_of(place.segment)];
    if (place.offset > size || bytes > size - place.offset)
        throw Error(Fault::out_of_range, "a copy of " + std::to_string(bytes) + " bytes at offset " +
                                             std::to_string(place.offset) + " leaves the " +
                                             std::to_string(size) + " bytes of staging memory");
    return segments()[place.segment].base + header_bytes() + place.offset;
}

void Staging::check_range(const char* what, int rank, const Rows& rows) const {
    if (rank < 0 || rank >= node_.world_size())
        throw Error(Fault::out_of_range, std::string(what) + " names rank " + std::to_string(rank) + " of " +
                                             std::to_string(node_.world_size()));
    if (rows.rows > 1 && rows.pitch < rows.width)
        throw Error(Fault::wrong_use, std::string(what) +
                                          " of rows that overlap: " + std::to_string(rows.width) +
                                          " bytes every " + std::to_string(rows.pitch));
    // Without overflow: what lies behind the first row holds the others at their pitch.
    const std::uint64_t size = bytes_of_world_[rank];
    const bool first_fits = rows.offset <= size && rows.width <= size - rows.offset;
    const bool all_fit =
        rows.rows <= 1 || rows.pitch == 0 || rows.rows - 1 <= (size - rows.offset - rows.width) / rows.pitch;
    if (!first_fits || !all_fit)
        throw Error(Fault::out_of_range, std::string(what) + " of " + std::to_string(rows.rows) + " × " +
                                             std::to_string(rows.width) + " bytes at offset " +
                                             std::to_string(rows.offset) + " leaves the " +
                                             std::to_string(size) + " bytes of rank " + std::to_string(rank));
}

void Staging::put(int target, const Rows& rows, const void* source, std::uint64_t source_pitch) {
    check_range("a put", target, rows);
    if (std::byte* memory = at(target)) {
        copy_rows(memory + rows.offset, rows.pitch, static_cast<const std::byte*>(source), source_pitch,
                  rows);
        return;
    }
    const auto place = static_cast<MPI_Aint>(header_bytes() + rows.offset);
    in_pieces(rows, source_pitch,
              [&](std::uint64_t at, MPI_Datatype here, std::uint64_t to, MPI_Datatype there, int count) {
                  MPI_Put(static_cast<const std::byte*>(source) + at, count, here, target,
                          place + static_cast<MPI_Aint>(to), count, there, global_);
              });
    in_flight_ = true;
}

void Staging::get(int source, const Rows& rows, void* destination, std::uint64_t destination_pitch) {
    check_range("a get", source, rows);
    if (const std::byte* memory = at(source)) {
        copy_rows(static_cast<std::byte*>(destination), destination_pitch, memory + rows.offset, rows.pitch,
                  rows);
        return;
    }
    const auto place = static_cast<MPI_Aint>(header_bytes() + rows.offset);
    in_pieces(rows, destination_pitch,
              [&](std::uint64_t at, MPI_Datatype here, std::uint64_t from, MPI_Datatype there, int count) {
                  MPI_Get(static_cast<std::byte*>(destination) + at, count, here, source,
                          place + static_cast<MPI_Aint>(from), count, there, global_);
              });
    in_flight_ = true;
}

void Staging::complete() {
    if (!in_flight_) return;
    MPI_Win_flush_all(global_);
    in_flight_ = false;
}

std::uint64_t Staging::fetch_add(int target, std::uint64_t offset, std::uint64_t value) {
    check_range("an addition", target, {offset, sizeof value, sizeof value, 1});
    if (offset % sizeof value != 0)
        throw Error(Fault::wrong_use, "an addition at offset " + std::to_string(offset) +
                                          ": give a multiple of " + std::to_string(sizeof value));
    if (global_ == MPI_WIN_NULL)
        return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(at(target) + offset)).fetch_add(value);
    // MPI's additions and a processor's are not atomic with each other: where there are several nodes, all
    // are MPI's.
    std::uint64_t before = 0;
    MPI_Fetch_and_op(&value, &before, MPI_UINT64_T, target, static_cast<MPI_Aint>(header_bytes() + offset),
                     MPI_SUM, global_);
    MPI_Win_flush(target, global_);
    return before;
}

std::size_t Staging::counter_index(int source, int channel) const {
    if (channel < 0 || channel >= channels_)
        throw Error(Fault::out_of_range,
                    "channel " + std::to_string(channel) + " of " + std::to_string(channels_));
    if (source < 0 || source >= node_.world_size())
        throw Error(Fault::out_of_range, "a signal of rank " + std::to_string(source) + " of " +
                                             std::to_string(node_.world_size()));
    return static_cast<std::size_t>(channel) * node_.world_size() + source;
}

std::atomic<std::uint64_t>& Staging::counter(std::byte* segment, int source, int channel) const {
    return reinterpret_cast<std::atomic<std::uint64_t>*>(segment)[counter_index(source, channel)];
}

void Staging::signal(std::span<const int> targets, int channel, std::uint64_t count) {
    const std::size_t index = counter_index(node_.world_rank(), channel);
    bool any_elsewhere = false;
    for (int target : targets) {
        check_range("a signal", target, {});
        any_elsewhere = any_elsewhere || at(target) == nullptr;
    }
    // RMA operations to one target are not ordered: the data must have arrived before the signals leave.
    if (any_elsewhere) complete();
    for (int target : targets) {
        if (const int local = node_.local_rank_of(target); local >= 0)
            counter(segments()[local].base, node_.world_rank(), channel)
                .store(count, std::memory_order_release);
        else
            MPI_Accumulate(&count, 1, MPI_UINT64_T, target, static_cast<MPI_Aint>(index * sizeof count), 1,
                           MPI_UINT64_T, MPI_REPLACE, global_);
    }
    if (any_elsewhere) MPI_Win_flush_all(global_);
}

std::uint64_t Staging::signalled(int source, int channel) const {
    std::byte* mine = segments()[node_.local_rank()].base;
    return counter(mine, source, channel).load(std::memory_order_acquire);
}

void Staging::progress() const {
    if (global_ == MPI_WIN_NULL) return;
    MPI_Win_sync(global_);
    int ignored = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, node_.world(), &ignored, MPI_STATUS_IGNORE);
}

void Staging::wait_for(int source, int channel, std::uint64_t count, const std::string& what) const {
    watch_.until([&] { return signalled(source, channel) >= count; },
                 what + " from rank " + std::to_string(source));
}

}  // namespace funnel
