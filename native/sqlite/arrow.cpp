#include "arrow.hpp"

#include <vector>

namespace busfare::sqlite {

namespace {

constexpr std::int64_t kNullable = 2;

const char* format_of(Kind kind) {
    switch (kind) {
        case Kind::real:
            return "g";
        case Kind::text:
            return "vu";
        case Kind::small:
            return "i";
        default:
            return "l";
    }
}

struct Kept {
    std::shared_ptr<const Column> column;
    std::vector<const void*> buffers;
    std::vector<std::int64_t> sizes;
};

}  // namespace

ArrowSchema schema_of(Kind kind) {
    ArrowSchema schema{};
    schema.format = format_of(kind);
    schema.name = "";
    schema.flags = kNullable;
    schema.release = [](ArrowSchema* s) { s->release = nullptr; };
    return schema;
}

ArrowArray array_of(std::shared_ptr<const Column> column) {
    auto kept = std::make_unique<Kept>();
    kept->column = std::move(column);
    const Column& c = *kept->column;
    kept->buffers = {c.nulls() == 0 ? nullptr : c.valid(), c.values<const void>()};
    if (c.kind() == Kind::text) {  // its blocks, then their sizes
        for (const auto& block : c.texts().blocks()) {
            kept->buffers.push_back(block.bytes.get());
            kept->sizes.push_back(static_cast<std::int64_t>(block.size));
        }
        kept->buffers.push_back(kept->sizes.data());
    }
    ArrowArray array{};
    array.length = static_cast<std::int64_t>(c.length());
    array.null_count = static_cast<std::int64_t>(c.nulls());
    array.n_buffers = static_cast<std::int64_t>(kept->buffers.size());
    array.buffers = kept->buffers.data();
    array.release = [](ArrowArray* a) {
        delete static_cast<Kept*>(a->private_data);
        a->release = nullptr;
    };
    array.private_data = kept.release();
    return array;
}

}  // namespace busfare::sqlite
