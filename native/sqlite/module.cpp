// The Python module busfare.trace._sqlite_columns.
#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "arrow.hpp"
#include "file_source.hpp"
#include "table.hpp"
#include "unreadable.hpp"

namespace nb = nanobind;
using namespace busfare::sqlite;

namespace {

bool interrupted() {
    const nb::gil_scoped_acquire locked;
    return PyErr_CheckSignals() != 0;
}

// A capsule that releases what it holds, if nobody has taken that out.
template <typename T>
nb::object capsule(const T& content, const char* name) {
    auto held = std::make_unique<T>(content);
    PyObject* made = PyCapsule_New(held.get(), name, [](PyObject* object) {
        auto* back = static_cast<T*>(PyCapsule_GetPointer(object, PyCapsule_GetName(object)));
        if (back->release != nullptr) back->release(back);
        delete back;
    });
    if (made == nullptr) throw nb::python_error();
    held.release();
    return nb::steal(made);
}

class Database {
  public:
    explicit Database(const std::string& path) : source_(path), pager_(source_) {}

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
        .value("SMALL", Kind::small);
    nb::class_<Wanted>(module, "Wanted")
        .def(
            "__init__",
            [](Wanted* self, std::uint32_t index, Kind kind, bool is_rowid, bool real_affinity,
               bool has_default) {
                if (is_rowid && kind != Kind::integer)
                    throw std::invalid_argument("a rowid is a whole number");
                new (self) Wanted{index, kind, is_rowid, real_affinity, has_default};
            },
            nb::arg("index"), nb::arg("kind"), nb::kw_only(), nb::arg("is_rowid") = false,
            nb::arg("real_affinity") = false, nb::arg("has_default") = false);
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
    nb::class_<Database>(module, "Database")
        .def(nb::init<const std::string&>(), nb::arg("path"))
        .def("read", &Database::read, nb::arg("root"), nb::arg("wanted"), nb::arg("threads"));
}
