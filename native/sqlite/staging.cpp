#include "staging.hpp"

#include "bytes.hpp"

namespace busfare::sqlite {

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
        const Cell found = cell_of(cells, i, pager_, rowids_[i]);
        if (found.there < found.size) return false;
        const Recipe* recipe = recipes_.of(found.record, found.size, limit, cells.number);
        if (recipe == nullptr) return false;
        for (std::size_t k = 0; k < stored; ++k) {
            const IntegerRule& rule = kIntegerRules[recipe->steps[k].rule];
            const auto bytes = static_cast<std::int64_t>(be64(found.record + recipe->steps[k].at));
            numbers[k * most + i] = (bytes >> rule.shift & rule.mask) | rule.constant;
        }
        valid_[i] = recipe->valid;
        all_ &= recipe->valid;
        any_ |= recipe->valid;
    }
    return true;
}

}  // namespace busfare::sqlite
