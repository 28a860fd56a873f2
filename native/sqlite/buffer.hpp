// Memory that is asked of the system in large pages.
#pragma once

#include <cstddef>
#include <memory>

namespace busfare::sqlite {

// Zeros, `count` of them; what is never written takes no memory, in columns of some size.
template <typename T>
class Buffer {
  public:
    explicit Buffer(std::size_t count);
    T* data() const { return data_.get(); }

  private:
    struct Free {
        std::size_t mapped = 0;  // bytes; 0: allocated
        void operator()(T* p) const;
    };
    std::unique_ptr<T, Free> data_;
};

}  // namespace busfare::sqlite
