// The Python module busfare.trace._sqlite_columns.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
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

bool interrupted() {
    const nb::gil_scoped_acquire locked;
    return PyErr_CheckSignals() != 0;
}

using Ids = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

class Database {
  public:
    explicit Database(const std::string& path) : source_(path), pager_(source_) {}

    std::unique_ptr<CallScan> calls(std::uint32_t root, const Timed& timed, std::uint32_t name,
                                    const Codes& names, std::vector<std::uint8_t> marks_of,
                                    const PairMarks& asked, unsigned threads) const {
        const auto most = std::ranges::max_element(names.of);
        if (most != names.of.end() && std::max(*most, names.otherwise) >= marks_of.size()) {
            throw std::invalid_argument("a name without marks");
        }
        const nb::gil_scoped_release unlocked;
        return std::make_unique<CallScan>(pager_, root, CallsWanted{timed, name, names, std::move(marks_of)},
                                          asked, How{threads, interrupted});
    }

    // Starts, ends, lanes of the rows, their sizes or None; and the lanes, column by column: keys, whether
    // they are known, marks, first rows, counts, and sums.
    nb::tuple operations(std::uint32_t root, const Timed& timed, const std::vector<std::uint32_t>& keys,
                         std::optional<std::uint32_t> size, std::int64_t largest, const PairMarks& calls,
                         unsigned threads) const {
        Operations made;
        {
            const nb::gil_scoped_release unlocked;
            made = scan_operations(pager_, root, {timed, keys, size, largest}, calls, {threads, interrupted});
        }
        nb::list lanes;
        for (const OperationLane& lane : made.lanes) {
            nb::list values;
            for (std::size_t k = 0; k < lane.keys.size(); ++k) {
                values.append((lane.known >> k & 1) != 0 ? nb::cast(lane.keys[k]) : nb::none());
            }
            lanes.append(nb::make_tuple(values, lane.marks, lane.first_row, lane.count, lane.ns, lane.bytes,
                                        lane.rated_bytes, lane.rated_ns));
        }
        return nb::make_tuple(given<std::int64_t>(made.starts), given<std::int64_t>(made.ends),
                              given<std::uint16_t>(made.lane_of),
                              made.sizes ? nb::cast(given<std::int64_t>(made.sizes)) : nb::none(), lanes);
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
        const Columns read = read_table(pager_, root, sorted, {threads, interrupted});
        for (std::size_t i = 0; i < order.size(); ++i) columns[order[i]] = read[i];
        return columns;
    }

  private:
    FileSource source_;
    Pager pager_;
};

}  // namespace

NB_MODULE(_sqlite_columns, module) {
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
        .def(
            "mark",
            [](PairMarks& marks, const Ids& processes, const Ids& correlations) {
                if (processes.size() != correlations.size()) {
                    throw std::invalid_argument("arrays of unlike lengths");
                }
                for (std::size_t i = 0; i < processes.size(); ++i) {
                    marks.mark(processes.data()[i], correlations.data()[i], 1);
                }
            },
            nb::arg("processes"), nb::arg("correlations"));
    nb::class_<CallScan>(module, "CallScan")
        .def("__len__", &CallScan::rows)
        .def_prop_ro("first", &CallScan::first)
        .def_prop_ro("last", &CallScan::last)
        .def_prop_ro("marks", &CallScan::marks, nb::rv_policy::reference_internal)
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
    nb::class_<Database>(module, "Database")
        .def(nb::init<const std::string&>(), nb::arg("path"))
        .def("calls", &Database::calls, nb::arg("root"), nb::arg("timed"), nb::arg("name"), nb::arg("names"),
             nb::arg("marks_of"), nb::arg("asked"), nb::arg("threads"), nb::keep_alive<0, 1>())
        .def("operations", &Database::operations, nb::arg("root"), nb::arg("timed"), nb::arg("keys"),
             nb::arg("size").none(), nb::arg("largest"), nb::arg("calls"), nb::arg("threads"))
        .def("read", &Database::read, nb::arg("root"), nb::arg("wanted"), nb::arg("threads"));
}
