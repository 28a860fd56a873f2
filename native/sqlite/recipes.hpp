// How records are read whose header was seen before: most rows of a table have one of a few.
#pragma once

#include <cstdint>
#include <vector>

#include "record.hpp"

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

    // Whether records of this shape have recipes: whole numbers only, and all of them among the first types.
    bool any() const { return !known_.empty(); }

    // The recipe of a record of `size` bytes, all of them at hand; nullptr if it has none. The memory may be
    // touched up to `limit`. Throws Unreadable, naming `page`, if the values end beyond the record.
    const Recipe* of(const std::uint8_t* record, std::uint64_t size, const std::uint8_t* limit,
                     std::uint64_t page);

  private:
    bool write(Recipe& recipe, const std::uint8_t* record) const;

    const Shape& shape_;
    std::uint64_t masks_[Recipe::kWords] = {};  // of what belongs to a start
    std::vector<Recipe> known_;
};

}  // namespace busfare::sqlite
