#include "staging.hpp"

#include <algorithm>

#include "numbers.hpp"

namespace busfare::sqlite {

namespace {

constexpr std::size_t kSlots = 256;
constexpr std::uint64_t kTwoBytes = 0x80;
constexpr std::uint64_t kOdd[Recipe::kWords] = {0x9e3779b97f4a7c15U, 0xbf58476d1ce4e5b9U, 0x94d049bb133111ebU,
                                                0xd6e8feb86659fd93U};

}  // namespace

Recipes::Recipes(const Shape& shape) : shape_(shape) {
    const std::size_t bytes = shape.header() + 1;  // the header's length, and the types up to the last wanted
    const bool numbers = std::ranges::all_of(shape.wanted(), [](const Wanted& column) {
        return column.kind != Kind::text && column.kind != Kind::real;
    });
    if (!numbers || shape.stored() == 0 || bytes > sizeof masks_) return;
    std::memset(masks_, 0xff, bytes);
    slots_.resize(kSlots);
}

// One that cannot be written ends at 0.
const Recipe& Recipes::find(const std::uint8_t* record) {
    std::uint64_t start[Recipe::kWords], hash = 0;
    std::memcpy(start, record, sizeof start);
    for (std::size_t i = 0; i < Recipe::kWords; ++i) {
        start[i] &= masks_[i];
        hash ^= start[i] * kOdd[i];
    }
    Recipe& recipe = slots_[hash >> 56];
    if (unlike(recipe, record) != 0) {
        std::memcpy(recipe.start, start, sizeof start);
        if (!write(recipe, record)) recipe.end = 0;
    }
    return recipe;
}

bool Recipes::write(Recipe& recipe, const std::uint8_t* record) const {
    recipe.end = 0;
    recipe.valid = 0;
    const std::uint64_t length = record[0];
    const std::uint64_t types = shape_.header();
    if (length >= kTwoBytes || length < types + 1) return false;
    std::uint64_t at = length;
    std::size_t k = 0;
    for (std::size_t i = 0; i < types; ++i) {
        const std::uint64_t type = record[1 + i];
        if (type >= kTwoBytes) return false;
        while (k < shape_.stored() && shape_.wanted()[k].index == i) {
            const std::uint64_t rule = std::min(type, kVariable);
            recipe.steps[k] = {static_cast<std::uint16_t>(at), static_cast<std::uint16_t>(rule)};
            recipe.valid |= std::uint32_t{kIntegerRules[rule].valid} << k;
            ++k;
        }
        at += length_of(type);
    }
    if (k != shape_.stored()) return false;
    recipe.end = at;
    recipe.whole = length == types + 1;
    return true;
}

Staging::Staging(const Pager& pager, const Shape& shape) : pager_(pager), shape_(shape), recipes_(shape) {
    if (!recipes_.any()) return;
    const std::size_t most = PageCells::most(pager);
    rowids_.resize(most);
    numbers_.resize(shape.stored() * most);
    valid_.resize(most);
}

bool Staging::load(const PageCells& cells) {
    if (!recipes_.any()) return false;
    rows_ = cells.count;
    const std::uint8_t* limit = cells.page + pager_.usable() + Pager::kSlack;
    const std::size_t stored = shape_.stored(), most = rowids_.size();
    std::int64_t* const numbers = numbers_.data();
    all_ = ~std::uint32_t{0};
    any_ = 0;
    for (std::uint32_t i = 0; i < cells.count; ++i) {
        const Cell cell = cell_of(cells, i, pager_, rowids_[i]);
        if (cell.there < cell.size) return false;
        const Recipe* recipe = recipes_.of(cell.record, cell.size, limit, cells.number);
        if (recipe == nullptr) return false;
        for (std::size_t k = 0; k < stored; ++k) {
            const IntegerRule& rule = kIntegerRules[recipe->steps[k].rule];
            const auto bytes = static_cast<std::int64_t>(be64(cell.record + recipe->steps[k].at));
            numbers[k * most + i] = (bytes >> rule.shift & rule.mask) | rule.constant;
        }
        valid_[i] = recipe->valid;
        all_ &= recipe->valid;
        any_ |= recipe->valid;
    }
    return true;
}

}  // namespace busfare::sqlite
