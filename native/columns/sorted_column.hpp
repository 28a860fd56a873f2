// A column of numbers with nulls, its rows in another order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "../sqlite/arrow_c.hpp"
#include "../sqlite/buffer.hpp"

namespace busfare {

// Numbers of 1, 2, 4 or 8 bytes in Arrow's layout.
class SortedColumn {
  public:
    // Takes the rows `order`, `count` of them, of what `stream` gives, and releases the stream. Throws
    // std::invalid_argument if that is no column of such numbers, std::out_of_range for a row that is not
    // there.
    SortedColumn(ArrowArrayStream& stream, const std::uint32_t* order, std::size_t count);

    // Arrow's, for all time.
    const char* format() const { return format_; }
    // It keeps `column` alive until it is released.
    static ArrowArray array_of(std::shared_ptr<const SortedColumn> column);

  private:
    const char* format_ = "";
    std::size_t count_, nulls_ = 0;
    sqlite::Buffer<std::uint8_t> values_, valid_;
};

}  // namespace busfare
