// Rows of one leaf page into columns.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "btree.hpp"
#include "columns.hpp"
#include "pager.hpp"
#include "record.hpp"
#include "staging.hpp"

namespace busfare::sqlite {

// What one table may take in all, by the size of its file: more means that rows share what only one can have.
struct Budget {
    explicit Budget(const Pager& pager)
        : overflow_pages(pager.page_count()), text_bytes(static_cast<std::int64_t>(2 * pager.file_size())) {}
    std::atomic<std::int64_t> overflow_pages, text_bytes;
};

using Columns = std::vector<std::shared_ptr<Column>>;

// Decodes leaves, one after the other; each thread has one.
class LeafReader {
  public:
    // Columns stand as in `shape`.
    LeafReader(const Pager& pager, const Shape& shape, const Columns& columns, Budget& budget);

    // Decodes the page's rows as rows `row` and on, and says in `valid`, one row of it a column, which are
    // not null.
    void read(const PageCells& cells, std::uint64_t row, const std::vector<std::uint8_t*>& valid);

  private:
    struct Place {
        const std::uint8_t* at;
        std::uint64_t type;
    };
    // Where this thread puts long texts of a column.
    struct Texts {
        std::int32_t block = -1;
        char* start = nullptr;
        std::size_t used = 0, size = 0;
    };

    void by_recipes(std::uint64_t row, const std::vector<std::uint8_t*>& valid);
    void locate(const PageCells& cells);
    void finish(const std::int64_t* numbers, std::size_t column, std::uint64_t row, std::uint8_t* valid);
    const std::uint8_t* whole(const PageCells& cells, const std::uint8_t* local, std::uint64_t there,
                              std::uint64_t size, std::uint32_t overflow);
    std::vector<std::uint8_t> joined(const std::uint8_t* local, std::uint64_t there, std::uint32_t overflow,
                                     std::uint64_t size);
    void integers(std::size_t k, std::size_t column, std::uint64_t row, std::uint8_t* valid);
    void reals(std::size_t k, std::size_t column, std::uint64_t row, std::uint8_t* valid);
    void texts(std::size_t k, std::size_t column, std::uint64_t row, std::uint8_t* valid);
    TextView view(std::size_t column, const char* text, std::size_t length);

    const Pager& pager_;
    const Shape& shape_;
    const Columns& columns_;
    Budget& budget_;
    std::size_t rows_ = 0;
    std::vector<Field> fields_;               // of one record
    std::vector<std::vector<Place>> places_;  // a stored column, then a row
    std::vector<std::int64_t> rowids_, numbers_;
    Staging staging_;
    std::deque<std::vector<std::uint8_t>> joined_;  // records of this leaf that go on in other pages
    std::vector<Texts> texts_;
};

}  // namespace busfare::sqlite
