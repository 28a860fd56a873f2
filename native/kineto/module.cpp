// The Python module busfare.trace._kineto_events.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include "../owned_array.hpp"
#include "event_scanner.hpp"

namespace nb = nanobind;
using busfare::EventScanner, busfare::owned_array;

namespace {

nb::dict dict_of(std::initializer_list<std::pair<const char*, nb::object>> columns) {
    nb::dict out;
    for (const auto& [name, column] : columns) out[name] = column;
    return out;
}
#define COLUMN(name) {#name, owned_array(c.name)}

nb::dict columns(const EventScanner& scanner) {
    const auto& c = scanner.columns();
    nb::dict out =
        dict_of({COLUMN(category), COLUMN(start_ns), COLUMN(duration_ns), COLUMN(process), COLUMN(thread),
                 COLUMN(bytes), COLUMN(device), COLUMN(context), COLUMN(stream), COLUMN(correlation),
                 COLUMN(graph_node), COLUMN(waited_stream), COLUMN(waited_event), COLUMN(waited_correlation),
                 COLUMN(name), COLUMN(sync_kind), COLUMN(copy_kind), COLUMN(place)});
    if (c.external.size() != c.start_ns.size()) return out;  // nobody asked for launches
    constexpr const char* kSides[] = {"x", "y", "z"};
    for (std::size_t side = 0; side < c.grid.size(); ++side) {
        out[(std::string("grid_") + kSides[side]).c_str()] = owned_array(c.grid[side]);
        out[(std::string("block_") + kSides[side]).c_str()] = owned_array(c.block[side]);
    }
    out.update(dict_of({COLUMN(registers), COLUMN(shared_bytes), COLUMN(external)}));
    return out;
}

nb::dict operators(const EventScanner& scanner) {
    const auto& c = scanner.operators();
    return dict_of({COLUMN(external), COLUMN(process), COLUMN(thread), COLUMN(start_ns), COLUMN(duration_ns),
                    COLUMN(signature)});
}

nb::dict functions(const EventScanner& scanner) {
    const auto& c = scanner.functions();
    return dict_of({COLUMN(process), COLUMN(thread), COLUMN(start_ns), COLUMN(duration_ns), COLUMN(name)});
}

nb::list signatures(const EventScanner& scanner) {
    nb::list out;
    for (const auto& signature : scanner.signatures()) {
        nb::list parts;
        for (const auto& part : signature) parts.append(nb::bytes(part.data(), part.size()));
        out.append(nb::tuple(parts));
    }
    return out;
}

nb::list collectives(const EventScanner& scanner) {
    nb::list out;
    for (const auto& [row, text] : scanner.collectives())
        out.append(nb::make_tuple(row, nb::bytes(text.data(), text.size())));
    return out;
}

nb::list texts(const std::vector<std::string>& names) {
    nb::list out;
    for (const auto& name : names) out.append(nb::bytes(name.data(), name.size()));
    return out;
}

nb::dict header(const EventScanner& scanner) {
    nb::dict out;
    for (const auto& [key, value] : scanner.header()) {
        out[nb::bytes(key.data(), key.size())] = nb::bytes(value.data(), value.size());
    }
    return out;
}

}  // namespace

NB_MODULE(_kineto_events, module) {
    nb::set_leak_warnings(false);  // what a program holds at its end is no mistake
    module.doc() = "Events of a Kineto trace as columns, from text that arrives in pieces.";
    module.attr("MISSING") = busfare::kMissing;
    nb::class_<EventScanner>(module, "EventScanner")
        .def(nb::init<bool>(), nb::arg("launches") = false)
        .def(
            "feed",
            [](EventScanner& scanner, nb::bytes text) {
                const char* data = text.c_str();
                const std::size_t size = text.size();
                nb::gil_scoped_release unlocked;
                scanner.feed(data, size);
            },
            nb::arg("text"))
        .def("finish", &EventScanner::finish)
        .def_prop_ro("columns", &columns)
        .def_prop_ro("names", [](const EventScanner& s) { return texts(s.names()); })
        .def_prop_ro("functions", &functions)
        .def_prop_ro("function_names", [](const EventScanner& s) { return texts(s.function_names()); })
        .def_prop_ro("operators", &operators)
        .def_prop_ro("signatures", &signatures)
        .def_prop_ro("collectives", &collectives)
        .def_prop_ro("header", &header)
        .def_prop_ro("error", [](const EventScanner& s) { return s.error(); })
        .def_prop_ro("error_position", &EventScanner::error_position)
        .def_prop_ro("truncated", &EventScanner::truncated)
        .def_prop_ro("saw_events", &EventScanner::saw_events)
        .def_prop_ro("events", &EventScanner::events)
        .def_prop_ro("unusable", &EventScanner::unusable)
        .def_prop_ro("accelerator_events", &EventScanner::accelerator_events)
        .def_prop_ro("foreign_calls", &EventScanner::foreign_calls);
}
