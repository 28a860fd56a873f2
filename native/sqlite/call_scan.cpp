#include "call_scan.hpp"

#include <limits>

#include "btree.hpp"

namespace busfare::sqlite {

namespace {

constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

template <typename T>
void append(std::vector<T>& into, const std::vector<T>& from) {
    into.insert(into.end(), from.begin(), from.end());
}

}  // namespace

void Calls::add(const TimedRows& rows, std::size_t i, std::uint32_t name) {
    starts.push_back(rows.starts[i]);
    ends.push_back(rows.ends[i]);
    processes.push_back(rows.processes[i]);
    correlations.push_back(rows.correlations[i]);
    names.push_back(name);
}

void Calls::add(const Calls& others) {
    append(starts, others.starts);
    append(ends, others.ends);
    append(processes, others.processes);
    append(correlations, others.correlations);
    append(names, others.names);
}

// What one thread needs.
class CallScan::Worker {
  public:
    Worker(const CallScan& scan, std::uint64_t most, std::uint64_t expected, const PairMarks& asked)
        : scan_(scan),
          loader_(scan.pieces_),
          staging_(scan.pieces_.pager(), scan.fields_.shape()),
          marks_(most, expected),
          asked_(asked) {}

    void read(std::size_t piece, PieceWork& work, Calls& kept, Bounds& bounds) {
        const std::vector<PageCells>& pages = loader_.load(piece);
        work.first_row(piece, loader_.rows());
        const std::size_t name = scan_.fields_.at(scan_.wanted_.name);
        for (const PageCells& cells : pages) {
            const TimedRows rows(staging_, cells, scan_.fields_, scan_.wanted_.timed);
            const std::int64_t* names = staging_.numbers(name);
            const bool named = (staging_.all() >> name & 1) != 0;
            for (std::size_t i = 0; i < rows.count; ++i) {
                const std::uint32_t code = scan_.code_of(names[i]);
                if (!named || code == scan_.names_.otherwise) throw Unreadable("calls without a name");
                const std::uint8_t marks = scan_.wanted_.marks_of[code];
                marks_.mark(rows.processes[i], rows.correlations[i], marks);
                bounds.first = std::min(bounds.first, rows.starts[i]);
                bounds.last = std::max(bounds.last, rows.ends[i]);
                if ((marks & kKept) != 0 || asked_.of(rows.processes[i], rows.correlations[i]) != 0) {
                    kept.add(rows, i, code);
                }
            }
        }
    }

    // Of the calls that begin before `to` and end behind `from`.
    void find(std::size_t piece, std::int64_t from, std::int64_t to, Calls& found) {
        const std::size_t name = scan_.fields_.at(scan_.wanted_.name);
        for (const PageCells& cells : loader_.load(piece)) {
            const TimedRows rows(staging_, cells, scan_.fields_, scan_.wanted_.timed);
            for (std::size_t i = 0; i < rows.count; ++i) {
                if (rows.starts[i] >= to || rows.ends[i] <= from) continue;
                found.add(rows, i, scan_.code_of(staging_.numbers(name)[i]));
            }
        }
    }

    PairMarks& marks() { return marks_; }

  private:
    const CallScan& scan_;
    PieceLoader loader_;
    Staging staging_;
    PairMarks marks_;
    PairMarks::Look asked_;
};

CallScan::CallScan(const Pager& pager, std::uint32_t root, CallsWanted wanted, const PairMarks& asked,
                   const How& how)
    : wanted_(std::move(wanted)),
      names_(*wanted_.names),
      fields_({wanted_.timed.start, wanted_.timed.end, wanted_.timed.process, wanted_.timed.correlation,
               wanted_.name}),
      pieces_(pager, leaves_of(pager, root, stop_), how.piece_bytes),
      marks_(asked.most()),
      bounds_(pieces_.count(), {kMost, kLeast}) {
    const std::uint64_t most = most_rows(pager, pieces_.leaves());
    PieceWork work(pieces_, most, stop_);
    std::vector<Calls> kept(pieces_.count());
    std::mutex mutex;
    std::vector<std::shared_ptr<Worker>> workers;
    work.run(how, [&] {
        auto worker = std::make_shared<Worker>(*this, asked.most(), most, asked);
        const std::lock_guard lock(mutex);
        workers.push_back(worker);
        return [this, worker, &work, &kept](std::size_t piece) {
            worker->read(piece, work, kept[piece], bounds_[piece]);
        };
    });
    for (std::size_t i = 0; i < workers.size(); ++i) {
        if (i == 0) {
            marks_ = std::move(workers[i]->marks());
        } else {
            marks_.add(workers[i]->marks());
        }
    }
    for (const Calls& part : kept) kept_.add(part);
    rows_ = work.rows();
    if (rows_ == 0) return;
    first_ = kMost;
    last_ = kLeast;
    for (const Bounds& bounds : bounds_) {
        first_ = std::min(first_, bounds.first);
        last_ = std::max(last_, bounds.last);
    }
}

Calls CallScan::during(std::int64_t from, std::int64_t to) const {
    Calls found;
    Worker worker(*this, 0, 0, marks_);
    for (std::size_t piece = 0; piece < pieces_.count(); ++piece) {
        if (bounds_[piece].first < to && bounds_[piece].last > from) worker.find(piece, from, to, found);
    }
    return found;
}

std::uint32_t CallScan::code_of(std::int64_t id) const {
    const std::uint64_t at = static_cast<std::uint64_t>(id) - static_cast<std::uint64_t>(names_.least);
    return at < names_.of.size() ? names_.of[at] : names_.otherwise;
}

}  // namespace busfare::sqlite
