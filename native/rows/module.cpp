// The Python module busfare.trace._rows.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <stdexcept>

#include "pairs.hpp"

namespace nb = nanobind;

namespace {

using Array = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Found = nb::ndarray<std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void occurs(const Array& have_first, const Array& have_second, const Array& first, const Array& second,
            const Found& found) {
    if (have_first.size() != have_second.size() || first.size() != second.size() ||
        first.size() != found.size()) {
        throw std::invalid_argument("arrays of unlike lengths");
    }
    const nb::gil_scoped_release unlocked;
    busfare::occurs({have_first.data(), have_second.data(), have_first.size()},
                    {first.data(), second.data(), first.size()}, found.data());
}

using AnyArray = nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Filled = nb::ndarray<nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Order = nb::ndarray<const std::uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <typename T>
void take(const void* values, std::size_t size, const std::uint32_t* order, std::size_t count, void* taken) {
    const T* from = static_cast<const T*>(values);
    T* into = static_cast<T*>(taken);
    std::uint32_t most = 0;
    for (std::size_t i = 0; i < count; ++i) most = std::max(most, order[i]);
    if (count > 0 && most >= size) throw std::out_of_range("a row that is not there");
    for (std::size_t i = 0; i < count; ++i) into[i] = from[order[i]];
}

void take_rows(const AnyArray& values, const Order& order, const Filled& taken) {
    if (taken.size() != order.size() || taken.itemsize() != values.itemsize()) {
        throw std::invalid_argument("arrays of unlike lengths or types");
    }
    const nb::gil_scoped_release unlocked;
    switch (values.itemsize()) {
        case 1:
            return take<std::uint8_t>(values.data(), values.size(), order.data(), order.size(), taken.data());
        case 2:
            return take<std::uint16_t>(values.data(), values.size(), order.data(), order.size(),
                                       taken.data());
        case 4:
            return take<std::uint32_t>(values.data(), values.size(), order.data(), order.size(),
                                       taken.data());
        case 8:
            return take<std::uint64_t>(values.data(), values.size(), order.data(), order.size(),
                                       taken.data());
        default:
            throw std::invalid_argument("values of 1, 2, 4 or 8 bytes are taken");
    }
}

}  // namespace

NB_MODULE(_rows, module) {
    module.doc() = "Rows of one table looked up in another.";
    module.def("occurs", &occurs, nb::arg("have_first"), nb::arg("have_second"), nb::arg("first"),
               nb::arg("second"), nb::arg("found"));
    module.def("take", &take_rows, nb::arg("values"), nb::arg("order"), nb::arg("taken"));
}
