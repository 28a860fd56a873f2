// Columns for others, by Arrow's C data interface: they are shared, not copied.
#pragma once

#include <cstdint>
#include <memory>

#include "arrow_c.hpp"
#include "columns.hpp"

namespace busfare::sqlite {

ArrowSchema schema_of(Kind kind);
// The array keeps the column alive until it is released.
ArrowArray array_of(std::shared_ptr<const Column> column);

}  // namespace busfare::sqlite
