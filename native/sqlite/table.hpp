// Columns of a table, read by several threads.
#pragma once

#include "columns.hpp"
#include "leaf.hpp"
#include "pager.hpp"
#include "pieces.hpp"

namespace busfare::sqlite {

// The columns `wanted` (in the order of their places, rowids last) of the table whose tree starts at page
// `root`. Throws Unreadable if the table cannot be read here, Cancelled if `how` says so.
Columns read_table(const Pager& pager, std::uint32_t root, const std::vector<Wanted>& wanted, const How& how);

}  // namespace busfare::sqlite
