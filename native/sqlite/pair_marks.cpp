#include "pair_marks.hpp"

#include <utility>

#include "unreadable.hpp"

namespace busfare::sqlite {

namespace {

constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15U;
constexpr std::size_t kLeastSlots = 1 << 12, kManySlots = 1 << 22;

std::uint64_t pair_of(std::size_t process, std::uint64_t correlation) {
    return std::uint64_t{process} << 44 | correlation;
}

}  // namespace

std::size_t ProcessNumbers::slot(std::int64_t id) const {
    std::size_t at = static_cast<std::uint64_t>(id) * kOdd >> 40 & (slots_.size() - 1);
    while (slots_[at] != 0 && ids_[slots_[at] - 1] != id) at = (at + 1) & (slots_.size() - 1);
    return at;
}

std::size_t ProcessNumbers::find(std::int64_t id) const {
    const std::uint32_t found = slots_[slot(id)];
    return found == 0 ? kMost + 1 : found - 1;
}

std::size_t ProcessNumbers::add(std::int64_t id) {
    std::uint32_t& found = slots_[slot(id)];
    if (found == 0) {
        if (ids_.size() == kMost) throw Unreadable("very many processes");
        ids_.push_back(id);
        found = static_cast<std::uint32_t>(ids_.size());
    }
    return found - 1;
}

std::size_t SparseMarks::slot(std::uint64_t key) const {
    const std::uint64_t hash = (key ^ key >> 29) * kOdd;
    const std::uint64_t* slots = slots_.data();
    std::size_t at = (hash ^ hash >> 32) & (size_ - 1);
    while (slots[at] != 0 && slots[at] >> 8 != key) at = (at + 1) & (size_ - 1);
    return at;
}

void SparseMarks::mark(std::size_t process, std::uint64_t correlation, std::uint8_t marks) {
    if (correlation > kMost) throw Unreadable("correlations far apart");
    if (2 * count_ >= size_) grow();
    const std::uint64_t key = pair_of(process, correlation);
    std::uint64_t& found = slots_.data()[slot(key)];
    count_ += found == 0;
    found |= key << 8 | marks;
}

std::uint8_t SparseMarks::of(std::size_t process, std::uint64_t correlation) const {
    if (count_ == 0 || correlation > kMost) return 0;
    return static_cast<std::uint8_t>(slots_.data()[slot(pair_of(process, correlation))]);
}

void SparseMarks::grow() {
    const std::size_t size = size_;
    size_ = size == 0 ? kLeastSlots : size < kManySlots ? 4 * size : 2 * size;
    const Buffer<std::uint64_t> before = std::exchange(slots_, Buffer<std::uint64_t>(size_));
    for (std::size_t at = 0; at < size; ++at) {
        const std::uint64_t one = before.data()[at];
        if (one != 0) slots_.data()[slot(one >> 8)] = one;
    }
}

void PairMarks::mark(std::int64_t process, std::int64_t correlation, std::uint8_t marks) {
    if (correlation <= 0) return;
    const auto at = static_cast<std::uint64_t>(correlation);
    if (last_ > ProcessNumbers::kMost || process != process_) {
        last_ = number(process);
        process_ = process;
    }
    if (last_ >= dense_.size() || at > most_) {
        sparse_.mark(last_, at, marks);
        return;
    }
    Dense& known = at < dense_[last_].size ? dense_[last_] : reaching(last_, at);
    known.marks.data()[at] |= marks;
    known.used = std::max(known.used, at + 1);
}

void PairMarks::mark_all(const Column& processes, const Column& correlations) {
    if (processes.kind() != Kind::integer || correlations.kind() != Kind::integer ||
        processes.length() != correlations.length()) {
        throw Unreadable("pairs that are not whole numbers");
    }
    for (std::uint64_t row = 0; row < processes.length(); ++row) {
        if (!correlations.is_valid(row)) continue;
        if (!processes.is_valid(row)) throw Unreadable("pairs without a process");
        const std::int64_t correlation = correlations.values<std::int64_t>()[row];
        // No call has one beyond what is hashed.
        if (correlation > static_cast<std::int64_t>(SparseMarks::kMost)) continue;
        mark(processes.values<std::int64_t>()[row], correlation, 1);
    }
}

std::size_t PairMarks::number(std::int64_t process) {
    const std::size_t found = numbers_.add(process);
    if (found == dense_.size() && found < kMostDense) dense_.push_back({Buffer<std::uint8_t>(0), 0});
    return found;
}

PairMarks::Dense& PairMarks::reaching(std::size_t process, std::uint64_t correlation) {
    Dense& found = dense_[process];
    if (correlation >= found.size) {
        // By twice: what lies behind the last mark takes no memory, and each growth moves all marks.
        const std::uint64_t size = std::min(most_ + 1, std::max(2 * correlation, expected_));
        Buffer<std::uint8_t> grown(size);
        std::copy_n(found.marks.data(), found.used, grown.data());
        found.marks = std::move(grown);
        found.size = size;
    }
    return found;
}

void PairMarks::add(const PairMarks& other) {
    for (std::size_t theirs = 0; theirs < other.dense_.size(); ++theirs) {
        const std::uint8_t* further = other.dense_[theirs].marks.data();
        const std::uint64_t used = other.dense_[theirs].used;
        if (used == 0) continue;
        const std::size_t mine = number(other.numbers_.id(theirs));
        if (mine < dense_.size()) {
            Dense& known = reaching(mine, used - 1);
            known.used = std::max(known.used, used);
            for (std::uint64_t i = 0; i < used; ++i) known.marks.data()[i] |= further[i];
            continue;
        }
        for (std::uint64_t i = 0; i < used; ++i) {
            if (further[i] != 0) sparse_.mark(mine, i, further[i]);
        }
    }
    other.sparse_.visit([&](std::size_t process, std::uint64_t correlation, std::uint8_t marks) {
        mark(other.numbers_.id(process), static_cast<std::int64_t>(correlation), marks);
    });
}

}  // namespace busfare::sqlite
