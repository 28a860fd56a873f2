// Columns of a table, read by several threads.
#pragma once

#include <functional>

#include "columns.hpp"
#include "leaf.hpp"
#include "pager.hpp"

namespace busfare::sqlite {

struct How {
    unsigned threads;
    // Asked now and then, in the calling thread: whether to stop.
    std::function<bool()> interrupted;
    // Of leaves that a thread takes at a time: as much as stays in its cache.
    std::uint32_t piece_bytes = 1 << 19;
};

// The columns `wanted` (in the order of their places, rowids last) of the table whose tree starts at page
// `root`. Throws Unreadable if the table cannot be read here, Cancelled if `how` says so.
Columns read_table(const Pager& pager, std::uint32_t root, const std::vector<Wanted>& wanted, const How& how);

}  // namespace busfare::sqlite
