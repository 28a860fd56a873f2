// The Python module busfare.trace._sqlite_columns.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <numeric>
#include <tuple>

#include "arrow.hpp"
#include "arrow_capsule.hpp"
#include "call_scan.hpp"
#include "file_source.hpp"
#include "names.hpp"
#include "operation_scan.hpp"
#include "pair_marks.hpp"
#include "table.hpp"
#include "unreadable.hpp"

namespace nb = nanobind;
using namespace busfare::sqlite;

namespace {

using Numbers = nb::ndarray<const std::uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// The values go on living under the array.
template <typename T>
nb::ndarray<nb::numpy, const T, nb::ndim<1>> given(std::vector<T>&& values) {
    auto kept = std::make_unique<std::vector<T>>(std::move(values));
    const T* data = kept->data();
    const std::size_t size = kept->size();
    nb::capsule owner(kept.release(), [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    return {data, {size}, owner};
}

template <typename T>
nb::ndarray<nb::numpy, const T, nb::ndim<1>> given(const std::shared_ptr<Column>& column) {
    nb::capsule owner(new std::shared_ptr<Column>(column),
                      [](void* p) noexcept { delete static_cast<std::shared_ptr<Column>*>(p); });
    return {column->values<T>(), {column->length()}, owner};
}

// Starts, ends, processes, correlations, codes of names.
nb::tuple given(Calls calls) {
    return nb::make_tuple(given(std::move(calls.starts)), given(std::move(calls.ends)),
                          given(std::move(calls.processes)), given(std::move(calls.correlations)),
                          given(std::move(calls.names)));
}

// Of all lanes: their keys, one column each; which of these are known, a bit each; marks, first rows, and
// sums.
nb::tuple given(const std::vector<OperationLane>& lanes) {
    const std::size_t keys = lanes.empty() ? 0 : lanes.front().keys.size();
    std::vector<std::vector<std::int64_t>> values(keys), sums(6);
    std::vector<std::uint32_t> known;
    std::vector<std::uint8_t> marks;
    for (const OperationLane& lane : lanes) {
        for (std::size_t k = 0; k < keys; ++k) values[k].push_back(lane.keys[k]);
        known.push_back(lane.known);
        marks.push_back(lane.marks);
        const std::uint64_t of_lane[] = {lane.first_row, lane.count,       lane.ns,
                                         lane.bytes,     lane.rated_bytes, lane.rated_ns};
        for (std::size_t s = 0; s < sums.size(); ++s)
            sums[s].push_back(static_cast<std::int64_t>(of_lane[s]));
    }
    nb::list columns, added;
    for (auto& column : values) columns.append(given(std::move(column)));
    for (auto& column : sums) added.append(given(std::move(column)));
    return nb::make_tuple(columns, given(std::move(known)), given(std::move(marks)), added);
}

void check_names(const Codes* names, const std::vector<std::uint8_t>& marks_of) {
    if (names == nullptr) throw std::invalid_argument("no names");
    const auto most = std::ranges::max_element(names->of);
    if (most != names->of.end() && std::max(*most, names->otherwise) >= marks_of.size()) {
        throw std::invalid_argument("a name without marks");
    }
}

bool interrupted() {
    const nb::gil_scoped_acquire locked;
    return PyErr_CheckSignals() != 0;
}

// Ends from outside what another thread reads.
struct Stop {
    std::atomic<bool> asked = false;
};

How how_of(unsigned threads, const Stop* stop) {
    return {threads, [stop] { return (stop != nullptr && stop->asked) || interrupted(); }};
}

// A table of calls, and tables of operations whose pairs it marks.
struct Scan {
    CallScan calls;
    std::vector<Operations> operations;
};

class Database {
  public:
    explicit Database(const std::string& path) : source_(path), pager_(source_) {}

    std::unique_ptr<Scan> scan(std::uint32_t root, CallsWanted calls,
                               const std::vector<std::pair<std::uint32_t, OperationsWanted>>& operations,
                               const PairMarks& asked, unsigned threads, const Stop* stop) const {
        check_names(calls.names.get(), calls.marks_of);
        const nb::gil_scoped_release unlocked;
        const How how = how_of(threads, stop);
        auto made = std::unique_ptr<Scan>(new Scan{{pager_, root, std::move(calls), asked, how}, {}});
        for (const auto& [its_root, wanted] : operations) {
            made->operations.push_back(scan_operations(pager_, its_root, wanted, made->calls.marks(), how));
        }
        return made;
    }

    // In the order in which they are given.
    Columns read(std::uint32_t root, const std::vector<Wanted>& wanted, unsigned threads) const {
        // By place, for records are decoded from front to back; rowids, which stand in none, behind.
        std::vector<std::size_t> order(wanted.size());
        std::iota(order.begin(), order.end(), std::size_t{0});
        std::ranges::sort(order, {},
                          [&](std::size_t i) { return std::pair(wanted[i].is_rowid, wanted[i].index); });
        std::vector<Wanted> sorted;
        for (const std::size_t i : order) sorted.push_back(wanted[i]);
        Columns columns(wanted.size());
        const nb::gil_scoped_release unlocked;
        const Columns read = read_table(pager_, root, sorted, how_of(threads, nullptr));
        for (std::size_t i = 0; i < order.size(); ++i) columns[order[i]] = read[i];
        return columns;
    }

  private:
    FileSource source_;
    Pager pager_;
};

}  // namespace

NB_MODULE(_sqlite_columns, module) {
    nb::set_leak_warnings(false);  // what a program holds at its end is no mistake
    module.doc() =
        "Columns of the tables of an SQLite file, read past SQLite and shared by Arrow's C interface.";
    nb::exception<Unreadable>(module, "UnreadableError", PyExc_ValueError);
    nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
        try {
            std::rethrow_exception(thrown);
        } catch (const Cancelled&) {  // PyErr_CheckSignals has set the exception
            if (PyErr_Occurred() == nullptr) PyErr_SetNone(PyExc_KeyboardInterrupt);
        }
    });
    nb::enum_<Kind>(module, "Kind")
        .value("INTEGER", Kind::integer)
        .value("REAL", Kind::real)
        .value("TEXT", Kind::text)
        .value("SMALL", Kind::small)
        .value("CODE8", Kind::code8)
        .value("CODE32", Kind::code32);
    nb::class_<Codes>(module, "Codes")
        .def(
            "__init__",
            [](Codes* self, std::int64_t least, const Numbers& of, std::uint32_t otherwise) {
                new (self) Codes{least, {of.data(), of.data() + of.size()}, otherwise};
            },
            nb::arg("least"), nb::arg("of"), nb::arg("otherwise"));
    nb::class_<Wanted>(module, "Wanted")
        .def(
            "__init__",
            [](Wanted* self, std::uint32_t index, Kind kind, bool is_rowid, bool real_affinity,
               bool has_default, std::int64_t less, std::int64_t least, std::int64_t most,
               std::uint8_t first_bit, std::uint8_t bits, std::shared_ptr<const Codes> codes) {
                if (first_bit > 63 || bits > 64) throw std::invalid_argument("bits beyond a number");
                if ((codes != nullptr) != (kind == Kind::code8 || kind == Kind::code32)) {
                    throw std::invalid_argument("codes go with kinds that are codes");
                }
                if (is_rowid && kind != Kind::integer)
                    throw std::invalid_argument("a rowid is a whole number");
                new (self) Wanted{index, kind, is_rowid,  real_affinity, has_default,     less,
                                  least, most, first_bit, bits,          std::move(codes)};
            },
            nb::arg("index"), nb::arg("kind"), nb::kw_only(), nb::arg("is_rowid") = false,
            nb::arg("real_affinity") = false, nb::arg("has_default") = false, nb::arg("less") = 0,
            nb::arg("least") = 0, nb::arg("most") = 0, nb::arg("first_bit") = 0, nb::arg("bits") = 64,
            nb::arg("codes") = nb::none());
    nb::class_<Column>(module, "Column")
        .def("__len__", &Column::length)
        .def_prop_ro("null_count", &Column::nulls)
        .def(
            "__arrow_c_array__",
            [](const std::shared_ptr<Column>& column, const nb::object&) {
                return nb::make_tuple(capsule(schema_of(column->kind()), "arrow_schema"),
                                      capsule(array_of(column), "arrow_array"));
            },
            nb::arg("requested_schema") = nb::none());
    nb::class_<Timed>(module, "Timed")
        .def(
            "__init__",
            [](Timed* self, std::uint32_t start, std::uint32_t end, std::uint32_t process,
               std::uint32_t correlation, std::int64_t less, std::int64_t least, std::int64_t most,
               std::uint8_t first_bit, std::uint8_t bits) {
                if (first_bit > 63 || bits > 64) throw std::invalid_argument("bits beyond a number");
                new (self) Timed{start, end, process, correlation, less, least, most, first_bit, bits};
            },
            nb::arg("start"), nb::arg("end"), nb::arg("process"), nb::arg("correlation"), nb::kw_only(),
            nb::arg("less"), nb::arg("least"), nb::arg("most"), nb::arg("first_bit"), nb::arg("bits"));
    nb::class_<PairMarks>(module, "PairMarks")
        .def(nb::init<std::uint64_t>(), nb::arg("most"))
        .def("mark", &PairMarks::mark_all, nb::arg("processes"), nb::arg("correlations"));
    nb::class_<CallsWanted>(module, "CallsWanted")
        .def(nb::init<Timed, std::uint32_t, std::shared_ptr<const Codes>, std::vector<std::uint8_t>>(),
             nb::arg("timed"), nb::arg("name"), nb::arg("names"), nb::arg("marks_of"));
    nb::class_<OperationsWanted>(module, "OperationsWanted")
        .def(
            "__init__",
            [](OperationsWanted* self, const Timed& timed, std::vector<std::uint32_t> keys,
               std::optional<std::uint32_t> size, std::int64_t largest, std::optional<std::uint32_t> name,
               std::shared_ptr<const Codes> names, std::vector<std::uint8_t> marks_of) {
                if (name) check_names(names.get(), marks_of);
                new (self) OperationsWanted{
                    timed, std::move(keys), size, largest, name, std::move(names), std::move(marks_of)};
            },
            nb::arg("timed"), nb::arg("keys"), nb::arg("size").none(), nb::arg("largest"),
            nb::arg("name") = nb::none(), nb::arg("names") = nb::none(),
            nb::arg("marks_of") = std::vector<std::uint8_t>{});
    nb::class_<Stop>(module, "Stop").def(nb::init<>()).def("ask", [](Stop& stop) { stop.asked = true; });
    nb::class_<CallScan>(module, "CallScan")
        .def("__len__", &CallScan::rows)
        .def_prop_ro("first", &CallScan::first)
        .def_prop_ro("last", &CallScan::last)
        .def_prop_ro("kept", [](const CallScan& scan) { return given(scan.kept()); })
        .def(
            "during",
            [](const CallScan& scan, std::int64_t from, std::int64_t to) {
                Calls found;
                {
                    const nb::gil_scoped_release unlocked;
                    found = scan.during(from, to);
                }
                return given(std::move(found));
            },
            nb::arg("start"), nb::arg("end"));
    nb::class_<Operations>(module, "OperationScan")
        .def("__len__", [](const Operations& scan) { return scan.starts->length(); })
        .def_prop_ro("starts",
                     [](const Operations& scan) { return nb::cast(given<std::int64_t>(scan.starts)); })
        .def_prop_ro("ends", [](const Operations& scan) { return nb::cast(given<std::int64_t>(scan.ends)); })
        .def_prop_ro("lane_of",
                     [](const Operations& scan) { return nb::cast(given<std::uint32_t>(scan.lane_of)); })
        .def_prop_ro("sizes",
                     [](const Operations& scan) {
                         return scan.sizes ? nb::cast(given<std::int64_t>(scan.sizes)) : nb::none();
                     })
        .def_ro("last", &Operations::last)
        .def_prop_ro("names",
                     [](const Operations& scan) {
                         auto [counts, ns] = std::pair(scan.name_count, scan.name_ns);
                         return nb::make_tuple(given(std::move(counts)), given(std::move(ns)));
                     })
        .def_prop_ro("lanes", [](const Operations& scan) { return given(scan.lanes); });
    nb::class_<Scan>(module, "Scan")
        .def_prop_ro(
            "calls", [](const Scan& scan) -> const CallScan& { return scan.calls; },
            nb::rv_policy::reference_internal)
        .def_prop_ro("operations", [](const Scan& scan) { return scan.operations; });
    nb::class_<Database>(module, "Database")
        .def(nb::init<const std::string&>(), nb::arg("path"))
        .def("scan", &Database::scan, nb::arg("root"), nb::arg("calls"), nb::arg("operations"),
             nb::arg("asked"), nb::arg("threads"), nb::arg("stop"), nb::keep_alive<0, 1>())
        .def("read", &Database::read, nb::arg("root"), nb::arg("wanted"), nb::arg("threads"));
    module.def("codes_of", &codes_of, nb::arg("ids"), nb::arg("most"));
    module.def("texts_with", &texts_with, nb::arg("texts"), nb::arg("parts"));
}
