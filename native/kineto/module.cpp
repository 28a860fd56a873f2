// The Python module busfare.trace._kineto_events.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include "../owned_array.hpp"
#include "event_scanner.hpp"

namespace nb = nanobind;
using busfare::EventScanner, busfare::owned_array;

namespace {

nb::dict columns(const EventScanner& scanner) {
    const auto& c = scanner.columns();
    nb::dict out;
    out["category"] = owned_array(c.category);
    out["start_ns"] = owned_array(c.start_ns);
    out["duration_ns"] = owned_array(c.duration_ns);
    out["process"] = owned_array(c.process);
    out["thread"] = owned_array(c.thread);
    out["bytes"] = owned_array(c.bytes);
    out["device"] = owned_array(c.device);
    out["context"] = owned_array(c.context);
    out["stream"] = owned_array(c.stream);
    out["correlation"] = owned_array(c.correlation);
    out["graph_node"] = owned_array(c.graph_node);
    out["waited_stream"] = owned_array(c.waited_stream);
    out["waited_event"] = owned_array(c.waited_event);
    out["waited_correlation"] = owned_array(c.waited_correlation);
    out["name"] = owned_array(c.name);
    out["sync_kind"] = owned_array(c.sync_kind);
    out["copy_kind"] = owned_array(c.copy_kind);
    out["place"] = owned_array(c.place);
    if (c.external.size() != c.start_ns.size()) return out;  // nobody asked for launches
    constexpr const char* kSides[] = {"x", "y", "z"};
    for (std::size_t side = 0; side < c.grid.size(); ++side) {
        out[(std::string("grid_") + kSides[side]).c_str()] = owned_array(c.grid[side]);
        out[(std::string("block_") + kSides[side]).c_str()] = owned_array(c.block[side]);
    }
    out["registers"] = owned_array(c.registers);
    out["shared_bytes"] = owned_array(c.shared_bytes);
    out["external"] = owned_array(c.external);
    return out;
}

nb::dict operators(const EventScanner& scanner) {
    const auto& c = scanner.operators();
    nb::dict out;
    out["external"] = owned_array(c.external);
    out["process"] = owned_array(c.process);
    out["thread"] = owned_array(c.thread);
    out["start_ns"] = owned_array(c.start_ns);
    out["duration_ns"] = owned_array(c.duration_ns);
    out["signature"] = owned_array(c.signature);
    return out;
}

nb::dict functions(const EventScanner& scanner) {
    const auto& c = scanner.functions();
    nb::dict out;
    out["process"] = owned_array(c.process);
    out["thread"] = owned_array(c.thread);
    out["start_ns"] = owned_array(c.start_ns);
    out["duration_ns"] = owned_array(c.duration_ns);
    out["name"] = owned_array(c.name);
    return out;
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
