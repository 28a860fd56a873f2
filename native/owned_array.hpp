// Arrays for Python that own their memory.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <memory>
#include <utility>
#include <vector>

namespace busfare {

// The vector lives as long as the array.
template <typename T>
nanobind::object owned_array(std::vector<T> values) {
    auto kept = std::make_unique<std::vector<T>>(std::move(values));
    T* const data = kept->data();
    const std::size_t size = kept->size();
    nanobind::capsule owner(kept.release(), [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    return nanobind::cast(nanobind::ndarray<nanobind::numpy, T, nanobind::ndim<1>>(data, {size}, owner));
}

// Does the work while other threads of Python run.
template <typename Work>
auto unlocked(Work&& work) {
    const nanobind::gil_scoped_release released;
    return work();
}

}  // namespace busfare
