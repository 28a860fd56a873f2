#include "table.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <thread>

#include "btree.hpp"
#include "unreadable.hpp"

namespace busfare::sqlite {

namespace {

constexpr std::uint32_t kGap = 2;  // pages of others that are read along rather than sought over
constexpr std::size_t kPiecesForThreads = 4;
constexpr auto kPatience = std::chrono::milliseconds(50);

// One reading of one table. Threads take pieces of the leaves in order; a piece's first row is known once all
// pieces before it are loaded and their cells counted, which is soon, so that every row is written only once.
class Reading {
  public:
    Reading(const Pager& pager, std::vector<std::uint32_t> leaves, const std::vector<Wanted>& wanted,
            std::uint32_t piece_bytes, std::atomic<bool>& stop)
        : pager_(pager),
          leaves_(std::move(leaves)),
          shape_(wanted),
          capacity_(most_rows(pager, leaves_)),
          a_piece_(std::max<std::size_t>(1, piece_bytes / pager.page_size())),
          budget_(pager),
          stop_(stop) {
        for (const Wanted& one : wanted) columns_.push_back(std::make_shared<Column>(one.kind, capacity_));
    }

    std::size_t pieces() const { return (leaves_.size() + a_piece_ - 1) / a_piece_; }

    // What one thread does until there are no pieces left, or reading fails in some thread.
    void work() noexcept {
        try {
            Worker worker(*this);
            for (std::size_t piece = next_++; piece < pieces() && !stop_; piece = next_++) worker.read(piece);
        } catch (...) {
            const std::lock_guard lock(mutex_);
            if (!error_) error_ = std::current_exception();
            stop_ = true;
        }
        // One that waits for a piece that will not come must hear of it, and not between its look and its
        // sleep.
        const std::lock_guard lock(mutex_);
        counted_.notify_all();
    }

    Columns finish() {
        if (error_) std::rethrow_exception(error_);
        if (stop_) throw Cancelled();
        for (auto& column : columns_) column->set_length(rows_);
        return columns_;
    }

  private:
    class Worker {
      public:
        explicit Worker(Reading& reading)
            : reading_(reading),
              buffer_(reading.a_piece_ * reading.pager_.page_size() * (kGap + 1) + Pager::kSlack),
              leaf_(reading.pager_, reading.shape_, reading.columns_, reading.budget_),
              valid_(reading.columns_.size()),
              at_(reading.columns_.size()) {}

        void read(std::size_t piece) {
            const std::size_t begin = piece * reading_.a_piece_;
            const std::size_t end = std::min(begin + reading_.a_piece_, reading_.leaves_.size());
            load(begin, end);
            std::uint64_t rows = 0;
            for (const PageCells& cells : cells_) rows += cells.count;
            const std::uint64_t first = reading_.first_row(piece, rows);
            for (auto& bytes : valid_) bytes.resize(std::max<std::size_t>(bytes.size(), rows));
            std::uint64_t done = 0;
            for (const PageCells& cells : cells_) {
                for (std::size_t k = 0; k < at_.size(); ++k) at_[k] = valid_[k].data() + done;
                leaf_.read(cells, first + done, at_);
                done += cells.count;
            }
            for (std::size_t k = 0; k < at_.size(); ++k) {
                reading_.columns_[k]->set_valid(first, valid_[k].data(), rows);
            }
        }

      private:
        // Reads the piece's pages, neighbours in one go.
        void load(std::size_t begin, std::size_t end) {
            const Pager& pager = reading_.pager_;
            const auto& leaves = reading_.leaves_;
            cells_.clear();
            std::uint8_t* into = buffer_.data();
            for (std::size_t i = begin; i < end;) {
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
                }
                into += std::size_t{count} * pager.page_size();
                i = last + 1;
            }
        }

        Reading& reading_;
        std::vector<std::uint8_t> buffer_;
        LeafReader leaf_;
        std::vector<PageCells> cells_;
        std::vector<std::vector<std::uint8_t>> valid_;
        std::vector<std::uint8_t*> at_;
    };

    // Waits for the pieces before, and says where this one's rows begin.
    std::uint64_t first_row(std::size_t piece, std::uint64_t rows) {
        std::unique_lock lock(mutex_);
        counted_.wait(lock, [&] { return turn_ == piece || stop_; });
        if (stop_) throw Cancelled();
        const std::uint64_t first = rows_;
        if (rows > capacity_ - first) throw Unreadable("more rows than rowids");
        rows_ += rows;
        ++turn_;
        counted_.notify_all();
        return first;
    }

    const Pager& pager_;
    const std::vector<std::uint32_t> leaves_;
    const Shape shape_;
    const std::uint64_t capacity_;
    const std::size_t a_piece_;
    Columns columns_;
    Budget budget_;
    std::atomic<std::size_t> next_{0};
    std::atomic<bool>& stop_;
    std::mutex mutex_;
    std::condition_variable counted_;
    std::size_t turn_ = 0;
    std::uint64_t rows_ = 0;
    std::exception_ptr error_;
};

// Runs `task` in `threads` threads, and asks meanwhile whether to stop.
template <typename Task>
void run(unsigned threads, const How& how, std::atomic<bool>& stop, Task task) {
    std::mutex mutex;
    std::condition_variable ended;
    unsigned left = threads;
    std::vector<std::jthread> workers;
    for (unsigned i = 0; i < threads; ++i) {
        workers.emplace_back([&] {
            task();
            const std::lock_guard lock(mutex);
            --left;
            ended.notify_one();
        });
    }
    std::unique_lock lock(mutex);
    while (!ended.wait_for(lock, kPatience, [&] { return left == 0; })) {
        lock.unlock();
        if (how.interrupted()) stop = true;
        lock.lock();
    }
}

}  // namespace

Columns read_table(const Pager& pager, std::uint32_t root, const std::vector<Wanted>& wanted,
                   const How& how) {
    std::atomic<bool> stop = false;
    Reading reading(pager, leaves_of(pager, root, stop), wanted, how.piece_bytes, stop);
    const std::size_t useful = (reading.pieces() + kPiecesForThreads - 1) / kPiecesForThreads;
    if (useful > 1) {
        const auto threads = static_cast<unsigned>(std::min<std::size_t>(std::max(how.threads, 1U), useful));
        run(threads, how, stop, [&] { reading.work(); });
    } else {
        reading.work();  // over before anybody could wish to stop it
    }
    return reading.finish();
}

}  // namespace busfare::sqlite
