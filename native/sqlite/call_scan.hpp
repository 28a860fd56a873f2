// A table of API calls of which few rows are asked for: the others are only counted and marked.
#pragma once

#include <memory>

#include "columns.hpp"
#include "fields.hpp"
#include "pair_marks.hpp"
#include "pieces.hpp"

namespace busfare::sqlite {

struct CallsWanted {
    Timed timed;
    std::uint32_t name;                  // its place in the record
    std::shared_ptr<const Codes> names;  // `otherwise` is nobody's name
    std::vector<std::uint8_t> marks_of;  // by code: what is set for the call's pair
};

// Rows, column by column.
struct Calls {
    std::vector<std::int64_t> starts, ends, processes, correlations;
    std::vector<std::uint32_t> names;
    void add(const TimedRows& rows, std::size_t i, std::uint32_t name);
    void add(const Calls& others);
};

class CallScan {
  public:
    // A row is kept if its marks have this bit.
    static constexpr std::uint8_t kKept = 0x80;

    // Reads the table whose tree starts at page `root`. Rows of pairs that are marked in `asked` are kept,
    // too. Throws Unreadable if it cannot be read so, or a time, process, correlation or name is not sound.
    CallScan(const Pager& pager, std::uint32_t root, CallsWanted wanted, const PairMarks& asked,
             const How& how);

    std::uint64_t rows() const { return rows_; }
    // The first start and the last end; of no rows 0.
    std::int64_t first() const { return first_; }
    std::int64_t last() const { return last_; }
    const Calls& kept() const { return kept_; }
    const PairMarks& marks() const { return marks_; }

    // The calls that begin before `to` and end behind `from`, whatever their name: read again.
    Calls during(std::int64_t from, std::int64_t to) const;

  private:
    struct Bounds {
        std::int64_t first, last;
    };
    class Worker;
    std::uint32_t code_of(std::int64_t id) const;

    std::atomic<bool> stop_ = false;
    const CallsWanted wanted_;
    const Codes& names_;
    const Fields fields_;
    const Pieces pieces_;
    PairMarks marks_;
    Calls kept_;
    std::vector<Bounds> bounds_;  // a piece
    std::uint64_t rows_ = 0;
    std::int64_t first_ = 0, last_ = 0;
};

}  // namespace busfare::sqlite
