// Lanes and unions, for Python.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <stdexcept>

#include "grouping.hpp"
#include "intervals.hpp"
#include "lengths.hpp"
#include "module.hpp"

namespace nb = nanobind;
using namespace busfare;

namespace {

template <typename T>
using Array = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using AnyArray = nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// The vector goes on living under the array.
template <typename T>
nb::ndarray<nb::numpy, T, nb::ndim<1>> given(std::vector<T>&& values) {
    auto kept = std::make_unique<std::vector<T>>(std::move(values));
    T* data = kept->data();
    const std::size_t size = kept->size();
    nb::capsule owner(kept.release(), [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    return nb::ndarray<nb::numpy, T, nb::ndim<1>>(data, {size}, owner);
}

void check(bool right) {
    if (!right) throw std::invalid_argument("arrays of unlike lengths");
}

auto group_rows(const nb::list& columns,
                const nb::ndarray<std::uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>& lane_of) {
    std::vector<AnyArray> arrays;
    std::vector<Key> keys;
    for (const nb::handle column : columns) {
        arrays.push_back(nb::cast<AnyArray>(column));
        keys.push_back({arrays.back().data(), arrays.back().itemsize()});
        check(arrays.back().size() == arrays.front().size());
    }
    check(arrays.empty() || arrays.front().size() == lane_of.size());
    std::vector<std::int64_t> first_rows;
    {
        const nb::gil_scoped_release unlocked;
        first_rows = group(keys, arrays.empty() ? 0 : lane_of.size(), lane_of.data());
    }
    return given(std::move(first_rows));
}

nb::dict sum_lanes(const Array<std::uint32_t>& lane_of, const Array<std::int64_t>& starts,
                   const Array<std::int64_t>& ends, const Array<std::int64_t>& bytes, std::size_t lanes) {
    check(starts.size() == lane_of.size() && ends.size() == lane_of.size() && bytes.size() == lane_of.size());
    Sums made(0);
    {
        const nb::gil_scoped_release unlocked;
        made = sums(lane_of.data(), starts.data(), ends.data(), bytes.data(), lane_of.size(), lanes);
    }
    nb::dict out;
    out["count"] = given(std::move(made.count));
    out["ns"] = given(std::move(made.ns));
    out["bytes"] = given(std::move(made.bytes));
    out["rated_bytes"] = given(std::move(made.rated_bytes));
    out["rated_ns"] = given(std::move(made.rated_ns));
    return out;
}

nb::object unite_lanes(const Array<std::int64_t>& starts, const Array<std::int64_t>& ends,
                       const Array<std::uint32_t>& lane_of, const Array<std::uint8_t>& chosen) {
    check(starts.size() == lane_of.size() && ends.size() == lane_of.size());
    Intervals made;
    bool ordered;
    {
        const nb::gil_scoped_release unlocked;
        ordered = unite(starts.data(), ends.data(), lane_of.data(), chosen.data(), lane_of.size(), made);
    }
    if (!ordered) return nb::none();
    return nb::make_tuple(given(std::move(made.starts)), given(std::move(made.ends)));
}

nb::object gaps_of_lanes(const Array<std::int64_t>& starts, const Array<std::int64_t>& ends,
                         const Array<std::uint32_t>& lane_of, const Array<std::uint32_t>& set_of,
                         std::size_t sets, std::size_t most) {
    check(starts.size() == lane_of.size() && ends.size() == lane_of.size());
    std::vector<Intervals> found;
    bool ordered;
    {
        const nb::gil_scoped_release unlocked;
        ordered = longest_gaps(starts.data(), ends.data(), lane_of.data(), set_of.data(), lane_of.size(),
                               sets, most, found);
    }
    if (!ordered) return nb::none();
    nb::list made;
    for (Intervals& gaps : found) {
        made.append(nb::make_tuple(given(std::move(gaps.starts)), given(std::move(gaps.ends))));
    }
    return made;
}

// Bit k of sets_of[lane]: whether the lane is in set k.
nb::object lengths_of(const Array<std::int64_t>& starts, const Array<std::int64_t>& ends,
                      const Array<std::uint32_t>& lane_of, const Array<std::uint64_t>& sets_of,
                      std::size_t sets) {
    check(starts.size() == lane_of.size() && ends.size() == lane_of.size());
    if (sets > kMostSets) throw std::invalid_argument("too many sets");
    std::vector<std::int64_t> found;
    bool ordered;
    {
        const nb::gil_scoped_release unlocked;
        ordered = lengths({starts.data(), ends.data(), lane_of.data(), lane_of.size()}, sets_of.data(), sets,
                          found);
    }
    if (!ordered) return nb::none();
    return nb::cast(given(std::move(found)));
}

nb::object length_with_rows(const Array<std::int64_t>& starts, const Array<std::int64_t>& ends,
                            const Array<std::uint32_t>& lane_of, const Array<std::uint8_t>& chosen,
                            const Array<std::uint32_t>& rows) {
    check(starts.size() == lane_of.size() && ends.size() == lane_of.size());
    std::optional<std::int64_t> length;
    {
        const nb::gil_scoped_release unlocked;
        length = length_with({starts.data(), ends.data(), lane_of.data(), lane_of.size()}, chosen.data(),
                             rows.data(), rows.size());
    }
    return length ? nb::cast(*length) : nb::none();
}

nb::tuple tally_rows(const Array<std::uint32_t>& number_of, const Array<std::uint32_t>& lane_of,
                     const Array<std::uint8_t>& chosen, const Array<std::int64_t>& starts,
                     const Array<std::int64_t>& ends, std::size_t numbers) {
    check(starts.size() == lane_of.size() && ends.size() == lane_of.size() &&
          number_of.size() == lane_of.size());
    Tally made(0);
    {
        const nb::gil_scoped_release unlocked;
        made = tally(number_of.data(), lane_of.data(), chosen.data(), starts.data(), ends.data(),
                     lane_of.size(), numbers);
    }
    return nb::make_tuple(given(std::move(made.first_row)), given(std::move(made.count)),
                          given(std::move(made.ns)));
}

void check_rows(const Array<std::uint32_t>& rows, std::size_t count) {
    std::uint32_t most = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) most = std::max(most, rows.data()[i]);
    if (rows.size() > 0 && most >= count) throw std::out_of_range("a row that is not there");
}

nb::tuple decades_of(const Array<std::uint32_t>& lane_of, const Array<std::uint8_t>& chosen,
                     const Array<std::int64_t>& sizes, const Array<std::int64_t>& starts,
                     const Array<std::int64_t>& ends) {
    check(sizes.size() == lane_of.size() && starts.size() == lane_of.size() && ends.size() == lane_of.size());
    Decades made;
    {
        const nb::gil_scoped_release unlocked;
        made = decades(lane_of.data(), chosen.data(), sizes.data(), starts.data(), ends.data(),
                       lane_of.size());
    }
    return nb::make_tuple(given(std::move(made.count)), given(std::move(made.seconds)));
}

using Rows = nb::ndarray<std::uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

std::size_t chosen_rows(const Array<std::uint32_t>& number_of, const Array<std::uint8_t>& chosen,
                        const Rows& into) {
    check(into.size() == number_of.size());
    const nb::gil_scoped_release unlocked;
    return rows_of(number_of.data(), number_of.size(), chosen.data(), chosen.size(), into.data());
}

std::size_t chosen_rows_sized(const Array<std::uint32_t>& lane_of, const Array<std::uint8_t>& chosen,
                              const Array<std::int64_t>& sizes, std::int64_t least, std::int64_t most,
                              const Rows& into) {
    check(sizes.size() == lane_of.size() && into.size() == lane_of.size());
    const nb::gil_scoped_release unlocked;
    return rows_sized(lane_of.data(), sizes.data(), lane_of.size(), chosen.data(), {least, most},
                      into.data());
}

auto longest_rows(const Array<std::uint32_t>& rows, const Array<std::int64_t>& starts,
                  const Array<std::int64_t>& ends, std::size_t most) {
    check(starts.size() == ends.size());
    check_rows(rows, starts.size());
    std::vector<std::uint32_t> found;
    {
        const nb::gil_scoped_release unlocked;
        found = longest(rows.data(), rows.size(), starts.data(), ends.data(), most);
    }
    return given(std::move(found));
}

nb::dict sum_rows(const Array<std::uint32_t>& rows, const Array<std::uint32_t>& lane_of,
                  const Array<std::int64_t>& starts, const Array<std::int64_t>& ends,
                  const Array<std::int64_t>& bytes, std::size_t lanes) {
    check(starts.size() == lane_of.size() && ends.size() == lane_of.size() && bytes.size() == lane_of.size());
    check_rows(rows, lane_of.size());
    RowSums made(0);
    {
        const nb::gil_scoped_release unlocked;
        made = sums_among(rows.data(), rows.size(), lane_of.data(), starts.data(), ends.data(), bytes.data(),
                          lanes);
    }
    nb::dict out;
    out["count"] = given(std::move(made.count));
    out["bytes"] = given(std::move(made.bytes));
    out["ns"] = given(std::move(made.ns));
    out["first"] = given(std::move(made.first));
    return out;
}

std::int64_t shared_ns(const Array<std::int64_t>& a_starts, const Array<std::int64_t>& a_ends,
                       const Array<std::int64_t>& b_starts, const Array<std::int64_t>& b_ends) {
    check(a_starts.size() == a_ends.size() && b_starts.size() == b_ends.size());
    const nb::gil_scoped_release unlocked;
    return shared(a_starts.data(), a_ends.data(), a_starts.size(), b_starts.data(), b_ends.data(),
                  b_starts.size());
}

}  // namespace

void bind_lanes(nb::module_& module) {
    module.def("group", &group_rows, nb::arg("columns"), nb::arg("lane_of"));
    module.def("sums", &sum_lanes, nb::arg("lane_of"), nb::arg("starts"), nb::arg("ends"), nb::arg("bytes"),
               nb::arg("lanes"));
    module.def("sums_among", &sum_rows, nb::arg("rows"), nb::arg("lane_of"), nb::arg("starts"),
               nb::arg("ends"), nb::arg("bytes"), nb::arg("lanes"));
    module.def("unite", &unite_lanes, nb::arg("starts"), nb::arg("ends"), nb::arg("lane_of"),
               nb::arg("chosen"));
    module.def("longest_gaps", &gaps_of_lanes, nb::arg("starts"), nb::arg("ends"), nb::arg("lane_of"),
               nb::arg("set_of"), nb::arg("sets"), nb::arg("most"));
    module.def("lengths", &lengths_of, nb::arg("starts"), nb::arg("ends"), nb::arg("lane_of"),
               nb::arg("sets_of"), nb::arg("sets"));
    module.def("length_with", &length_with_rows, nb::arg("starts"), nb::arg("ends"), nb::arg("lane_of"),
               nb::arg("chosen"), nb::arg("rows"));
    module.def("tally", &tally_rows, nb::arg("number_of"), nb::arg("lane_of"), nb::arg("chosen"),
               nb::arg("starts"), nb::arg("ends"), nb::arg("numbers"));
    module.def("decades", &decades_of, nb::arg("lane_of"), nb::arg("chosen"), nb::arg("sizes"),
               nb::arg("starts"), nb::arg("ends"));
    module.def("rows_of", &chosen_rows, nb::arg("number_of"), nb::arg("chosen"), nb::arg("into"));
    module.def("rows_sized", &chosen_rows_sized, nb::arg("lane_of"), nb::arg("chosen"), nb::arg("sizes"),
               nb::arg("least"), nb::arg("most"), nb::arg("into"));
    module.def("longest", &longest_rows, nb::arg("rows"), nb::arg("starts"), nb::arg("ends"),
               nb::arg("most"));
    module.def("shared", &shared_ns, nb::arg("a_starts"), nb::arg("a_ends"), nb::arg("b_starts"),
               nb::arg("b_ends"));
}
