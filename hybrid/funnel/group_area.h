#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "funnel/queue.h"
#include "funnel/task.h"

namespace funnel {

/// What the ranks of one GPU share with its owner: the queue of tasks and, per rank, the ring in which the
/// owner leaves the outcome of each. It lies in a shared window; everything in it is plain data or a
/// lock-free atomic.
struct GroupArea {
    static constexpr int most_members = 64;
    static constexpr std::uint64_t queue_slots = 256;
    static constexpr std::uint64_t ring = 512;
    /// A rank keeps at most this many tasks open, so no outcome is overwritten before it is read.
    static constexpr std::uint64_t most_open = ring / 2;

    /// All but the text fits into one cache line; the text is there only with a fault, or holds a handle.
    struct alignas(64) Outcome {
        std::atomic<Ticket> ticket;  ///< written last
        Fault fault;
        std::uint64_t value;  ///< the address of an allocation or a mapping
        float seconds_in, seconds_kernels, seconds_out;
        std::array<char, 232> text;
    };

    std::atomic<std::uint32_t> open;  ///< 1 once the owner serves
    std::array<char, 256> device_name;
    Queue<Task, queue_slots, CopyUsedParts> tasks;
    std::array<std::array<Outcome, ring>, most_members> outcomes;
};

}  // namespace funnel
