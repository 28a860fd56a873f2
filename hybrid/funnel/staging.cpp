#include "funnel/staging.h"

#include <cstring>

#include "funnel/errors_return.h"

namespace funnel {

std::size_t Staging::header_bytes() const {
    const std::size_t bytes = sizeof(std::uint64_t) * channels * static_cast<std::size_t>(node_.world_size());
    return (bytes + SharedWindow::page - 1) / SharedWindow::page * SharedWindow::page;
}

Staging::Staging(const Node& node, const Watch& watch, std::size_t bytes)
    : node_(node), watch_(watch), shared_(node.local(), header_bytes() + bytes) {
    const auto [base, whole] = segments()[node.local_rank()];
    std::memset(base, 0, header_bytes());
    // Every rank touches its own memory first: it then lies near that rank, and nobody has to fault in all of
    // it alone when it is registered.
    for (std::size_t at = header_bytes(); at < whole; at += SharedWindow::page) base[at] = std::byte{0};
    bytes_of_world_.resize(node.world_size());
    const std::uint64_t offered = bytes;
    static_assert(sizeof(std::size_t) == sizeof(std::uint64_t));
    MPI_Allgather(&offered, 1, MPI_UINT64_T, bytes_of_world_.data(), 1, MPI_UINT64_T, node.world());

    if (!node.all_local()) {
        const ErrorsReturn errors(node.world());
        if (MPI_Win_create(base, static_cast<MPI_Aint>(whole), 1, MPI_INFO_NULL, node.world(), &global_) !=
            MPI_SUCCESS)
            throw Error(Fault::wrong_use, "this MPI offers no one-sided communication between these nodes");
        MPI_Win_lock_all(MPI_MODE_NOCHECK, global_);
        in_flight_.assign(node.world_size(), false);
    }
    MPI_Barrier(node.world());
}

Staging::~Staging() {
    if (global_ == MPI_WIN_NULL) return;
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

void Staging::put(int target, std::uint64_t target_offset, const void* source, std::size_t bytes) {
    if (target < 0 || target >= node_.world_size())
        throw Error(Fault::out_of_range,
                    "a put to rank " + std::to_string(target) + " of " + std::to_string(node_.world_size()));
    const std::size_t size = bytes_of_world_[target];
    if (target_offset > size || bytes > size - target_offset)
        throw Error(Fault::out_of_range, "a put of " + std::to_string(bytes) + " bytes at offset " +
                                             std::to_string(target_offset) + " leaves the " +
                                             std::to_string(size) + " bytes of rank " +
                                             std::to_string(target));
    if (std::byte* memory = at(target)) {
        std::memcpy(memory + target_offset, source, bytes);
        return;
    }
    constexpr std::size_t most = std::size_t{1} << 30;  // MPI counts are ints
    for (std::size_t done = 0; done < bytes; done += most) {
        const auto part = static_cast<int>(bytes - done < most ? bytes - done : most);
        MPI_Put(static_cast<const std::byte*>(source) + done, part, MPI_BYTE, target,
                static_cast<MPI_Aint>(header_bytes() + target_offset + done), part, MPI_BYTE, global_);
    }
    in_flight_[target] = true;
}

void Staging::complete() {
    if (global_ == MPI_WIN_NULL) return;
    for (int target = 0; target < node_.world_size(); ++target) {
        if (!in_flight_[target]) continue;
        MPI_Win_flush(target, global_);
        in_flight_[target] = false;
    }
}

std::atomic<std::uint64_t>& Staging::counter(std::byte* segment, int source, int channel) const {
    const std::size_t index = static_cast<std::size_t>(channel) * node_.world_size() + source;
    return reinterpret_cast<std::atomic<std::uint64_t>*>(segment)[index];
}

void Staging::signal(int target, int channel, std::uint64_t count) {
    const int local = node_.local_rank_of(target);
    if (local >= 0) {
        counter(segments()[local].base, node_.world_rank(), channel).store(count, std::memory_order_release);
        return;
    }
    // RMA operations to one target are not ordered: the data must have arrived before the signal leaves.
    MPI_Win_flush(target, global_);
    const std::size_t index = static_cast<std::size_t>(channel) * node_.world_size() + node_.world_rank();
    MPI_Accumulate(&count, 1, MPI_UINT64_T, target, static_cast<MPI_Aint>(index * sizeof count), 1,
                   MPI_UINT64_T, MPI_REPLACE, global_);
    MPI_Win_flush(target, global_);
    in_flight_[target] = false;
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
    watch_.until(
        [&] {
            if (signalled(source, channel) >= count) return true;
            progress();
            return false;
        },
        what + " from rank " + std::to_string(source));
}

}  // namespace funnel
