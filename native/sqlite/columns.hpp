// Columns in the making: memory in Arrow's layout that several threads fill, each its own rows.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace busfare::sqlite {

// `small` is a whole number of 32 bits, null where it does not fit.
enum class Kind : std::uint8_t { integer, real, text, small };

// What to read: a column by its place in the records.
struct Wanted {
    std::uint32_t index;  // place in the record
    Kind kind;
    bool is_rowid;       // INTEGER PRIMARY KEY: the value is the row's id
    bool real_affinity;  // whole numbers are stored as integers, and mean floating-point ones
    bool has_default;    // records that are too short do not mean null
};

// Zeros; what is never written takes no memory, in columns of some size, which lie in large pages.
class Buffer {
  public:
    explicit Buffer(std::size_t bytes);
    std::uint8_t* data() const { return data_.get(); }

  private:
    struct Free {
        std::size_t mapped;  // bytes; 0: allocated
        void operator()(std::uint8_t* p) const;
    };
    std::unique_ptr<std::uint8_t, Free> data_;
};

// Arrow's view of a text: the text itself up to 12 bytes, else its start and where it lies.
struct TextView {
    static constexpr std::uint32_t kInline = 12;
    std::int32_t length;
    char prefix[4];
    std::int32_t block, offset;
};
static_assert(sizeof(TextView) == 16);

// Texts that are too long for a view, in blocks that any thread may add.
class TextBlocks {
  public:
    // A block of `size` bytes or more of which nothing is used; its number.
    std::int32_t add(std::size_t size, char*& start);

    struct Block {
        std::unique_ptr<char[]> bytes;
        std::size_t size;
    };
    // To be read when all threads are done.
    const std::vector<Block>& blocks() const { return blocks_; }

  private:
    std::mutex mutex_;
    std::vector<Block> blocks_;
};

// One column. `values` are as wide as their kind; a bit of `valid` a row.
class Column {
  public:
    Column(Kind kind, std::uint64_t capacity);

    template <typename T>
    T* values() const {
        return reinterpret_cast<T*>(values_.data());
    }
    Kind kind() const { return kind_; }
    const std::uint8_t* valid() const { return valid_.data(); }
    bool is_valid(std::uint64_t row) const { return (valid_.data()[row / 8] >> (row % 8) & 1) != 0; }
    std::uint64_t nulls() const { return nulls_; }
    std::uint64_t length() const { return length_; }
    void set_length(std::uint64_t length) { length_ = length; }
    TextBlocks& texts() { return texts_; }
    const TextBlocks& texts() const { return texts_; }

    // Sets the bits of `count` rows from `first` on, by bytes that are 0 or 1. Other threads may set other
    // rows'.
    void set_valid(std::uint64_t first, const std::uint8_t* valid, std::uint64_t count);

  private:
    Kind kind_;
    Buffer values_, valid_;
    std::atomic<std::uint64_t> nulls_{0};
    std::uint64_t length_ = 0;
    TextBlocks texts_;
};

}  // namespace busfare::sqlite
