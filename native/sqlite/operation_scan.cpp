#include "operation_scan.hpp"

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "btree.hpp"

namespace busfare::sqlite {

namespace {

constexpr std::size_t kMostLanes = 1 << 15;
constexpr std::size_t kSlots = 2 * kMostLanes;
constexpr std::uint32_t kNone = 0xffffffff;
constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15U;

bool alike(const OperationLane& a, const OperationLane& b) {
    return a.known == b.known && a.marks == b.marks && a.keys == b.keys;
}

// Numbers lanes for all threads.
class LaneNumbers {
  public:
    std::uint32_t number(std::uint64_t hash, const OperationLane& lane) {
        const std::lock_guard lock(mutex_);
        const auto [first, last] = by_hash_.equal_range(hash);
        for (auto one = first; one != last; ++one) {
            if (alike(lanes_[one->second], lane)) return one->second;
        }
        if (lanes_.size() == kMostLanes) throw Unreadable("very many lanes");
        const auto made = static_cast<std::uint32_t>(lanes_.size());
        lanes_.push_back(lane);
        by_hash_.emplace(hash, made);
        return made;
    }
    std::size_t count() const { return lanes_.size(); }

  private:
    std::mutex mutex_;
    std::vector<OperationLane> lanes_;
    std::unordered_multimap<std::uint64_t, std::uint32_t> by_hash_;
};

// What one thread needs.
class Worker {
  public:
    Worker(const Pieces& pieces, const Fields& fields, const OperationsWanted& wanted, const PairMarks& calls,
           LaneNumbers& numbers, const Operations& into)
        : fields_(fields),
          wanted_(wanted),
          numbers_(numbers),
          into_(into),
          loader_(pieces),
          staging_(pieces.pager(), fields.shape()),
          calls_(calls),
          slots_(kSlots, kNone),
          hashes_(PageCells::most(pieces.pager())),
          marks_(hashes_.size()) {
        keys_.push_back(fields.at(wanted.timed.process));
        for (const std::uint32_t place : wanted.keys) keys_.push_back(fields.at(place));
        for (const std::size_t k : keys_) key_bits_ |= std::uint32_t{1} << k;
    }

    // Gives the first and last start of the piece.
    std::pair<std::int64_t, std::int64_t> read(std::size_t piece, PieceWork& work) {
        const std::vector<PageCells>& pages = loader_.load(piece);
        std::uint64_t row = work.first_row(piece, loader_.rows());
        std::pair<std::int64_t, std::int64_t> bounds{0, 0};
        bool any = false;
        for (const PageCells& cells : pages) {
            const TimedRows rows(staging_, cells, fields_, wanted_.timed);
            if (rows.count == 0) continue;
            if (!rows.in_order || (any && rows.starts[0] < bounds.second)) unordered();
            if (!any) bounds.first = rows.starts[0];
            bounds.second = rows.starts[rows.count - 1];
            any = true;
            std::copy_n(rows.starts, rows.count, into_.starts->values<std::int64_t>() + row);
            std::copy_n(rows.ends, rows.count, into_.ends->values<std::int64_t>() + row);
            last_ = std::max(last_, *std::max_element(rows.ends, rows.ends + rows.count));
            number(rows, row);
            row += rows.count;
        }
        return any ? bounds : std::pair<std::int64_t, std::int64_t>{1, 0};
    }

    [[noreturn]] static void unordered() { throw Unreadable("rows that are not in order of time"); }

    const std::vector<OperationLane>& lanes() const { return lanes_; }
    const std::vector<std::uint32_t>& numbers() const { return number_of_; }
    std::int64_t last() const { return last_; }

  private:
    void number(const TimedRows& rows, std::uint64_t row) {
        for (std::size_t i = 0; i < rows.count; ++i) {
            marks_[i] = calls_.of(rows.processes[i], rows.correlations[i]);
            hashes_[i] = state(i) * kOdd;
        }
        for (const std::size_t k : keys_) {
            const std::int64_t* key = staging_.numbers(k);
            for (std::size_t i = 0; i < rows.count; ++i) {
                hashes_[i] = ((hashes_[i] >> 29 ^ hashes_[i]) + static_cast<std::uint64_t>(key[i])) * kOdd;
            }
        }
        const std::int64_t* sizes = nullptr;
        if (wanted_.size) {
            const std::size_t k = fields_.at(*wanted_.size);
            if ((staging_.all() >> k & 1) == 0) throw Unreadable("sizes that are not known");
            sizes = staging_.numbers(k);
            bool bad = false;
            for (std::size_t i = 0; i < rows.count; ++i) bad |= sizes[i] < 0 || sizes[i] > wanted_.largest;
            if (bad) throw Unreadable("sizes that are not sound");
            std::copy_n(sizes, rows.count, into_.sizes->values<std::int64_t>() + row);
        }
        std::uint16_t* lane_of = into_.lane_of->values<std::uint16_t>() + row;
        for (std::size_t i = 0; i < rows.count; ++i) {
            const std::uint32_t local = find(i, row + i);
            OperationLane& lane = lanes_[local];
            const auto ns = static_cast<std::uint64_t>(rows.ends[i] - rows.starts[i]);
            ++lane.count;
            lane.ns += ns;
            if (sizes != nullptr) {
                const auto size = static_cast<std::uint64_t>(sizes[i]);
                lane.bytes += size;
                lane.rated_bytes += ns > 0 ? size : 0;
                lane.rated_ns += ns;
            }
            lane_of[i] = static_cast<std::uint16_t>(number_of_[local]);
        }
    }

