#include "sorted_column.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

namespace busfare {

namespace {

// A structure of Arrow's that is released when it goes.
template <typename T>
class Owned {
  public:
    Owned() = default;
    explicit Owned(const T& content) : content_(content) {}
    Owned(Owned&& other) noexcept : content_(std::exchange(other.content_, T{})) {}
    Owned& operator=(Owned&&) = delete;
    ~Owned() {
        if (content_.release != nullptr) content_.release(&content_);
    }
    T* operator->() { return &content_; }
    T* get() { return &content_; }

  private:
    T content_{};
};

struct Format {
    std::string_view name;
    std::size_t width;
};
constexpr Format kFormats[] = {{"c", 1}, {"C", 1}, {"s", 2}, {"S", 2},
                               {"i", 4}, {"I", 4}, {"l", 8}, {"L", 8}};

const Format& format_named(std::string_view name) {
    for (const Format& format : kFormats) {
        if (format.name == name) return format;
    }
    throw std::invalid_argument("no column of whole numbers");
}

// One piece of the column. A mask of 0 in place of all ones reads the first value, or bit, whatever the row.
struct Piece {
    const std::uint8_t* values;
    const std::uint8_t* valid;
    std::size_t value_mask, bit_mask, first_bit;
    std::uint32_t begin, end;  // rows of the whole
};

constexpr std::size_t kAll = ~std::size_t{0};
constexpr std::uint8_t kZeros[8] = {}, kOnes[1] = {0xff};

// The piece that holds a row. Which of two it is cannot be foretold, so no branch asks.
class Pieces {
  public:
    explicit Pieces(std::vector<Piece> pieces) : pieces_(std::move(pieces)) {}
    const Piece& of(std::uint32_t row) const {
        if (pieces_.size() == 1) return pieces_[0];
        if (pieces_.size() == 2) return pieces_[row >= pieces_[1].begin];
        return *std::ranges::find_if(pieces_, [row](const Piece& piece) { return row < piece.end; });
    }

  private:
    std::vector<Piece> pieces_;
};

template <typename T>
std::size_t take(const Pieces& pieces, const std::uint32_t* order, std::size_t count, std::uint8_t* values,
                 std::uint8_t* valid) {
    T* into = reinterpret_cast<T*>(values);
    std::size_t known = 0;
    for (std::size_t first = 0; first < count; first += 8) {
        unsigned bits = 0;
        for (std::size_t i = first; i < std::min(first + 8, count); ++i) {
            const Piece& piece = pieces.of(order[i]);
            const std::size_t at = order[i] - piece.begin, bit = (at + piece.first_bit) & piece.bit_mask;
            into[i] = reinterpret_cast<const T*>(piece.values)[at & piece.value_mask];
            bits |= (piece.valid[bit / 8] >> bit % 8 & 1U) << (i - first);
        }
        valid[first / 8] = static_cast<std::uint8_t>(bits);
        known += static_cast<std::size_t>(std::popcount(bits));
    }
    return count - known;
}

struct Kept {
    std::shared_ptr<const SortedColumn> column;
    const void* buffers[2];
};

}  // namespace

SortedColumn::SortedColumn(ArrowArrayStream& stream, const std::uint32_t* order, std::size_t count)
    : count_(count), values_(8), valid_(1) {
    Owned<ArrowArrayStream> source(std::exchange(stream, ArrowArrayStream{}));
    Owned<ArrowSchema> schema;
    if (source->get_schema(source.get(), schema.get()) != 0) throw std::invalid_argument("no column");
    const Format& format = format_named(schema->format);
    format_ = format.name.data();
    const std::size_t width = format.width;
    std::vector<Owned<ArrowArray>> arrays;
    std::vector<Piece> pieces;
    std::uint64_t rows = 0;
    for (;;) {
        Owned<ArrowArray> array;
        if (source->get_next(source.get(), array.get()) != 0) throw std::invalid_argument("no column");
        if (array->release == nullptr) break;
        if (array->length == 0) continue;
        const auto length = static_cast<std::uint64_t>(array->length);
        const auto offset = static_cast<std::size_t>(array->offset);
        if (rows + length > std::numeric_limits<std::uint32_t>::max())
            throw std::invalid_argument("too many rows");
        Piece piece{static_cast<const std::uint8_t*>(array->buffers[1]) + offset * width,
                    static_cast<const std::uint8_t*>(array->buffers[0]),
                    kAll,
                    kAll,
                    offset,
                    static_cast<std::uint32_t>(rows),
                    static_cast<std::uint32_t>(rows + length)};
        if (piece.valid == nullptr) {
            piece.valid = kOnes;
            piece.bit_mask = 0;
        } else if (array->null_count == array->length) {
            piece.values = kZeros;
            piece.valid = kZeros;
            piece.value_mask = piece.bit_mask = 0;
        }
        pieces.push_back(piece);
        rows += length;
        arrays.push_back(std::move(array));
    }
    if (count > 0 && *std::max_element(order, order + count) >= rows) {
        throw std::out_of_range("a row that is not there");
    }
    values_ = sqlite::Buffer<std::uint8_t>(count * width);
    valid_ = sqlite::Buffer<std::uint8_t>(count / 8 + 1);
    if (count == 0) return;
    const auto taking = width == 1   ? take<std::uint8_t>
                        : width == 2 ? take<std::uint16_t>
                        : width == 4 ? take<std::uint32_t>
                                     : take<std::uint64_t>;
    nulls_ = taking(Pieces(std::move(pieces)), order, count, values_.data(), valid_.data());
}

ArrowArray SortedColumn::array_of(std::shared_ptr<const SortedColumn> column) {
    auto kept = std::make_unique<Kept>();
    kept->column = std::move(column);
    const SortedColumn& c = *kept->column;
    kept->buffers[0] = c.valid_.data();
    kept->buffers[1] = c.values_.data();
    ArrowArray array{};
    array.length = static_cast<std::int64_t>(c.count_);
    array.null_count = static_cast<std::int64_t>(c.nulls_);
    array.n_buffers = 2;
    array.buffers = kept->buffers;
    array.release = [](ArrowArray* a) {
        delete static_cast<Kept*>(a->private_data);
        a->release = nullptr;
    };
    array.private_data = kept.release();
    return array;
}

}  // namespace busfare
