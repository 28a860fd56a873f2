#include "pair_marks.hpp"

#include <algorithm>

#include "unreadable.hpp"

namespace busfare::sqlite {

namespace {

constexpr std::size_t kMostProcesses = 64;

}  // namespace

void PairMarks::mark(std::int64_t process, std::int64_t correlation, std::uint8_t marks) {
    const auto at = static_cast<std::uint64_t>(correlation);
    if (last_ < processes_.size() && processes_[last_].id == process && at < processes_[last_].size) {
        Process& known = processes_[last_];
        known.marks.data()[at] |= marks;
        known.used = std::max(known.used, at + 1);
        return;
    }
    if (correlation < 1 || at > most_) throw Unreadable("correlations far apart");
    known(process, at).marks.data()[at] |= marks;
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
        if (correlation < 1 || static_cast<std::uint64_t>(correlation) > most_) continue;
        mark(processes.values<std::int64_t>()[row], correlation, 1);
    }
}

PairMarks::Process& PairMarks::known(std::int64_t process, std::uint64_t correlation) {
    last_ = find(process);
    if (last_ == processes_.size()) {
        if (last_ == kMostProcesses) throw Unreadable("very many processes");
        processes_.push_back({process, Buffer<std::uint8_t>(0), 0});
    }
    Process& found = processes_[last_];
    if (correlation >= found.size) {
        // By twice: what lies behind the last mark takes no memory, and each growth moves all marks.
        const std::uint64_t size = std::min(most_ + 1, std::max(2 * correlation, expected_));
        Buffer<std::uint8_t> grown(size);
        std::copy_n(found.marks.data(), found.used, grown.data());
        found.marks = std::move(grown);
        found.size = size;
    }
    found.used = std::max(found.used, correlation + 1);
    return found;
}

void PairMarks::add(const PairMarks& other) {
    for (const Process& process : other.processes_) {
        if (process.used == 0) continue;
        std::uint8_t* marks = known(process.id, process.used - 1).marks.data();
        const std::uint8_t* further = process.marks.data();
        for (std::uint64_t i = 0; i < process.used; ++i) marks[i] |= further[i];
    }
}

std::size_t PairMarks::find(std::int64_t process) const {
    const auto found = std::ranges::find(processes_, process, &Process::id);
    return static_cast<std::size_t>(found - processes_.begin());
}

}  // namespace busfare::sqlite
