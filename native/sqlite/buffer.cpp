#include "buffer.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <new>

namespace busfare::sqlite {

namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

}  // namespace

template <typename T>
Buffer<T>::Buffer(std::size_t count) {
    if (count > (std::numeric_limits<std::size_t>::max() - kHugePage) / sizeof(T)) throw std::bad_alloc();
    const std::size_t bytes = std::max(count * sizeof(T), sizeof(T));
    if (bytes < kHugePage) {
        data_ = {static_cast<T*>(std::calloc(bytes, 1)), Free{0}};
        if (!data_) throw std::bad_alloc();
        return;
    }
    void* mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) throw std::bad_alloc();
    data_ = {static_cast<T*>(mapped), Free{bytes}};
#ifdef MADV_HUGEPAGE
    // Faulting memory in by 4 KiB takes as long as filling it. Whether it works out matters to nobody.
    (void)::madvise(mapped, bytes, MADV_HUGEPAGE);
#endif
}

template <typename T>
void Buffer<T>::Free::operator()(T* p) const {
    if (mapped == 0) {
        std::free(p);
    } else {
        ::munmap(p, mapped);
    }
}

template class Buffer<std::uint8_t>;
template class Buffer<std::uint64_t>;

}  // namespace busfare::sqlite
