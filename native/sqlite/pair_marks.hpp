// Marks of pairs of a process and a correlation: a byte a pair where they are dense, as nearly always, hashed
// elsewhere.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "buffer.hpp"
#include "columns.hpp"

namespace busfare::sqlite {

// Numbers processes in order of appearance.
class ProcessNumbers {
  public:
    static constexpr std::size_t kMost = 4095;
    ProcessNumbers() : slots_(4 * (kMost + 1)) {}
    // kMost + 1 for one that has no number.
    std::size_t find(std::int64_t id) const;
    // Throws Unreadable for more than kMost of them.
    std::size_t add(std::int64_t id);
    std::int64_t id(std::size_t number) const { return ids_[number]; }
    std::size_t count() const { return ids_.size(); }

  private:
    std::size_t slot(std::int64_t id) const;
    std::vector<std::int64_t> ids_;
    std::vector<std::uint32_t> slots_;  // a number and 1; 0: free
};

// A hash table of pairs of small numbers with marks, each in one word.
class SparseMarks {
  public:
    void mark(std::size_t process, std::uint64_t correlation, std::uint8_t marks);
    std::uint8_t of(std::size_t process, std::uint64_t correlation) const;
    // Calls `each` with the process, correlation and marks of every pair.
    template <typename F>
    void visit(F each) const {
        for (std::size_t at = 0; at < size_; ++at) {
            const std::uint64_t one = slots_.data()[at];
            if (one != 0) each(one >> 52, one >> 8 & kMost, static_cast<std::uint8_t>(one));
        }
    }
    static constexpr std::uint64_t kMost = (std::uint64_t{1} << 44) - 1;

  private:
    std::size_t slot(std::uint64_t key) const;
    void grow();
    Buffer<std::uint64_t> slots_{0};  // pair above, marks in the last byte; 0: free
    std::size_t size_ = 0;
    std::size_t count_ = 0;
};

class PairMarks {
  public:
    // Correlations of 1 to `most` have places, and those up to `expected` at once; others are hashed.
    explicit PairMarks(std::uint64_t most, std::uint64_t expected = 0)
        : most_(most), expected_(std::max<std::uint64_t>(expected, 1 << 12)) {}
    PairMarks(PairMarks&&) = default;
    PairMarks& operator=(PairMarks&&) = default;

    std::uint64_t most() const { return most_; }

    // Sets marks of a pair; of correlation 0, which is nobody's, none. Throws Unreadable for correlations
    // beyond 2^44, and for more processes than a trace has.
    void mark(std::int64_t process, std::int64_t correlation, std::uint8_t marks);

    // Marks 1 of the pairs of two columns of 64 bits, where the correlation is known. Throws Unreadable if
    // the process is not known then.
    void mark_all(const Column& processes, const Column& correlations);

    // Sets all that are set in `other`.
    void add(const PairMarks& other);

    // What is asked row by row; rows come in runs of one process.
    class Look {
      public:
        explicit Look(const PairMarks& marks) : marks_(marks) {}
        // 0 for a pair without marks.
        std::uint8_t of(std::int64_t process, std::int64_t correlation) {
            if (marks_.dense_.empty()) return 0;
            if (last_ > ProcessNumbers::kMost || process != process_) {
                last_ = marks_.numbers_.find(process);
                process_ = process;
            }
            if (last_ > ProcessNumbers::kMost) return 0;
            const auto at = static_cast<std::uint64_t>(correlation);
            if (last_ < marks_.dense_.size() && at <= marks_.most_) {
                const Dense& dense = marks_.dense_[last_];
                return at < dense.used ? dense.marks.data()[at] : 0;
            }
            return marks_.sparse_.of(last_, at);
        }

      private:
        const PairMarks& marks_;
        std::int64_t process_ = 0;
        std::size_t last_ = ProcessNumbers::kMost + 1;
    };

  private:
    static constexpr std::size_t kMostDense = 8;
    struct Dense {
        Buffer<std::uint8_t> marks;  // by correlation
        std::uint64_t size;          // places of `marks`
        std::uint64_t used = 0;      // behind the last one that was marked
    };
    std::size_t number(std::int64_t process);
    Dense& reaching(std::size_t process, std::uint64_t correlation);

    std::uint64_t most_, expected_;
    ProcessNumbers numbers_;
    std::vector<Dense> dense_;  // of the first processes
    SparseMarks sparse_;
    std::int64_t process_ = 0;  // the one that was marked last
    std::size_t last_ = ProcessNumbers::kMost + 1;
};

}  // namespace busfare::sqlite
