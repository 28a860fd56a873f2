#include "btree.hpp"

#include <algorithm>
#include <string>

#include "numbers.hpp"
#include "unreadable.hpp"

namespace busfare::sqlite {

namespace {

constexpr int kDeepest = 20;  // SQLite's own limit

// The database's header stands at the start of page 1, before the page's own.
std::uint32_t header_at(std::uint32_t number) {
    return number == 1 ? 100 : 0;
}

class Walk {
  public:
    Walk(const Pager& pager, const std::atomic<bool>& stop)
        : pager_(pager), stop_(stop), seen_(std::size_t{pager.page_count()} + 1) {}

    std::vector<std::uint32_t> leaves(std::uint32_t root) {
        visit(root);
        const int depth = depth_of(root);
        if (depth == 0) {
            leaves_.push_back(root);
        } else {
            descend(root, depth);
        }
        return std::move(leaves_);
    }

  private:
    // How many levels of interior pages lie over the leaves: all leaves of a sound tree lie equally deep.
    int depth_of(std::uint32_t page) {
        for (int depth = 0; depth < kDeepest; ++depth) {
            const auto bytes = pager_.page(page);
            if (bytes[header_at(page)] == kLeafPage) return depth;
            const PageCells cells(bytes.data(), page, pager_, kInteriorPage);
            page = cells.count == 0 ? cells.right_child : child(cells, 0);
        }
        throw Unreadable("the tree of a table is too deep, or a loop");
    }

    void descend(std::uint32_t page, int depth) {
        if (stop_) throw Cancelled();
        const auto bytes = pager_.page(page);
        const PageCells cells(bytes.data(), page, pager_, kInteriorPage);
        for (std::uint32_t i = 0; i <= cells.count; ++i) {
            const std::uint32_t below = i < cells.count ? child(cells, i) : cells.right_child;
            visit(below);
            if (depth == 1) {
                leaves_.push_back(below);
            } else {
                descend(below, depth - 1);
            }
        }
    }

    std::uint32_t child(const PageCells& cells, std::uint32_t i) const {
        const std::uint32_t at = cells.cell(i);
        if (at + kLeastCell > pager_.usable()) damaged(cells.number, "a cell runs over the end of the page");
        return be32(cells.page + at);
    }

    void visit(std::uint32_t page) {
        if (page == 0 || page > pager_.page_count()) damaged(page, "beyond the end of the file");
        if (seen_[page]) damaged(page, "reached twice");
        seen_[page] = true;
    }

    const Pager& pager_;
    const std::atomic<bool>& stop_;
    std::vector<bool> seen_;
    std::vector<std::uint32_t> leaves_;
};

}  // namespace

PageCells::PageCells(const std::uint8_t* bytes, std::uint32_t page_number, const Pager& pager,
                     std::uint8_t kind)
    : page(bytes), number(page_number) {
    const std::uint32_t header = header_at(number);
    if (page[header] != kind) damaged(number, "no page of a table");
    const std::uint32_t length = kind == kInteriorPage ? 12 : 8;
    count = be16(page + header + 3);
    pointers = page + header + length;
    first = header + length + 2 * count;
    if (count > (pager.usable() - 8) / (2 + kLeastCell)) damaged(number, "more cells than fit a page");
    last = pager.usable() - kLeastCell;
    right_child = kind == kInteriorPage ? be32(page + header + 8) : 0;
}

std::vector<std::uint32_t> leaves_of(const Pager& pager, std::uint32_t root, const std::atomic<bool>& stop) {
    return Walk(pager, stop).leaves(root);
}

std::uint64_t most_rows(const Pager& pager, const std::vector<std::uint32_t>& leaves) {
    const std::uint64_t by_pages = std::uint64_t{leaves.size()} * (pager.usable() / (2 + kLeastCell));
    const auto bytes = pager.page(leaves.front());
    const PageCells head(bytes.data(), leaves.front(), pager, kLeafPage);
    const auto last_bytes = pager.page(leaves.back());
    const PageCells tail(last_bytes.data(), leaves.back(), pager, kLeafPage);
    if (leaves.size() == 1) return head.count;
    if (head.count == 0 || tail.count == 0) return by_pages;
    std::int64_t least = 0, greatest = 0;
    cell_of(head, 0, pager, least);
    cell_of(tail, tail.count - 1, pager, greatest);
    const auto by_rowids = static_cast<std::uint64_t>(greatest) - static_cast<std::uint64_t>(least) +
                           1;  // 0 where every 64-bit number may occur
    return by_rowids == 0 ? by_pages : std::min(by_pages, by_rowids);
}

}  // namespace busfare::sqlite
