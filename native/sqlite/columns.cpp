#include "columns.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

namespace busfare::sqlite {

namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

std::size_t width(Kind kind) {
    switch (kind) {
        case Kind::text:
            return sizeof(TextView);
        case Kind::small:
            return 4;
        default:
            return 8;
    }
}

}  // namespace

Buffer::Buffer(std::size_t bytes) {
    if (bytes < kHugePage) {
        data_ = {static_cast<std::uint8_t*>(std::calloc(bytes + 1, 1)), Free{0}};
        if (!data_) throw std::bad_alloc();
        return;
    }
    void* mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) throw std::bad_alloc();
    data_ = {static_cast<std::uint8_t*>(mapped), Free{bytes}};
#ifdef MADV_HUGEPAGE
    // Faulting memory in by 4 KiB takes as long as filling it. Whether it works out matters to nobody.
    (void)::madvise(mapped, bytes, MADV_HUGEPAGE);
#endif
}

void Buffer::Free::operator()(std::uint8_t* p) const {
    if (mapped == 0) {
        std::free(p);
    } else {
        ::munmap(p, mapped);
    }
}

std::int32_t TextBlocks::add(std::size_t size, char*& start) {
    const std::lock_guard lock(mutex_);
    blocks_.push_back({std::make_unique_for_overwrite<char[]>(size), size});
    start = blocks_.back().bytes.get();
    return static_cast<std::int32_t>(blocks_.size() - 1);
}

Column::Column(Kind kind, std::uint64_t capacity)
    : kind_(kind), values_(capacity * width(kind)), valid_(capacity / 8 + 1) {}

void Column::set_valid(std::uint64_t first, const std::uint8_t* valid, std::uint64_t count) {
    if (count == 0) return;
    if (std::memchr(valid, 1, count) == nullptr) {  // the bits are zeros as it is
        nulls_ += count;
        return;
    }
    const bool all = std::memchr(valid, 0, count) == nullptr;
    std::uint64_t set = 0;
    for (std::uint64_t i = 0; i < count;) {
        const std::uint64_t row = first + i;
        if (all && row % 8 == 0 && count - i >= 8) {
            const std::uint64_t bytes = (count - i) / 8;
            std::memset(valid_.data() + row / 8, 0xFF, bytes);
            set += bytes * 8;
            i += bytes * 8;
            continue;
        }
        const std::uint64_t bits = std::min<std::uint64_t>(8 - row % 8, count - i);
        std::uint8_t byte = 0;
        for (std::uint64_t bit = 0; bit < bits; ++bit) {
            byte = static_cast<std::uint8_t>(byte | valid[i + bit] << (row % 8 + bit));
            set += valid[i + bit];
        }
        std::uint8_t& place = valid_.data()[row / 8];
        if (bits == 8) {
            place = byte;
        } else {  // shared with the rows of another thread
            std::atomic_ref(place).fetch_or(byte, std::memory_order_relaxed);
        }
        i += bits;
    }
    nulls_ += count - set;
}

}  // namespace busfare::sqlite
