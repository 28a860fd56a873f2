#include "leaf.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <string_view>

#include "numbers.hpp"
#include "text.hpp"
#include "unreadable.hpp"

namespace busfare::sqlite {

namespace {

constexpr std::size_t kLeastBlock = std::size_t{1} << 16, kMostBlock = std::size_t{1} << 22;
constexpr std::uint64_t kFloat = 7;
constexpr std::uint64_t kFirstText = 13;

}  // namespace

LeafReader::LeafReader(const Pager& pager, const Shape& shape, const Columns& columns, Budget& budget)
    : pager_(pager),
      shape_(shape),
      columns_(columns),
      budget_(budget),
      fields_(shape.stored()),
      places_(shape.stored()),
      staging_(pager, shape),
      texts_(columns.size()) {
    const std::size_t most = PageCells::most(pager);
    for (auto& places : places_) places.resize(most);
    rowids_.resize(most);
    numbers_.resize(most);
}

void LeafReader::read(const PageCells& cells, std::uint64_t row, const std::vector<std::uint8_t*>& valid) {
    joined_.clear();
    if (staging_.load(cells)) return by_recipes(row, valid);
    locate(cells);
    std::size_t k = 0;  // among the stored ones
    for (std::size_t column = 0; column < columns_.size(); ++column) {
        const Wanted& wanted = shape_.wanted()[column];
        if (wanted.is_rowid) {
            std::copy_n(rowids_.begin(), rows_, columns_[column]->values<std::int64_t>() + row);
            std::fill_n(valid[column], rows_, std::uint8_t{1});
            continue;
        }
        if (wanted.kind == Kind::text) {
            texts(k, column, row, valid[column]);
        } else if (wanted.kind == Kind::real) {
            reals(k, column, row, valid[column]);
        } else {
            integers(k, column, row, valid[column]);
        }
        ++k;
    }
}

void LeafReader::by_recipes(std::uint64_t row, const std::vector<std::uint8_t*>& valid) {
    rows_ = staging_.rows();
    const std::uint32_t all = staging_.all(), any = staging_.any();
    for (std::size_t column = 0; column < columns_.size(); ++column) {
        if (shape_.wanted()[column].is_rowid) {
            std::copy_n(staging_.rowids(), rows_, columns_[column]->values<std::int64_t>() + row);
            std::fill_n(valid[column], rows_, std::uint8_t{1});
            continue;
        }
        // Whole numbers become floating-point ones where the column says so, and those are not whole numbers.
        const std::uint8_t accepted = shape_.wanted()[column].real_affinity ? 0 : 1;
        if ((all >> column & 1) != 0 || (any >> column & 1) == 0) {
            std::fill_n(valid[column], rows_, static_cast<std::uint8_t>(any >> column & accepted));
        } else {
            for (std::size_t i = 0; i < rows_; ++i) {
                valid[column][i] = static_cast<std::uint8_t>(staging_.valid()[i] >> column & accepted);
            }
        }
        // Nulls need not be written over zeros, and columns of nothing else are common.
        if ((any >> column & 1) == 0) continue;
        finish(staging_.numbers(column), column, row, valid[column]);
    }
}

void LeafReader::locate(const PageCells& cells) {
    rows_ = cells.count;
    const std::size_t stored = shape_.stored();
    for (std::uint32_t i = 0; i < cells.count; ++i) {
        const auto [local, there, size] = cell_of(cells, i, pager_, rowids_[i]);
        if (stored == 0) continue;
        const std::uint8_t* record = local;
        if (there < size) {
            record = whole(cells, local, there, size, be32(local + there));
        } else {
            shape_.locate(record, size, size, fields_.data(), cells.number);
        }
        for (std::size_t k = 0; k < stored; ++k) places_[k][i] = {record + fields_[k].at, fields_[k].type};
    }
}

// A record of which all that is wanted lies in one piece, and its fields.
const std::uint8_t* LeafReader::whole(const PageCells& cells, const std::uint8_t* local, std::uint64_t there,
                                      std::uint64_t size, std::uint32_t overflow) {
    std::uint64_t end = shape_.locate(local, there, size, fields_.data(), cells.number);
    if (end != 0 && end <= there) return local;
    std::vector<std::uint8_t> bytes;
    if (end == 0) {  // the header itself goes on elsewhere
        std::uint64_t length = 0;
        varint(local, local + there, length);
        bytes = joined(local, there, overflow, length);
        end = shape_.locate(bytes.data(), length, size, fields_.data(), cells.number);
    }
    joined_.push_back(joined(local, there, overflow, end));
    return joined_.back().data();
}

// The first `size` bytes of a record, and slack.
std::vector<std::uint8_t> LeafReader::joined(const std::uint8_t* local, std::uint64_t there,
                                             std::uint32_t overflow, std::uint64_t size) {
    std::vector<std::uint8_t> bytes(size + Pager::kSlack);
    std::uint64_t done = std::min(there, size);
    std::copy_n(local, done, bytes.data());
    const std::uint64_t a_page = pager_.usable() - 4;
    while (done < size) {
        if (--budget_.overflow_pages < 0) damaged(overflow, "overflow pages that never end");
        const auto page = pager_.page(overflow);
        overflow = be32(page.data());
        const std::uint64_t part = std::min(a_page, size - done);
        std::copy_n(page.data() + 4, part, bytes.data() + done);
        done += part;
    }
    return bytes;
}

void LeafReader::integers(std::size_t k, std::size_t column, std::uint64_t row, std::uint8_t* valid) {
    const Place* places = places_[k].data();
    // As in by_recipes.
    const std::uint8_t accepted = shape_.wanted()[column].real_affinity ? 0 : 1;
    std::uint64_t any = 0;
    for (std::size_t i = 0; i < rows_; ++i) {
        const IntegerRule& rule = kIntegerRules[std::min(places[i].type, kVariable)];
        numbers_[i] =
            (static_cast<std::int64_t>(be64(places[i].at)) >> rule.shift & rule.mask) | rule.constant;
        valid[i] = rule.valid & accepted;
        any |= places[i].type;
    }
    if (any == 0) return;
    finish(numbers_.data(), column, row, valid);
}

// Puts numbers into their column.
void LeafReader::finish(const std::int64_t* numbers, std::size_t column, std::uint64_t row,
                        std::uint8_t* valid) {
    if (shape_.wanted()[column].kind == Kind::integer) {
        std::copy_n(numbers, rows_, columns_[column]->values<std::int64_t>() + row);
        return;
    }
    std::int32_t* out = columns_[column]->values<std::int32_t>() + row;
    for (std::size_t i = 0; i < rows_; ++i) {
        out[i] = static_cast<std::int32_t>(numbers[i]);
        valid[i] = static_cast<std::uint8_t>(valid[i] & (out[i] == numbers[i]));
    }
}

void LeafReader::reals(std::size_t k, std::size_t column, std::uint64_t row, std::uint8_t* valid) {
    double* out = columns_[column]->values<double>() + row;
    for (std::size_t i = 0; i < rows_; ++i) {
        const Place& place = places_[k][i];
        const std::uint64_t bytes = be64(place.at);
        if (place.type == kFloat) {
            out[i] = std::bit_cast<double>(bytes);
            valid[i] = !std::isnan(out[i]);  // SQLite has none: it reads one as null
        } else {
            const IntegerRule& rule = kIntegerRules[std::min(place.type, kVariable)];
            out[i] = static_cast<double>((static_cast<std::int64_t>(bytes) >> rule.shift & rule.mask) |
                                         rule.constant);
            valid[i] = rule.valid;
        }
    }
}

void LeafReader::texts(std::size_t k, std::size_t column, std::uint64_t row, std::uint8_t* valid) {
    TextView* out = columns_[column]->values<TextView>() + row;
    for (std::size_t i = 0; i < rows_; ++i) {
        const Place& place = places_[k][i];
        valid[i] = place.type >= kFirstText && place.type % 2 == 1;
        const std::string_view text(reinterpret_cast<const char*>(place.at),
                                    valid[i] ? length_of(place.type) : 0);
        if (is_utf8(text)) {
            out[i] = view(column, text.data(), text.size());
        } else {
            const std::string sound = replaced(text);
            out[i] = view(column, sound.data(), sound.size());
        }
    }
}

TextView LeafReader::view(std::size_t column, const char* text, std::size_t length) {
    if (length > std::numeric_limits<std::int32_t>::max()) throw Unreadable("a text of more than 2 GiB");
    TextView made{};
    made.length = static_cast<std::int32_t>(length);
    if (length <= TextView::kInline) {
        auto* bytes = reinterpret_cast<char*>(&made);
        std::memcpy(bytes + offsetof(TextView, prefix), text, length);
        return made;
    }
    budget_.text_bytes -= static_cast<std::int64_t>(length);
    if (budget_.text_bytes < 0) throw Unreadable("more text than the file holds");
    Texts& place = texts_[column];
    if (place.size - place.used < length) {
        place.size = std::max(length, std::clamp(2 * place.size, kLeastBlock, kMostBlock));
        place.used = 0;
        place.block = columns_[column]->texts().add(place.size, place.start);
    }
    std::memcpy(place.start + place.used, text, length);
    std::memcpy(made.prefix, text, sizeof made.prefix);
    made.block = place.block;
    made.offset = static_cast<std::int32_t>(place.used);
    place.used += length;
    return made;
}

}  // namespace busfare::sqlite
