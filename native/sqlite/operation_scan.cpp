#include "operation_scan.hpp"

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "../columns/order.hpp"
#include "btree.hpp"

namespace busfare::sqlite {

namespace {

constexpr std::size_t kMostLanes = 1 << 22;
constexpr std::size_t kFirstSlots = 1 << 12;
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
          slots_(kFirstSlots, kNone),
          hashes_(PageCells::most(pieces.pager())),
          marks_(hashes_.size()),
          name_count_(wanted.marks_of.size()),
          name_ns_(wanted.marks_of.size()) {
        keys_.push_back(fields.at(wanted.timed.process));
        for (const std::uint32_t place : wanted.keys) keys_.push_back(fields.at(place));
        for (const std::size_t k : keys_) key_bits_ |= std::uint32_t{1} << k;
    }

    void read(std::size_t piece, PieceWork& work) {
        const std::vector<PageCells>& pages = loader_.load(piece);
        std::uint64_t row = work.first_row(piece, loader_.rows());
        for (const PageCells& cells : pages) {
            const TimedRows rows(staging_, cells, fields_, wanted_.timed);
            if (rows.count == 0) continue;
            std::copy_n(rows.starts, rows.count, into_.starts->values<std::int64_t>() + row);
            std::copy_n(rows.ends, rows.count, into_.ends->values<std::int64_t>() + row);
            last_ = std::max(last_, *std::max_element(rows.ends, rows.ends + rows.count));
            number(rows, row);
            row += rows.count;
        }
    }

    const std::vector<OperationLane>& lanes() const { return lanes_; }
    const std::vector<std::uint32_t>& numbers() const { return number_of_; }
    std::int64_t last() const { return last_; }
    const std::vector<std::int64_t>& name_count() const { return name_count_; }
    const std::vector<std::int64_t>& name_ns() const { return name_ns_; }

  private:
    void number(const TimedRows& rows, std::uint64_t row) {
        for (std::size_t i = 0; i < rows.count; ++i) {
            marks_[i] = calls_.of(rows.processes[i], rows.correlations[i]);
        }
        if (wanted_.name) add_names(rows);
        for (std::size_t i = 0; i < rows.count; ++i) hashes_[i] = state(i) * kOdd;
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
        std::uint32_t* lane_of = into_.lane_of->values<std::uint32_t>() + row;
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
            lane_of[i] = number_of_[local];
        }
    }

    void add_names(const TimedRows& rows) {
        const std::size_t k = fields_.at(*wanted_.name);
        const std::int64_t* ids = staging_.numbers(k);
        if ((staging_.all() >> k & 1) == 0) throw Unreadable("operations without a name");
        const Codes& codes = *wanted_.names;
        for (std::size_t i = 0; i < rows.count; ++i) {
            const std::uint64_t at =
                static_cast<std::uint64_t>(ids[i]) - static_cast<std::uint64_t>(codes.least);
            const std::uint32_t code = at < codes.of.size() ? codes.of[at] : codes.otherwise;
            if (code == codes.otherwise) throw Unreadable("operations without a name");
            marks_[i] |= wanted_.marks_of[code];
            ++name_count_[code];
            name_ns_[code] += rows.ends[i] - rows.starts[i];
        }
    }

    std::uint32_t find(std::size_t i, std::uint64_t row) {
        std::size_t at = place(hashes_[i]);
        for (; slots_[at] != kNone; at = (at + 1) & (slots_.size() - 1)) {
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
        hash_of_.push_back(hashes_[i]);
        slots_[at] = static_cast<std::uint32_t>(lanes_.size() - 1);
        if (4 * lanes_.size() > slots_.size()) grow();
        return static_cast<std::uint32_t>(lanes_.size() - 1);
    }

    std::size_t place(std::uint64_t hash) const { return (hash ^ hash >> 32) & (slots_.size() - 1); }

    void grow() {
        slots_.assign(4 * slots_.size(), kNone);
        for (std::uint32_t lane = 0; lane < lanes_.size(); ++lane) {
            std::size_t at = place(hash_of_[lane]);
            while (slots_[at] != kNone) at = (at + 1) & (slots_.size() - 1);
            slots_[at] = lane;
        }
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
    std::vector<std::int64_t> name_count_, name_ns_;  // by code; sums of usable times do not overflow soon
    std::vector<OperationLane> lanes_;                // of this thread
    std::vector<std::int64_t> values_;                // their keys
    std::vector<std::uint64_t> states_, hash_of_;
    std::vector<std::uint32_t> number_of_;  // of each, among all
    std::int64_t last_ = std::numeric_limits<std::int64_t>::min();
};

std::vector<std::uint32_t> places_of(const OperationsWanted& wanted) {
    const Timed& timed = wanted.timed;
    std::vector<std::uint32_t> places{timed.start, timed.end, timed.process, timed.correlation};
    places.insert(places.end(), wanted.keys.begin(), wanted.keys.end());
    if (wanted.size) places.push_back(*wanted.size);
    if (wanted.name) places.push_back(*wanted.name);
    return places;
}

template <typename T>
void put_in_order(std::shared_ptr<Column>& column, const std::vector<std::uint32_t>& order) {
    auto sorted = std::make_shared<Column>(column->kind(), order.size());
    const T* from = column->values<T>();
    T* into = sorted->template values<T>();
    for (std::size_t i = 0; i < order.size(); ++i) into[i] = from[order[i]];
    sorted->set_length(order.size());
    column = std::move(sorted);
}

void put_in_order(Operations& made) {
    const std::uint64_t rows = made.starts->length();
    if (rows >= UINT32_MAX) throw Unreadable("very many rows");
    std::vector<std::uint32_t> order(rows);
    order_of({{made.starts->values<std::int64_t>(), rows}}, order.data());
    put_in_order<std::int64_t>(made.starts, order);
    put_in_order<std::int64_t>(made.ends, order);
    put_in_order<std::uint32_t>(made.lane_of, order);
    if (made.sizes != nullptr) put_in_order<std::int64_t>(made.sizes, order);
    const std::uint32_t* lane_of = made.lane_of->values<std::uint32_t>();
    for (std::uint64_t row = rows; row-- > 0;) made.lanes[lane_of[row]].first_row = row;
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
    made.lane_of = std::make_shared<Column>(Kind::code32, capacity);
    if (wanted.size) made.sizes = std::make_shared<Column>(Kind::integer, capacity);
    PieceWork work(pieces, capacity, stop);
    LaneNumbers numbers;
    std::mutex mutex;
    std::vector<std::shared_ptr<Worker>> workers;
    work.run(how, [&] {
        auto worker = std::make_shared<Worker>(pieces, fields, wanted, calls, numbers, made);
        const std::lock_guard lock(mutex);
        workers.push_back(worker);
        return [worker, &work](std::size_t piece) { worker->read(piece, work); };
    });
    made.lanes.resize(numbers.count());
    made.name_count.resize(wanted.marks_of.size());
    made.name_ns.resize(wanted.marks_of.size());
    made.last = std::numeric_limits<std::int64_t>::min();
    for (const auto& worker : workers) {
        made.last = std::max(made.last, worker->last());
        for (std::size_t code = 0; code < made.name_count.size(); ++code) {
            made.name_count[code] += worker->name_count()[code];
            made.name_ns[code] += worker->name_ns()[code];
        }
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
    if (!std::is_sorted(made.starts->values<std::int64_t>(),
                        made.starts->values<std::int64_t>() + work.rows())) {
        put_in_order(made);
    }
    return made;
}

}  // namespace busfare::sqlite
