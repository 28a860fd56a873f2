// The Python module busfare.trace._columns: what numpy and Polars take more than 1.5 times as long for. Their
// processor time over this one's, on 3 million rows: a union 2.9, lengths of 20 unions 12.8, what two unions
// share 7.4 (numpy); pairs looked up in order 25, in no order 12, of sparse numbers 3.8 (a join of Polars);
// rows before others of their group 7.9, rows numbered by three columns 1.3, with less memory (numpy).
#include <algorithm>
#include <limits>
#include <stdexcept>

#include "../owned_array.hpp"
#include "intervals.hpp"
#include "numbering.hpp"
#include "pairs.hpp"

namespace nb = nanobind;
using namespace busfare;

namespace {

template <typename T>
using Array = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Numbers = Array<std::int64_t>;
using Rows = nb::ndarray<std::int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Numbering = nb::ndarray<std::uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using AnyColumn = nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void check(bool right) {
    if (!right) throw std::invalid_argument("arrays of unlike lengths");
}

LaneIntervals intervals_of(const Numbers& starts, const Numbers& ends, const Array<std::uint32_t>& lane_of) {
    check(starts.size() == lane_of.size() && ends.size() == lane_of.size());
    return {starts.data(), ends.data(), lane_of.data(), lane_of.size()};
}

nb::object unite_lanes(const Numbers& starts, const Numbers& ends, const Array<std::uint32_t>& lane_of,
                       const Array<std::uint8_t>& chosen) {
    const LaneIntervals intervals = intervals_of(starts, ends, lane_of);
    Intervals united;
    if (!unlocked([&] { return unite(intervals, chosen.data(), united); })) return nb::none();
    return nb::make_tuple(owned_array(std::move(united.starts)), owned_array(std::move(united.ends)));
}

nb::object lengths_of(const Numbers& starts, const Numbers& ends, const Array<std::uint32_t>& lane_of,
                      const Array<std::uint64_t>& sets_of, std::size_t sets) {
    const LaneIntervals intervals = intervals_of(starts, ends, lane_of);
    if (sets > kMostSets) throw std::invalid_argument("too many sets");
    std::vector<std::int64_t> sums;
    const bool ordered = unlocked([&] { return lengths(intervals, sets_of.data(), sets, sums); });
    return ordered ? owned_array(std::move(sums)) : nb::none();
}

std::int64_t shared_ns(const Numbers& a_starts, const Numbers& a_ends, const Numbers& b_starts,
                       const Numbers& b_ends) {
    check(a_starts.size() == a_ends.size() && b_starts.size() == b_ends.size());
    const nb::gil_scoped_release unlocked;
    return shared(a_starts.data(), a_ends.data(), a_starts.size(), b_starts.data(), b_ends.data(),
                  b_starts.size());
}

void rows_of_pairs(const Array<std::int32_t>& have_first, const Numbers& have_second,
                   const Array<std::int32_t>& first, const Numbers& second, const Rows& rows) {
    check(have_first.size() == have_second.size() && first.size() == second.size() &&
          first.size() == rows.size());
    if (std::max(have_first.size(), first.size()) >= std::numeric_limits<std::int32_t>::max())
        throw std::invalid_argument("too many rows");
    const nb::gil_scoped_release unlocked;
    first_rows({have_first.data(), have_second.data(), have_first.size()},
               {first.data(), second.data(), first.size()}, rows.data());
}

nb::object numbers_of_rows(const nb::list& columns, const Numbering& number, std::uint64_t most) {
    if (number.size() == 0 || number.size() >= std::numeric_limits<std::uint32_t>::max())
        throw std::invalid_argument("no rows, or too many");
    std::vector<AnyColumn> kept;
    std::vector<WholeNumbers> plain;
    for (const nb::handle column : columns) {
        const AnyColumn& values = kept.emplace_back(nb::cast<AnyColumn>(column));
        const auto code = static_cast<nb::dlpack::dtype_code>(values.dtype().code);
        check(values.size() == number.size());
        if (code == nb::dlpack::dtype_code::Float) throw std::invalid_argument("no whole numbers");
        plain.push_back({values.data(), values.itemsize(), code == nb::dlpack::dtype_code::Int});
    }
    std::vector<std::int64_t> first;
    const bool numbered =
        unlocked([&] { return number_rows(plain, number.size(), most, number.data(), first); });
    return numbered ? owned_array(std::move(first)) : nb::none();
}

void rows_before(const Array<std::uint32_t>& number, std::size_t count, const Rows& before) {
    check(number.size() == before.size());
    const std::span<const std::uint32_t> numbers(number.data(), number.size());
    if (std::ranges::any_of(numbers, [&](std::uint32_t n) { return n >= count; }))
        throw std::invalid_argument("a number out of range");
    const nb::gil_scoped_release unlocked;
    previous_rows(numbers, count, before.data());
}

}  // namespace

NB_MODULE(_columns, module) {
    nb::set_leak_warnings(false);  // what a program holds at its end is no mistake
    module.doc() = "Unions of intervals, and pairs of numbers looked up in another table.";
    module.def("unite", &unite_lanes, nb::arg("starts"), nb::arg("ends"), nb::arg("lane_of"),
               nb::arg("chosen"));
    module.def("lengths", &lengths_of, nb::arg("starts"), nb::arg("ends"), nb::arg("lane_of"),
               nb::arg("sets_of"), nb::arg("sets"));
    module.def("shared", &shared_ns, nb::arg("a_starts"), nb::arg("a_ends"), nb::arg("b_starts"),
               nb::arg("b_ends"));
    module.def("first_rows", &rows_of_pairs, nb::arg("have_first"), nb::arg("have_second"), nb::arg("first"),
               nb::arg("second"), nb::arg("rows"));
    module.def("number_rows", &numbers_of_rows, nb::arg("columns"), nb::arg("number"), nb::arg("most"));
    module.def("previous_rows", &rows_before, nb::arg("number"), nb::arg("count"), nb::arg("before"));
}
