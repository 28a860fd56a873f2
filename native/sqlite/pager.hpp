// The pages of a database file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace busfare::sqlite {

// Where the bytes of a database come from.
class Source {
  public:
    virtual ~Source() = default;
    virtual std::uint64_t size() const = 0;
    // Reads up to `size` bytes from `offset` on; how many there were. Called by several threads at once.
    virtual std::size_t read(std::uint64_t offset, std::uint8_t* into, std::size_t size) const = 0;
};

class Pager {
  public:
    // Bytes after every page read that may be touched but mean nothing, so that the first ones of a header
    // can be loaded from anywhere.
    static constexpr std::size_t kSlack = 32;

    // Reads the file's header. Throws Unreadable if it is no database, or not one of UTF-8 text.
    explicit Pager(const Source& source);

    std::uint32_t page_size() const { return page_size_; }
    // Bytes of a page that hold data; the rest is reserved for extensions.
    std::uint32_t usable() const { return usable_; }
    std::uint32_t page_count() const { return page_count_; }
    std::uint64_t file_size() const { return size_; }

    // Reads `count` pages from `first` on (1: the first of the file), which must lie in the file.
    void read(std::uint32_t first, std::uint32_t count, std::uint8_t* into) const;
    // One page, followed by kSlack bytes.
    std::vector<std::uint8_t> page(std::uint32_t number) const;

  private:
    const Source& source_;
    std::uint64_t size_ = 0;
    std::uint32_t page_size_ = 0, usable_ = 0, page_count_ = 0;
};

}  // namespace busfare::sqlite
