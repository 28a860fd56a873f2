// Marks of pairs of a process and a correlation, which are nearly dense: a byte a pair.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "buffer.hpp"
#include "columns.hpp"

namespace busfare::sqlite {

class PairMarks {
  public:
    // Correlations of 1 to `most` have places, and those up to `expected` at once.
    explicit PairMarks(std::uint64_t most, std::uint64_t expected = 0)
        : most_(most), expected_(std::max<std::uint64_t>(expected, 1 << 12)) {}
    PairMarks(PairMarks&&) = default;
    PairMarks& operator=(PairMarks&&) = default;

    std::uint64_t most() const { return most_; }

    // Sets marks of a pair. Throws Unreadable for a correlation without a place, and for more processes than
    // a trace has.
    void mark(std::int64_t process, std::int64_t correlation, std::uint8_t marks);

    // Marks 1 of the pairs of two columns of 64 bits, where the correlation is known and has a place. Throws
    // Unreadable if the process is not known then.
    void mark_all(const Column& processes, const Column& correlations);

    // Sets all that are set in `other`.
    void add(const PairMarks& other);

    // What is asked row by row; rows come in runs of one process.
    class Look {
      public:
        explicit Look(const PairMarks& marks) : marks_(marks) {}
        // 0 for a pair without marks.
        std::uint8_t of(std::int64_t process, std::int64_t correlation) {
            const auto& processes = marks_.processes_;
            if (processes.empty()) return 0;
            if (last_ >= processes.size() || processes[last_].id != process) last_ = marks_.find(process);
            if (last_ == processes.size()) return 0;
            const auto at = static_cast<std::uint64_t>(correlation);
            return at < processes[last_].used ? processes[last_].marks.data()[at] : 0;
        }

      private:
        const PairMarks& marks_;
        std::size_t last_ = 0;
    };

  private:
    struct Process {
        std::int64_t id;
        Buffer<std::uint8_t> marks;  // by correlation
        std::uint64_t size;          // places of `marks`
        std::uint64_t used = 0;      // behind the last one that was marked
    };
    std::size_t find(std::int64_t process) const;
    Process& known(std::int64_t process, std::uint64_t correlation);

    std::uint64_t most_, expected_;
    std::vector<Process> processes_;
    std::size_t last_ = 0;
};

}  // namespace busfare::sqlite
