#include "read_every_table.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "../arrow.hpp"
#include "../call_scan.hpp"
#include "../names.hpp"
#include "../operation_scan.hpp"
#include "../table.hpp"
#include "../text.hpp"
#include "../unreadable.hpp"

namespace busfare::sqlite {

namespace {

class MemorySource final : public Source {
  public:
    MemorySource(const std::uint8_t* content, std::size_t size) : content_(content), size_(size) {}
    std::uint64_t size() const override { return size_; }
    std::size_t read(std::uint64_t offset, std::uint8_t* into, std::size_t size) const override {
        if (offset >= size_) return 0;
        const std::size_t there = std::min<std::uint64_t>(size, size_ - offset);
        std::copy_n(content_ + offset, there, into);
        return there;
    }

  private:
    const std::uint8_t* content_;
    std::size_t size_;
};

void check(bool right) {
    if (!right) std::abort();
}

std::string_view text_of(const Column& column, const TextView& view) {
    if (static_cast<std::uint32_t>(view.length) <= TextView::kInline) {
        return {reinterpret_cast<const char*>(&view) + sizeof view.length,
                static_cast<std::size_t>(view.length)};
    }
    const auto& block = column.texts().blocks().at(static_cast<std::size_t>(view.block));
    check(static_cast<std::size_t>(view.offset) + static_cast<std::size_t>(view.length) <= block.size);
    return {block.bytes.get() + view.offset, static_cast<std::size_t>(view.length)};
}

// Touches every value as one who takes the column by Arrow's interface would.
void consume(const std::shared_ptr<Column>& column) {
    ArrowArray array = array_of(column);
    std::uint64_t nulls = 0;
    for (std::int64_t row = 0; row < array.length; ++row) {
        const auto at = static_cast<std::uint64_t>(row);
        nulls += !column->is_valid(at);
        if (column->kind() != Kind::text) continue;
        const std::string_view text = text_of(*column, column->values<TextView>()[row]);
        check(is_utf8(text) && text == column->text(at));
    }
    check(nulls == column->nulls());
    array.release(&array);
}

constexpr Kind kWhole[] = {Kind::integer, Kind::small, Kind::code8, Kind::code32};
constexpr std::uint32_t kSmallPieces = 1024;  // so that even small files keep several threads busy

// Some columns, each as a kind that depends on `turn`, and the row's id. Turn 3 reads whole numbers alone, of
// every width.
Columns read(const Pager& pager, std::uint32_t root, std::uint32_t turn, unsigned threads) {
    std::vector<Wanted> wanted;
    for (const std::uint32_t index : {0U, 1U, 2U, 4U, 26U}) {
        const Kind kind = turn == 3 ? kWhole[(index / 2 + index) % 4] : static_cast<Kind>((index + turn) % 3);
        wanted.push_back({index, kind, false, index == 2, index == 26 && turn == 2});
        if (kind == Kind::code8 || kind == Kind::code32) {
            wanted.back().codes = std::make_shared<const Codes>(Codes{-3, {1, 2, 3, 4, 5, 6, 7}, 250});
        }
    }
    wanted[0].less = INT64_MAX, wanted[0].least = INT64_MIN, wanted[0].most = 0;
    wanted[1].first_bit = 24, wanted[1].bits = 24;
    wanted.push_back({0, Kind::integer, true, false, false});
    return read_table(pager, root, wanted, {threads, [] { return false; }, kSmallPieces});
}

// Two columns as ids of names, and as pairs.
void look_up(const Column& ids, const Column& others) {
    try {
        const auto codes = codes_of(ids, 1 << 12);
        check(codes->otherwise == ids.length());
    } catch (const Unreadable&) {  // as most are: they occur twice
    }
    try {
        for (const auto& [row, text] : texts_with(others, {"a", "cuda"})) {
            check(row < others.length() && !text.empty());
        }
    } catch (const Unreadable&) {
    }
    try {
        PairMarks marks(1 << 12);
        marks.mark_all(ids, others);
    } catch (const Unreadable&) {
    }
}

// The same table as one of calls, and as one of operations.
void scan(const Pager& pager, std::uint32_t root, unsigned threads) {
    const How how{threads, [] { return false; }, kSmallPieces};
    PairMarks asked(1 << 12);
    asked.mark(0, 1, 1);
    const Timed timed{0, 1, 2, 4, 0, -(std::int64_t{1} << 60), std::int64_t{3} << 60, 0, 3};
    const auto names = std::make_shared<const Codes>(Codes{-3, {0, 1, 0, 1, 1, 0, 2}, 2});
    const CallScan calls(pager, root, {timed, 3, names, {1, 0x80, 0x83}}, asked, how);
    const Calls found = calls.during(calls.first(), calls.last());
    check(found.starts.size() <= calls.rows() && found.starts.size() == found.names.size());
    check(calls.kept().starts.size() <= calls.rows());
    const Operations operations = scan_operations(
        pager, root, {timed, {3, 5}, std::uint32_t{1}, std::int64_t{1} << 44}, calls.marks(), how);
    std::uint64_t rows = 0;
    for (const OperationLane& lane : operations.lanes) rows += lane.count;
    check(rows == operations.starts->length());
    for (std::uint64_t row = 0; row < rows; ++row) {
        check(operations.lane_of->values<std::uint16_t>()[row] < operations.lanes.size());
        check(operations.ends->values<std::int64_t>()[row] >= operations.starts->values<std::int64_t>()[row]);
        check(operations.ends->values<std::int64_t>()[row] <= operations.last);
    }
}

}  // namespace

Outcome read_every_table(const std::uint8_t* content, std::size_t size, unsigned threads) {
    Outcome outcome;
    try {
        const MemorySource source(content, size);
        const Pager pager(source);
        // The table of tables: type, name, table's name, root page, SQL.
        const Columns schema = read_table(pager, 1, {{3, Kind::integer, false, false, false}},
                                          {1, [] { return false; }, kSmallPieces});
        std::vector<std::uint32_t> roots = {1};
        for (std::uint64_t row = 0; row < std::min<std::uint64_t>(schema[0]->length(), 64); ++row) {
            roots.push_back(static_cast<std::uint32_t>(schema[0]->values<std::int64_t>()[row]));
        }
        for (const std::uint32_t root : roots) {
            try {
                const Columns columns = read(pager, root, root % 4, threads);
                for (const auto& column : columns) consume(column);
                for (const auto& column : columns) look_up(*columns.back(), *column);
                ++outcome.tables;
                outcome.rows += columns[0]->length();
            } catch (const Unreadable&) {
                ++outcome.refused;
            } catch (const std::bad_alloc&) {
                ++outcome.refused;
            }
            try {
                scan(pager, root, threads);
                ++outcome.scanned;
            } catch (const Unreadable&) {  // as most tables are: they hold no times
            } catch (const std::bad_alloc&) {
            }
        }
    } catch (const Unreadable&) {
        ++outcome.refused;
    }
    return outcome;
}

}  // namespace busfare::sqlite
