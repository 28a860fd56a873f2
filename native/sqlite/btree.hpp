// The tree of pages that holds a table.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "numbers.hpp"
#include "pager.hpp"
#include "unreadable.hpp"

namespace busfare::sqlite {

constexpr std::uint8_t kInteriorPage = 0x05, kLeafPage = 0x0d;
constexpr std::uint32_t kLeastCell = 4;

// The cells of one page of a table's tree.
struct PageCells {
    // Checks the page's header and that its cell pointers end within it. Throws Unreadable otherwise.
    PageCells(const std::uint8_t* page, std::uint32_t number, const Pager& pager, std::uint8_t kind);

    const std::uint8_t* page;
    const std::uint8_t* pointers;
    std::uint32_t number, count;
    std::uint32_t first, last;  // where a cell may start
    std::uint32_t right_child;  // of interior pages

    // Where cell `i` starts, in the page. Throws Unreadable if that is no place for a cell.
    std::uint32_t cell(std::uint32_t i) const;
    // No page has more.
    static std::size_t most(const Pager& pager) { return pager.usable() / 6 + 1; }
};

inline std::uint32_t PageCells::cell(std::uint32_t i) const {
    const std::uint32_t at = be16(pointers + 2 * i);
    if (at < first || at > last) damaged(number, "a cell pointer out of the page's cells");
    return at;
}

// How much of a payload of `size` bytes stands in the leaf itself [SQLite file format 1.6].
inline std::uint64_t local_part(std::uint64_t size, std::uint64_t usable) {
    const std::uint64_t most = usable - 35;
    if (size <= most) return size;
    const std::uint64_t least = (usable - 12) * 32 / 255 - 23;
    const std::uint64_t part = least + (size - least) % (usable - 4);
    return part <= most ? part : least;
}

// A row's record, as far as it lies in its leaf.
struct Cell {
    const std::uint8_t* record;
    std::uint64_t there, size;  // bytes in the leaf, and in all
};

// Cell `i` of a leaf, and its row's id. Throws Unreadable if it does not lie within the page.
inline Cell cell_of(const PageCells& cells, std::uint32_t i, const Pager& pager, std::int64_t& rowid) {
    const std::uint8_t* end = cells.page + pager.usable();
    std::uint64_t size = 0, id = 0;
    const std::uint8_t* p = varint(cells.page + cells.cell(i), end, size);
    if (p != nullptr) p = varint(p, end, id);
    if (p == nullptr) damaged(cells.number, "a cell runs over the end of the page");
    if (size > pager.file_size()) damaged(cells.number, "a record longer than the file");
    rowid = static_cast<std::int64_t>(id);
    const std::uint64_t there = local_part(size, pager.usable());
    if (static_cast<std::uint64_t>(end - p) < there + (there < size ? 4 : 0)) {
        damaged(cells.number, "a cell runs over the end of the page");
    }
    return {p, there, size};
}

// The leaves of the table whose tree starts at page `root`, in order of rowid. No page comes twice.
// Throws Unreadable if the tree is damaged or is no table's (an index, or a table WITHOUT ROWID).
std::vector<std::uint32_t> leaves_of(const Pager& pager, std::uint32_t root, const std::atomic<bool>& stop);

// At least as many as the rows in `leaves`: by their least and greatest rowid, and by what pages can hold.
std::uint64_t most_rows(const Pager& pager, const std::vector<std::uint32_t>& leaves);

}  // namespace busfare::sqlite
