// The whole numbers of one leaf's rows, a column at a time, by recipes.
#pragma once

#include <cstdint>
#include <vector>

#include "btree.hpp"
#include "pager.hpp"
#include "recipes.hpp"
#include "record.hpp"

namespace busfare::sqlite {

// Each thread has one.
class Staging {
  public:
    Staging(const Pager& pager, const Shape& shape);

    // Decodes the page's rows, row by row, without a look at the types of headers that were seen before.
    // False, and nothing said, if some record is not to be read so. Throws Unreadable.
    bool load(const PageCells& cells);

    std::size_t rows() const { return rows_; }
    // Of a stored field, in the order of the shape: a number a row; 0 where it is none.
    std::int64_t* numbers(std::size_t k) { return numbers_.data() + k * rowids_.size(); }
    // Of a row, a bit a stored field: whether it is a number.
    const std::uint32_t* valid() const { return valid_.data(); }
    // Of all rows together: the fields that are numbers in each one, and in some.
    std::uint32_t all() const { return all_; }
    std::uint32_t any() const { return any_; }
    const std::int64_t* rowids() const { return rowids_.data(); }

  private:
    const Pager& pager_;
    const Shape& shape_;
    Recipes recipes_;
    std::size_t rows_ = 0;
    std::uint32_t all_ = 0, any_ = 0;
    std::vector<std::int64_t> numbers_, rowids_;
    std::vector<std::uint32_t> valid_;
};

}  // namespace busfare::sqlite