    std::uint32_t find(std::size_t i, std::uint64_t row) {
        std::size_t at = hashes_[i] >> 47 & (kSlots - 1);
        for (; slots_[at] != kNone; at = (at + 1) & (kSlots - 1)) {
            if (is(slots_[at], i)) return slots_[at];
        }
        OperationLane made;
        for (std::size_t k = 0; k < keys_.size(); ++k) {
            made.keys.push_back(staging_.numbers(keys_[k])[i]);
            made.known |= (staging_.valid()[i] >> keys_[k] & 1) << k;
        }
        made.marks = marks_[i];
        made.first_row = row;
        number_of_.push_back(numbers_.number(hashes_[i], made));
        values_.insert(values_.end(), made.keys.begin(), made.keys.end());
        states_.push_back(state(i));
        lanes_.push_back(std::move(made));
        return slots_[at] = static_cast<std::uint32_t>(lanes_.size() - 1);
    }

    // What of row `i` tells its lane apart beside the numbers: its marks, and which fields are null.
    std::uint64_t state(std::size_t i) const {
        return std::uint64_t{staging_.valid()[i] & key_bits_} << 8 | marks_[i];
    }

    bool is(std::uint32_t lane, std::size_t i) {
        bool same = states_[lane] == state(i);
        const std::int64_t* values = values_.data() + lane * keys_.size();
        for (std::size_t k = 0; k < keys_.size(); ++k) same &= values[k] == staging_.numbers(keys_[k])[i];
        return same;
    }

    const Fields& fields_;
    const OperationsWanted& wanted_;
    LaneNumbers& numbers_;
    const Operations& into_;
    PieceLoader loader_;
    Staging staging_;
    PairMarks::Look calls_;
    std::vector<std::size_t> keys_;  // in the shape
    std::uint32_t key_bits_ = 0;
    std::vector<std::uint32_t> slots_;
    std::vector<std::uint64_t> hashes_;
    std::vector<std::uint8_t> marks_;
    std::vector<OperationLane> lanes_;  // of this thread
    std::vector<std::int64_t> values_;  // their keys
    std::vector<std::uint64_t> states_;
    std::vector<std::uint32_t> number_of_;  // of each, among all
    std::int64_t last_ = std::numeric_limits<std::int64_t>::min();
};

std::vector<std::uint32_t> places_of(const OperationsWanted& wanted) {
    const Timed& timed = wanted.timed;
    std::vector<std::uint32_t> places{timed.start, timed.end, timed.process, timed.correlation};
    places.insert(places.end(), wanted.keys.begin(), wanted.keys.end());
    if (wanted.size) places.push_back(*wanted.size);
    return places;
}

}  // namespace

Operations scan_operations(const Pager& pager, std::uint32_t root, const OperationsWanted& wanted,
                           const PairMarks& calls, const How& how) {
    std::atomic<bool> stop = false;
    const Pieces pieces(pager, leaves_of(pager, root, stop), how.piece_bytes);
    const Fields fields(places_of(wanted));
    const std::uint64_t capacity = most_rows(pager, pieces.leaves());
    Operations made;
    made.starts = std::make_shared<Column>(Kind::integer, capacity);
    made.ends = std::make_shared<Column>(Kind::integer, capacity);
    made.lane_of = std::make_shared<Column>(Kind::code16, capacity);
    if (wanted.size) made.sizes = std::make_shared<Column>(Kind::integer, capacity);
    PieceWork work(pieces, capacity, stop);
    LaneNumbers numbers;
    std::vector<std::pair<std::int64_t, std::int64_t>> bounds(pieces.count());
    std::mutex mutex;
    std::vector<std::shared_ptr<Worker>> workers;
    work.run(how, [&] {
        auto worker = std::make_shared<Worker>(pieces, fields, wanted, calls, numbers, made);
        const std::lock_guard lock(mutex);
        workers.push_back(worker);
        return [worker, &work, &bounds](std::size_t piece) { bounds[piece] = worker->read(piece, work); };
    });
    const std::pair<std::int64_t, std::int64_t>* before = nullptr;
    for (const auto& one : bounds) {
        if (one.first > one.second) continue;  // a piece without rows
        if (before != nullptr && one.first < before->second) Worker::unordered();
        before = &one;
    }
    made.lanes.resize(numbers.count());
    made.last = std::numeric_limits<std::int64_t>::min();
    for (const auto& worker : workers) {
        made.last = std::max(made.last, worker->last());
        for (std::size_t local = 0; local < worker->lanes().size(); ++local) {
            const OperationLane& lane = worker->lanes()[local];
            OperationLane& into = made.lanes[worker->numbers()[local]];
            if (into.count == 0) {
                into = lane;
                continue;
            }
            into.first_row = std::min(into.first_row, lane.first_row);
            into.count += lane.count;
            into.ns += lane.ns;
            into.bytes += lane.bytes;
            into.rated_bytes += lane.rated_bytes;
            into.rated_ns += lane.rated_ns;
        }
    }
    for (const auto& column : {made.starts, made.ends, made.lane_of, made.sizes}) {
        if (column != nullptr) column->set_length(work.rows());
    }
    return made;
}

}  // namespace busfare::sqlite
