// The Python module busfare.trace._rows.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

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

}  // namespace

NB_MODULE(_rows, module) {
    module.doc() = "Rows of one table looked up in another.";
    module.def("occurs", &occurs, nb::arg("have_first"), nb::arg("have_second"), nb::arg("first"),
               nb::arg("second"), nb::arg("found"));
}
