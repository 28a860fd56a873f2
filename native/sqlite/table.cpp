#include "table.hpp"

#include <algorithm>
#include <memory>

#include "btree.hpp"

namespace busfare::sqlite {

namespace {

// What one thread needs to put rows into columns.
struct Worker {
    Worker(const Pieces& pieces, const Shape& shape, const Columns& all, Budget& budget)
        : loader(pieces),
          columns(all),
          leaf(pieces.pager(), shape, all, budget),
          valid(all.size()),
          at(all.size()) {}

    void read(std::size_t piece, PieceWork& work) {
        const std::vector<PageCells>& pages = loader.load(piece);
        const std::uint64_t rows = loader.rows(), first = work.first_row(piece, rows);
        for (auto& bytes : valid) bytes.resize(std::max<std::size_t>(bytes.size(), rows));
        std::uint64_t done = 0;
        for (const PageCells& cells : pages) {
            for (std::size_t k = 0; k < at.size(); ++k) at[k] = valid[k].data() + done;
            leaf.read(cells, first + done, at);
            done += cells.count;
        }
        for (std::size_t k = 0; k < at.size(); ++k) columns[k]->set_valid(first, valid[k].data(), rows);
    }

    PieceLoader loader;
    const Columns& columns;
    LeafReader leaf;
    std::vector<std::vector<std::uint8_t>> valid;
    std::vector<std::uint8_t*> at;
};

}  // namespace

Columns read_table(const Pager& pager, std::uint32_t root, const std::vector<Wanted>& wanted,
                   const How& how) {
    std::atomic<bool> stop = false;
    const Pieces pieces(pager, leaves_of(pager, root, stop), how.piece_bytes);
    const Shape shape(wanted);
    const std::uint64_t capacity = most_rows(pager, pieces.leaves());
    Budget budget(pager);
    Columns columns;
    for (const Wanted& wanted_column : wanted)
        columns.push_back(std::make_shared<Column>(wanted_column.kind, capacity));
    PieceWork work(pieces, capacity, stop);
    work.run(how, [&] {
        auto worker = std::make_shared<Worker>(pieces, shape, columns, budget);
        return [worker, &work](std::size_t piece) { worker->read(piece, work); };
    });
    for (auto& column : columns) column->set_length(work.rows());
    return columns;
}

}  // namespace busfare::sqlite
