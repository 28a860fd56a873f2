// Rows of one table looked up in another, for Python.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <stdexcept>
#include <vector>

#include "../sqlite/arrow_capsule.hpp"
#include "module.hpp"
#include "order.hpp"
#include "pairs.hpp"
#include "sorted_column.hpp"

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

using Places = nb::ndarray<std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void first(const Array& have_first, const Array& have_second, const Array& first, const Array& second,
           const Places& found) {
    if (have_first.size() != have_second.size() || first.size() != second.size() ||
        first.size() != found.size()) {
        throw std::invalid_argument("arrays of unlike lengths");
    }
    const nb::gil_scoped_release unlocked;
    busfare::first_rows({have_first.data(), have_second.data(), have_first.size()},
                        {first.data(), second.data(), first.size()}, found.data());
}

using AnyArray = nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Filled = nb::ndarray<nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Order = nb::ndarray<const std::uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Values in parts, one behind the other.
struct Parts {
    std::vector<const void*> values;
    std::vector<std::uint32_t> ends;  // the first row behind each
};

template <typename T>
void take(const Parts& parts, const std::uint32_t* order, std::size_t count, void* taken, T less) {
    T* into = static_cast<T*>(taken);
    if (parts.values.size() == 1) {
        const T* from = static_cast<const T*>(parts.values[0]);
        for (std::size_t i = 0; i < count; ++i) into[i] = static_cast<T>(from[order[i]] - less);
        return;
    }
    if (parts.values.size() == 2) {  // by no branch: which part it is cannot be foretold
        const T* from[2] = {static_cast<const T*>(parts.values[0]), static_cast<const T*>(parts.values[1])};
        const std::uint32_t begins[2] = {0, parts.ends[0]};
        for (std::size_t i = 0; i < count; ++i) {
            const std::size_t part = order[i] >= parts.ends[0];
            into[i] = static_cast<T>(from[part][order[i] - begins[part]] - less);
        }
        return;
    }
    for (std::size_t i = 0; i < count; ++i) {
        std::size_t part = 0;
        while (order[i] >= parts.ends[part]) ++part;
        const std::uint32_t begin = part == 0 ? 0 : parts.ends[part - 1];
        into[i] = static_cast<T>(static_cast<const T*>(parts.values[part])[order[i] - begin] - less);
    }
}

void take_rows(const nb::list& values, const Order& order, const Filled& taken, std::int64_t less) {
    std::vector<AnyArray> kept;
    Parts parts;
    std::uint64_t rows = 0;
    for (const nb::handle part : values) {
        kept.push_back(nb::cast<AnyArray>(part));
        rows += kept.back().size();
        if (rows > std::numeric_limits<std::uint32_t>::max()) throw std::invalid_argument("too many rows");
        parts.values.push_back(kept.back().data());
        parts.ends.push_back(static_cast<std::uint32_t>(rows));
        if (kept.back().itemsize() != taken.itemsize()) throw std::invalid_argument("arrays of unlike types");
    }
    if (taken.size() != order.size()) throw std::invalid_argument("arrays of unlike lengths");
    const nb::gil_scoped_release unlocked;
    std::uint32_t most = 0;
    for (std::size_t i = 0; i < order.size(); ++i) most = std::max(most, order.data()[i]);
    if (order.size() > 0 && most >= rows) throw std::out_of_range("a row that is not there");
    switch (taken.itemsize()) {
        case 1:
            return take(parts, order.data(), order.size(), taken.data(), static_cast<std::uint8_t>(less));
        case 2:
            return take(parts, order.data(), order.size(), taken.data(), static_cast<std::uint16_t>(less));
        case 4:
            return take(parts, order.data(), order.size(), taken.data(), static_cast<std::uint32_t>(less));
        case 8:
            return take(parts, order.data(), order.size(), taken.data(), static_cast<std::uint64_t>(less));
        default:
            throw std::invalid_argument("values of 1, 2, 4 or 8 bytes are taken");
    }
}

void occurring(const Order& numbers, const Found& found) {
    const nb::gil_scoped_release unlocked;
    const std::uint32_t* at = numbers.data();
    std::uint32_t most = 0;
    for (std::size_t i = 0; i < numbers.size(); ++i) most = std::max(most, at[i]);
    if (numbers.size() > 0 && most >= found.size()) throw std::out_of_range("a number that is not there");
    for (std::size_t i = 0; i < numbers.size(); ++i) found.data()[at[i]] = 1;
}

void order_of(const nb::list& numbers,
              const nb::ndarray<std::uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>& order) {
    std::vector<Array> kept;
    std::vector<busfare::Part> parts;
    std::size_t rows = 0;
    for (const nb::handle part : numbers) {
        kept.push_back(nb::cast<Array>(part));
        parts.push_back({kept.back().data(), kept.back().size()});
        rows += kept.back().size();
    }
    if (rows != order.size()) throw std::invalid_argument("arrays of unlike lengths");
    if (rows > std::numeric_limits<std::uint32_t>::max()) throw std::invalid_argument("too many rows");
    const nb::gil_scoped_release unlocked;
    busfare::order_of(parts, order.data());
}

std::shared_ptr<busfare::SortedColumn> sorted_column(const nb::capsule& stream, const Order& order) {
    auto* content = static_cast<ArrowArrayStream*>(stream.data("arrow_array_stream"));
    if (content == nullptr || content->release == nullptr) throw std::invalid_argument("no column");
    const nb::gil_scoped_release unlocked;
    return std::make_shared<busfare::SortedColumn>(*content, order.data(), order.size());
}

nb::tuple shared_by_arrow(const std::shared_ptr<busfare::SortedColumn>& column, const nb::object&) {
    ArrowSchema schema{};
    schema.format = column->format();
    schema.name = "";
    schema.flags = 2;  // nullable
    schema.release = [](ArrowSchema* s) { s->release = nullptr; };
    return nb::make_tuple(busfare::sqlite::capsule(schema, "arrow_schema"),
                          busfare::sqlite::capsule(busfare::SortedColumn::array_of(column), "arrow_array"));
}

}  // namespace

void bind_rows(nb::module_& module) {
    module.def("occurs", &occurs, nb::arg("have_first"), nb::arg("have_second"), nb::arg("first"),
               nb::arg("second"), nb::arg("found"));
    module.def("first", &first, nb::arg("have_first"), nb::arg("have_second"), nb::arg("first"),
               nb::arg("second"), nb::arg("found"));
    module.def("occurring", &occurring, nb::arg("numbers"), nb::arg("found"));
    module.def("order_of", &order_of, nb::arg("numbers"), nb::arg("order"));
    nb::class_<busfare::SortedColumn>(module, "SortedColumn")
        .def("__arrow_c_array__", &shared_by_arrow, nb::arg("requested_schema") = nb::none());
    module.def("sorted_column", &sorted_column, nb::arg("stream"), nb::arg("order"));
    module.def("take", &take_rows, nb::arg("values"), nb::arg("order"), nb::arg("taken"),
               nb::arg("less") = 0);
}
