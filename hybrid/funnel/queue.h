#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace funnel {

/// Many producers, one consumer, a fixed number of slots, no locks: it lives in memory shared among
/// processes.
///
/// Each slot counts its own turns. A producer claims a place by advancing `tail_`, writes, and raises the
/// slot's count; the consumer reads a slot whose count says "written" and raises it by a whole round for the
/// next producer. A producer that dies between claim and publication stops the queue; the group's watch over
/// its ranks ends the job then.
///
/// `Assign` copies a value into and out of its slot.
template <class T, std::uint64_t slots, class Assign>
class Queue {
    static_assert((slots & (slots - 1)) == 0, "a power of two, so that counts may wrap");
    static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

  public:
    /// Called once, by the consumer, before anyone pushes.
    void clear() {
        for (std::uint64_t i = 0; i < slots; ++i) slot_[i].count.store(i, std::memory_order_relaxed);
        tail_.store(0, std::memory_order_relaxed);
        head_ = 0;
        std::atomic_thread_fence(std::memory_order_release);
    }

    /// False when the queue is full.
    bool push(const T& value) {
        std::uint64_t place = tail_.load(std::memory_order_relaxed);
        for (;;) {
            Slot& slot = slot_[place % slots];
            const std::uint64_t count = slot.count.load(std::memory_order_acquire);
            const auto ahead = static_cast<std::int64_t>(count - place);
            if (ahead < 0) return false;
            if (ahead > 0) {
                place = tail_.load(std::memory_order_relaxed);
            } else if (tail_.compare_exchange_weak(place, place + 1, std::memory_order_relaxed)) {
                Assign()(slot.value, value);
                slot.count.store(place + 1, std::memory_order_release);
                return true;
            }
        }
    }

    /// False when nothing is there. For the consumer only.
    bool pop(T& value) {
        Slot& slot = slot_[head_ % slots];
        if (slot.count.load(std::memory_order_acquire) != head_ + 1) return false;
        Assign()(value, slot.value);
        slot.count.store(head_ + slots, std::memory_order_release);
        ++head_;
        return true;
    }

  private:
    struct alignas(64) Slot {
        std::atomic<std::uint64_t> count;
        T value;
    };
    alignas(64) std::atomic<std::uint64_t> tail_;
    alignas(64) std::uint64_t head_;
    Slot slot_[slots];
};

}  // namespace funnel
