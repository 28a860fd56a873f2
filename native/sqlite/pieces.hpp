// The leaves of a table in pieces, worked through by several threads.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "btree.hpp"
#include "pager.hpp"

namespace busfare::sqlite {

struct How {
    unsigned threads;
    // Asked now and then, in the calling thread: whether to stop.
    std::function<bool()> interrupted;
    // Of leaves that a thread takes at a time: as much as stays in its cache.
    std::uint32_t piece_bytes = 1 << 19;
};

class Pieces {
  public:
    Pieces(const Pager& pager, std::vector<std::uint32_t> leaves, std::uint32_t piece_bytes);

    const Pager& pager() const { return pager_; }
    const std::vector<std::uint32_t>& leaves() const { return leaves_; }
    std::size_t count() const { return (leaves_.size() + a_piece_ - 1) / a_piece_; }
    // How many leaves a piece has, and the first one of a piece.
    std::size_t a_piece() const { return a_piece_; }
    std::size_t begin(std::size_t piece) const { return piece * a_piece_; }
    std::size_t end(std::size_t piece) const { return std::min(begin(piece) + a_piece_, leaves_.size()); }

  private:
    const Pager& pager_;
    const std::vector<std::uint32_t> leaves_;
    const std::size_t a_piece_;
};

// Loads pieces, one after the other; each thread has one.
class PieceLoader {
  public:
    explicit PieceLoader(const Pieces& pieces);

    // The pages of a piece, until the next is loaded. Throws Unreadable if one is no leaf.
    const std::vector<PageCells>& load(std::size_t piece);
    // How many rows the loaded piece has.
    std::uint64_t rows() const { return rows_; }

  private:
    const Pieces& pieces_;
    std::unique_ptr<std::uint8_t[]> buffer_;
    std::vector<PageCells> cells_;
    std::uint64_t rows_ = 0;
};

// What the threads of one reading share. They take pieces in order; a piece's first row is known once all
// pieces before it are loaded and their cells counted, which is soon, so that every row is written only once.
class PieceWork {
  public:
    // `stop` ends it from outside.
    PieceWork(const Pieces& pieces, std::uint64_t most_rows, std::atomic<bool>& stop)
        : pieces_(pieces), most_rows_(most_rows), stop_(stop) {}

    // Waits for the pieces before, and says where this one's rows begin. Throws Unreadable if there are more
    // than `most_rows` in all.
    std::uint64_t first_row(std::size_t piece, std::uint64_t rows);

    using OfPiece = std::function<void(std::size_t piece)>;
    // Works through all pieces, each thread by what `make` gives it. Throws what a thread threw, and
    // Cancelled if `how` says so.
    void run(const How& how, const std::function<OfPiece()>& make);

    std::uint64_t rows() const { return rows_; }

  private:
    void work(const std::function<OfPiece()>& make) noexcept;

    const Pieces& pieces_;
    const std::uint64_t most_rows_;
    std::atomic<bool>& stop_;
    std::atomic<std::size_t> next_{0};
    std::mutex mutex_;
    std::condition_variable counted_;
    std::size_t next_piece_ = 0;
    std::uint64_t rows_ = 0;
    std::exception_ptr error_;
};

}  // namespace busfare::sqlite
