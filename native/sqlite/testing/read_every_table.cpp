#include "read_every_table.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "../arrow.hpp"
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
        check(is_utf8(text_of(*column, column->values<TextView>()[row])));
    }
    check(nulls == column->nulls());
    array.release(&array);
}

constexpr Kind kWhole[] = {Kind::integer, Kind::small};
constexpr std::uint32_t kSmallPieces = 1024;  // so that even small files keep several threads busy

// Some columns, each as a kind that depends on `round`, and the row's id. Turn 3 reads whole numbers alone,
// of every width.
Columns read(const Pager& pager, std::uint32_t root, std::uint32_t round, unsigned threads) {
    std::vector<Wanted> wanted;
    for (const std::uint32_t index : {0U, 1U, 2U, 4U, 26U}) {
        const Kind kind =
            round == 3 ? kWhole[(index / 2 + index) % 2] : static_cast<Kind>((index + round) % 3);
        wanted.push_back({index, kind, false, index == 2, index == 26 && round == 2});
    }
    wanted.push_back({0, Kind::integer, true, false, false});
    return read_table(pager, root, wanted, {threads, [] { return false; }, kSmallPieces});
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
                ++outcome.tables;
                outcome.rows += columns[0]->length();
            } catch (const Unreadable&) {
                ++outcome.refused;
            } catch (const std::bad_alloc&) {
                ++outcome.refused;
            }
        }
    } catch (const Unreadable&) {
        ++outcome.refused;
    }
    return outcome;
}

}  // namespace busfare::sqlite
