#include "pair_marks.hpp"

#include <algorithm>

#include "unreadable.hpp"

namespace busfare::sqlite {

namespace {

constexpr std::size_t kMostProcesses = 64;

}  // namespace

void PairMarks::mark(std::int64_t process, std::int64_t correlation, std::uint8_t marks) {
    const auto at = static_cast<std::uint64_t>(correlation);
    if (last_ < processes_.size() && processes_[last_].id == process && at < processes_[last_].marks.size()) {
        processes_[last_].marks[at] |= marks;
        return;
    }
    if (correlation < 1 || at > most_) throw Unreadable("correlations far apart");
    known(process, at).marks[at] |= marks;
}

PairMarks::Process& PairMarks::known(std::int64_t process, std::uint64_t correlation) {
    last_ = find(process);
    if (last_ == processes_.size()) {
        if (last_ == kMostProcesses) throw Unreadable("very many processes");
        processes_.push_back({process, {}});
    }
    Process& found = processes_[last_];
    if (correlation >= found.marks.size()) {
        found.marks.resize(
            std::min(most_ + 1, std::max<std::uint64_t>(correlation + correlation / 8, 1 << 12)));
    }
    return found;
}

void PairMarks::add(const PairMarks& other) {
    for (const Process& process : other.processes_) {
        if (process.marks.empty()) continue;
        Process& into = known(process.id, process.marks.size() - 1);
        std::uint8_t* marks = into.marks.data();
        const std::uint8_t* further = process.marks.data();
        for (std::size_t i = 0; i < process.marks.size(); ++i) marks[i] |= further[i];
    }
}

std::size_t PairMarks::find(std::int64_t process) const {
    const auto found = std::ranges::find(processes_, process, &Process::id);
    return static_cast<std::size_t>(found - processes_.begin());
}

}  // namespace busfare::sqlite
