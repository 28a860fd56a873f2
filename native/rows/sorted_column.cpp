#include "sorted_column.hpp"

#include <algorithm>
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
constexpr Format kFormats[] = {{"c", 1}, {"C", 1}, {"s", 2}, {"S", 2}, {"i", 4}, {"I", 4}, {"l", 8}, {"L", 8}};

const Format& format_named(std::string_view name) {
    for (const Format& format : kFormats) {
        if (format.name == name) return format;
    }
    throw std::invalid_argument("no column of whole numbers");
}

// One piece of the column: `valid` are bits from `first_bit` on, or nullptr where nothing is null.
struct Piece {
    const std::uint8_t* values;
    const std::uint8_t* valid;
    std::size_t first_bit;
    std::uint32_t begin, end;  // rows of the whole
    bool nothing;              // nulls only
};

template <typename T>
std::size_t take(const std::vector<Piece>& pieces, const std::uint32_t* order, std::size_t count,
                 std::uint8_t* values, std::uint8_t* valid) {
    T* into = reinterpret_cast<T*>(values);
    std::size_t nulls = 0;
    const Piece* piece = pieces.data();
    for (std::size_t i = 0; i < count; ++i) {
        const std::uint32_t row = order[i];
        if (row < piece->begin || row >= piece->end) {
            piece = &*std::ranges::find_if(pieces, [row](const Piece& p) { return row < p.end; });
        }
        const std::size_t at = row - piece->begin, bit = at + piece->first_bit;
        const bool known =
            !piece->nothing && (piece->valid == nullptr || (piece->valid[bit / 8] >> bit % 8 & 1) != 0);
        if (known) {
            into[i] = reinterpret_cast<const T*>(piece->values)[at];
            valid[i / 8] = static_cast<std::uint8_t>(valid[i / 8] | 1U << i % 8);
        } else {
            ++nulls;
        }
    }
    return nulls;
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
        if (rows + length > std::numeric_limits<std::uint32_t>::max()) throw std::invalid_argument("too many rows");
        const auto* valid = static_cast<const std::uint8_t*>(array->buffers[0]);
        pieces.push_back({static_cast<const std::uint8_t*>(array->buffers[1]) + offset * width, valid, offset,
                          static_cast<std::uint32_t>(rows), static_cast<std::uint32_t>(rows + length),
                          valid != nullptr && array->null_count == array->length});
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
    nulls_ = taking(pieces, order, count, values_.data(), valid_.data());
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
