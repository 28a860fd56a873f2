// The Python module busfare.trace._columns.
#include "module.hpp"

NB_MODULE(_columns, module) {
    nanobind::set_leak_warnings(false);  // what a program holds at its end is no mistake
    module.doc() =
        "Rows grouped into lanes, unions of their intervals, and rows looked up, in single passes.";
    bind_lanes(module);
    bind_rows(module);
}
