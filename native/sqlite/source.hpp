// Where the bytes of a database come from.
#pragma once

#include <cstddef>
#include <cstdint>

namespace busfare::sqlite {

class Source {
  public:
    virtual ~Source() = default;
    virtual std::uint64_t size() const = 0;
    // Reads up to `size` bytes from `offset` on; how many there were. Called by several threads at once.
    virtual std::size_t read(std::uint64_t offset, std::uint8_t* into, std::size_t size) const = 0;
};

}  // namespace busfare::sqlite
