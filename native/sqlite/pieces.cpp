#include "pieces.hpp"

#include <algorithm>
#include <chrono>
#include <system_error>
#include <thread>

#include "unreadable.hpp"

namespace busfare::sqlite {

namespace {

constexpr std::uint32_t kGap = 2;  // pages of others that are read along rather than sought over
constexpr std::size_t kPiecesForThreads = 4;
constexpr auto kPatience = std::chrono::milliseconds(50);

// Runs `task` in `threads` threads, or as many as can be had, and asks meanwhile whether to stop.
template <typename Task>
void in_threads(unsigned threads, const How& how, std::atomic<bool>& stop, Task task) {
    std::mutex mutex;
    std::condition_variable ended;
    unsigned left = threads;
    std::vector<std::jthread> workers;
    try {
        for (unsigned i = 0; i < threads; ++i) {
            workers.emplace_back([&] {
                task();
                const std::lock_guard lock(mutex);
                --left;
                ended.notify_one();
            });
        }
    } catch (const std::system_error&) {
        if (workers.empty()) task();
        const std::lock_guard lock(mutex);
        left -= threads - static_cast<unsigned>(workers.size());
    }
    std::unique_lock lock(mutex);
    while (!ended.wait_for(lock, kPatience, [&] { return left == 0; })) {
        lock.unlock();
        if (how.interrupted()) stop = true;
        lock.lock();
    }
}

}  // namespace

Pieces::Pieces(const Pager& pager, std::vector<std::uint32_t> leaves, std::uint32_t piece_bytes)
    : pager_(pager),
      leaves_(std::move(leaves)),
      a_piece_(std::max<std::size_t>(1, piece_bytes / pager.page_size())) {}

PieceLoader::PieceLoader(const Pieces& pieces)
    : pieces_(pieces),
      // Most pieces lie together and fill a third of it: the rest is not to be touched.
      buffer_(std::make_unique_for_overwrite<std::uint8_t[]>(
          pieces.a_piece() * pieces.pager().page_size() * (kGap + 1) + Pager::kSlack)) {}

// Neighbours in one go.
const std::vector<PageCells>& PieceLoader::load(std::size_t piece) {
    const Pager& pager = pieces_.pager();
    const auto& leaves = pieces_.leaves();
    const std::size_t end = pieces_.end(piece);
    cells_.clear();
    rows_ = 0;
    std::uint8_t* into = buffer_.get();
    for (std::size_t i = pieces_.begin(piece); i < end;) {
        std::size_t last = i;
        while (last + 1 < end && leaves[last + 1] > leaves[last] &&
               leaves[last + 1] - leaves[last] <= kGap + 1) {
            ++last;
        }
        const std::uint32_t count = leaves[last] - leaves[i] + 1;
        pager.read(leaves[i], count, into);
        for (std::size_t j = i; j <= last; ++j) {
            const std::uint8_t* page = into + std::size_t{leaves[j] - leaves[i]} * pager.page_size();
            cells_.emplace_back(page, leaves[j], pager, kLeafPage);
            rows_ += cells_.back().count;
        }
        into += std::size_t{count} * pager.page_size();
        i = last + 1;
    }
    return cells_;
}

std::uint64_t PieceWork::first_row(std::size_t piece, std::uint64_t rows) {
    std::unique_lock lock(mutex_);
    counted_.wait(lock, [&] { return next_piece_ == piece || stop_; });
    if (stop_) throw Cancelled();
    const std::uint64_t first = rows_;
    if (rows > most_rows_ - first) throw Unreadable("more rows than rowids");
    rows_ += rows;
    ++next_piece_;
    counted_.notify_all();
    return first;
}

void PieceWork::run(const How& how, const std::function<OfPiece()>& make) {
    const std::size_t useful = (pieces_.count() + kPiecesForThreads - 1) / kPiecesForThreads;
    if (useful > 1) {
        const auto threads = static_cast<unsigned>(std::min<std::size_t>(std::max(how.threads, 1U), useful));
        in_threads(threads, how, stop_, [&] { work(make); });
    } else {
        work(make);  // over before anybody could wish to stop it
    }
    if (error_) std::rethrow_exception(error_);
    if (stop_) throw Cancelled();
}

// What one thread does until there are no pieces left, or reading fails in some thread.
void PieceWork::work(const std::function<OfPiece()>& make) noexcept {
    try {
        const OfPiece of_piece = make();
        for (std::size_t piece = next_++; piece < pieces_.count() && !stop_; piece = next_++) of_piece(piece);
    } catch (...) {
        const std::lock_guard lock(mutex_);
        if (!error_) error_ = std::current_exception();
        stop_ = true;
    }
    // One that waits for a piece that will not come must hear of it, and not between its look and its sleep.
    const std::lock_guard lock(mutex_);
    counted_.notify_all();
}

}  // namespace busfare::sqlite
