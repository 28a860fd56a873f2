#include "pager.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "numbers.hpp"
#include "unreadable.hpp"

namespace busfare::sqlite {

namespace {

constexpr char kMagic[] = "SQLite format 3";  // with its NUL
constexpr std::size_t kHeader = 100;
constexpr std::uint32_t kUtf8 = 1;
constexpr std::uint32_t kNewestFormat = 2;
constexpr std::uint32_t kLeastUsable = 480;

}  // namespace

Pager::Pager(const Source& source) : source_(source), size_(source.size()) {
    std::uint8_t header[kHeader];
    if (source.read(0, header, kHeader) != kHeader || std::memcmp(header, kMagic, sizeof kMagic) != 0) {
        throw Unreadable("no SQLite database");
    }
    const std::uint32_t size = be16(header + 16);
    page_size_ = size == 1 ? 65536 : size;
    if (page_size_ < 512 || !std::has_single_bit(page_size_)) throw Unreadable("impossible page size");
    if (header[19] > kNewestFormat) throw Unreadable("a newer file format");
    if (page_size_ - header[20] < kLeastUsable) throw Unreadable("impossible reserved bytes");
    usable_ = page_size_ - header[20];
    if (header[21] != 64 || header[22] != 32 || header[23] != 32) throw Unreadable("impossible fractions");
    if (be32(header + 56) != kUtf8) throw Unreadable("text that is not UTF-8");
    page_count_ = static_cast<std::uint32_t>(std::min<std::uint64_t>(size_ / page_size_, 0xfffffffeU));
}

void Pager::read(std::uint32_t first, std::uint32_t count, std::uint8_t* into) const {
    if (first == 0 || first > page_count_ || count > page_count_ - first + 1) {
        damaged(first, "beyond the end of the file");
    }
    const std::size_t wanted = std::size_t{count} * page_size_;
    if (source_.read(std::uint64_t{first - 1} * page_size_, into, wanted) != wanted) {
        damaged(first, "the file was cut while it was read");
    }
}

std::vector<std::uint8_t> Pager::page(std::uint32_t number) const {
    std::vector<std::uint8_t> bytes(page_size_ + kSlack);
    read(number, 1, bytes.data());
    return bytes;
}

}  // namespace busfare::sqlite
