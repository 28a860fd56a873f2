// Columns for others, by Arrow's C data interface: they are shared, not copied.
#pragma once

#include <cstdint>
#include <memory>

#include "columns.hpp"

// These structures are laid down by Arrow, with these names [Arrow C data interface].
extern "C" {
struct ArrowSchema {
    const char* format;
    const char* name;
    const char* metadata;
    std::int64_t flags;
    std::int64_t n_children;
    ArrowSchema** children;
    ArrowSchema* dictionary;
    void (*release)(ArrowSchema*);
    void* private_data;
};

struct ArrowArray {
    std::int64_t length;
    std::int64_t null_count;
    std::int64_t offset;
    std::int64_t n_buffers;
    std::int64_t n_children;
    const void** buffers;
    ArrowArray** children;
    ArrowArray* dictionary;
    void (*release)(ArrowArray*);
    void* private_data;
};
}

namespace busfare::sqlite {

ArrowSchema schema_of(Kind kind);
// The array keeps the column alive until it is released.
ArrowArray array_of(std::shared_ptr<const Column> column);

}  // namespace busfare::sqlite
