#include "funnel/planes.h"

namespace funnel {

PlaneExchange::PlaneExchange(Staging& staging, int channel, std::uint64_t receive_offset,
                             std::uint64_t outbox_offset)
    : staging_(staging), channel_(channel), receive_offset_(receive_offset), outbox_offset_(outbox_offset) {
    const int world = staging.node().world_size(), me = staging.node().world_rank();
    for (int step = 1; step <= world; ++step) targets_.push_back((me + step) % world);
}

void PlaneExchange::begin(int planes, std::uint64_t block_bytes) {
    planes_ = planes;
    block_bytes_ = block_bytes;
    expected_ += static_cast<std::uint64_t>(planes);
}

std::uint64_t PlaneExchange::receive_place(int plane) const {
    const auto global = static_cast<std::uint64_t>(staging_.node().world_rank()) * planes_ + plane;
    return receive_offset_ + global * block_bytes_;
}

HostPlace PlaneExchange::outbox_place_for(int target, int plane) const {
    const auto block = static_cast<std::uint64_t>(target) * planes_ + plane;
    return {staging_.node().local_rank(), outbox_offset_ + block * block_bytes_};
}

HostPlace PlaneExchange::place_for(int target, int plane) const {
    if (!direct(target)) return outbox_place_for(target, plane);
    return {staging_.node().local_rank_of(target), receive_place(plane)};
}

void PlaneExchange::hand_over(int target, int first, int count) {
    const std::byte* source = staging_.local() + outbox_place_for(target, first).offset;
    staging_.put(target, receive_place(first), source, static_cast<std::size_t>(count) * block_bytes_);
}

void PlaneExchange::deliver(int first, int count) {
    delivered_ += static_cast<std::uint64_t>(count);
    for (int target : targets_)
        if (!direct(target)) hand_over(target, first, count);
    if (delivered_ == expected_) staging_.signal(targets_, channel_, delivered_);
}

void PlaneExchange::deliver_packed() {
    delivered_ += static_cast<std::uint64_t>(planes_);
    for (int target : targets_) hand_over(target, 0, planes_);
    staging_.signal(targets_, channel_, delivered_);
}

void PlaneExchange::wait() {
    for (int source = 0; source < staging_.node().world_size(); ++source)
        staging_.wait_for(source, channel_, expected_, "planes of the transpose");
}

}  // namespace funnel
