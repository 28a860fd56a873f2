// What scans take of a row: whole numbers by their places in the records.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "record.hpp"
#include "staging.hpp"
#include "unreadable.hpp"

namespace busfare::sqlite {

// When a row began and ended, and to which pair of process and correlation it belongs.
struct Timed {
    std::uint32_t start, end, process, correlation;  // places in the record
    std::int64_t less, least, most;                  // times count from `less`; usable ones
    std::uint8_t first_bit, bits;                    // where a process stands in its global id
};

class Fields {
  public:
    // Of all these places, in any order and also twice.
    explicit Fields(std::vector<std::uint32_t> places) : places_(std::move(places)), shape_(of(places_)) {}

    const Shape& shape() const { return shape_; }
    // Where a field stands in the shape.
    std::size_t at(std::uint32_t place) const {
        return static_cast<std::size_t>(std::ranges::lower_bound(places_, place) - places_.begin());
    }

  private:
    static Shape of(std::vector<std::uint32_t>& places) {
        std::ranges::sort(places);
        places.erase(std::unique(places.begin(), places.end()), places.end());
        std::vector<Wanted> wanted;
        for (const std::uint32_t place : places) wanted.push_back({place, Kind::integer, false, false, true});
        return Shape(std::move(wanted));
    }

    std::vector<std::uint32_t> places_;
    Shape shape_;
};

// The rows of one page, of which all times, processes and correlations are sound.
struct TimedRows {
    // Throws Unreadable if some are not, or cannot be read so.
    TimedRows(Staging& staging, const PageCells& cells, const Fields& fields, const Timed& timed) {
        if (!staging.load(cells)) throw Unreadable("records that only SQLite reads");
        count = staging.rows();
        if (count == 0) return;
        starts = staging.numbers(fields.at(timed.start));
        ends = staging.numbers(fields.at(timed.end));
        processes = staging.numbers(fields.at(timed.process));
        correlations = staging.numbers(fields.at(timed.correlation));
        std::uint32_t needed = 0;
        for (const std::uint32_t place : {timed.start, timed.end, timed.process, timed.correlation}) {
            needed |= std::uint32_t{1} << fields.at(place);
        }
        const std::int64_t mask =
            timed.bits < 64 ? static_cast<std::int64_t>((std::uint64_t{1} << timed.bits) - 1) : -1;
        bool bad = (staging.all() & needed) != needed;
        for (std::size_t i = 0; i < count; ++i) {
            bad |= (starts[i] < timed.least) | (ends[i] > timed.most) | (ends[i] < starts[i]) |
                   (correlations[i] < 0);
            processes[i] = processes[i] >> timed.first_bit & mask;
        }
        if (bad) throw Unreadable("rows to be sorted out");
        // Usable ones are far from the ends of what 64 bits hold.
        for (std::size_t i = 0; i < count; ++i) {
            starts[i] -= timed.less;
            ends[i] -= timed.less;
        }
    }

    std::size_t count = 0;
    std::int64_t* starts = nullptr;
    std::int64_t* ends = nullptr;
    std::int64_t* processes = nullptr;
    std::int64_t* correlations = nullptr;
};

}  // namespace busfare::sqlite
