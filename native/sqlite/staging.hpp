// The whole numbers of one leaf's rows, a column at a time, by recipes: how records are read whose header was
// seen before. Most rows of a table have one of a few.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "btree.hpp"
#include "pager.hpp"
#include "record.hpp"
#include "unreadable.hpp"

namespace busfare::sqlite {

// Where a field's bytes start, and by which of kIntegerRules they are a number.
struct Step {
    std::uint16_t at;
    std::uint16_t rule;
};

// A record's wanted fields by the first bytes of its header, up to the type of the last one.
struct Recipe {
    static constexpr std::size_t kWords = 4;
    static constexpr std::size_t kMost = 32;  // fields
    std::uint64_t start[kWords] = {};
    std::uint64_t end = 0;    // of the last wanted field; 0: there is no such recipe
    std::uint32_t valid = 0;  // a bit a field: whether it is a number
    bool whole = false;       // no field comes behind the last
    Step steps[kMost];
};

// The recipes of one thread.
class Recipes {
  public:
    explicit Recipes(const Shape& shape);
    Recipes(const Recipes&) = delete;
    Recipes& operator=(const Recipes&) = delete;

    // Whether records of this shape have recipes: whole numbers only, and all of them among the first types.
    bool any() const { return !slots_.empty(); }

    // The recipe of a record of `size` bytes, all of them at hand; nullptr if it has none. The memory may be
    // touched up to `limit`. Throws Unreadable, naming `page`, if the values end beyond the record.
    const Recipe* of(const std::uint8_t* record, std::uint64_t size, const std::uint8_t* limit,
                     std::uint64_t page) {
        if (limit - record < static_cast<std::ptrdiff_t>(8 * Recipe::kWords)) return nullptr;
        if (unlike(*last_, record) != 0) {
            last_ = &find(record);
            if (last_->end == 0) return nullptr;
        }
        if (last_->end > size || (last_->whole && last_->end != size)) {
            damaged(page, "a record's values end beyond it");
        }
        return last_;
    }

  private:
    std::uint64_t unlike(const Recipe& recipe, const std::uint8_t* record) const {
        std::uint64_t start[Recipe::kWords], difference = recipe.end == 0;
        std::memcpy(start, record, sizeof start);
        for (std::size_t i = 0; i < Recipe::kWords; ++i)
            difference |= (start[i] & masks_[i]) ^ recipe.start[i];
        return difference;
    }
    const Recipe& find(const std::uint8_t* record);
    bool write(Recipe& recipe, const std::uint8_t* record) const;

    const Shape& shape_;
    std::uint64_t masks_[Recipe::kWords] = {};  // of what belongs to a start
    std::vector<Recipe> slots_;
    Recipe none_;
    const Recipe* last_ = &none_;  // rows come in runs of one
};

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
