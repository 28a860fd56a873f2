// The Python module busfare.timeline._core: columns in, columns out.
#include <nanobind/stl/string.h>

#include <string>
#include <vector>

#include "../owned_array.hpp"
#include "critical_path.hpp"
#include "explain.hpp"
#include "links.hpp"
#include "simulate.hpp"
#include "unnamed_events.hpp"

namespace nb = nanobind;
using namespace busfare::replay;
using busfare::owned_array, busfare::unlocked;

namespace {

template <typename T>
using Array = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Spans over arrays, and the arrays kept alive: other threads may take them out of a dict meanwhile.
class Columns {
  public:
    explicit Columns(nb::dict columns) : columns_(std::move(columns)) {}

    bool has(const char* name) const { return columns_.contains(name); }

    template <typename T>
    std::span<const T> get(const char* name) const {
        if (!columns_.contains(name))
            throw nb::value_error((std::string("replay: no column ") + name).c_str());
        return get<T>(columns_[name], name);
    }

    template <typename T>
    std::span<const T> get(nb::handle values, const char* name) const {
        Array<T> array;
        if (!nb::try_cast(values, array, false))
            throw nb::value_error(
                (std::string("replay: column ") + name + " is not a contiguous array of its type").c_str());
        kept_.push_back(nb::borrow(values));
        return {array.data(), array.shape(0)};
    }

  private:
    nb::dict columns_;
    mutable std::vector<nb::object> kept_;
};

void poll() {
    nb::gil_scoped_acquire locked;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

// All of them where there is one, so that none is left out unseen.
bool has_joints(const Columns& c) {
    return c.has("joint_begin") || c.has("joint_members") || c.has("call_awaits") ||
           c.has("operation_awaits");
}

Timeline timeline(const Columns& c) {
    Timeline t{
        .calls = {.thread = c.get<Index>("call_thread"),
                  .gap = c.get<Time>("call_gap"),
                  .busy = c.get<Time>("call_own"),
                  .after = c.get<Index>("call_after"),
                  .wait = c.get<std::uint8_t>("call_wait"),
                  .wait_key = c.get<Index>("call_wait_key"),
                  .wait_lag = c.get<Time>("call_wait_lag"),
                  .act = c.get<std::uint8_t>("call_act"),
                  .act_stream = c.get<Index>("call_act_stream"),
                  .act_event = c.get<Index>("call_act_event")},
        .operations = {.call = c.get<Index>("operation_call"),
                       .launched = c.get<std::uint8_t>("operation_launched"),
                       .stream = c.get<Index>("operation_stream"),
                       .engine = c.get<Index>("operation_engine"),
                       .takes = c.get<Index>("operation_takes"),
                       .duration = c.get<Time>("operation_duration"),
                       .launch_lag = c.get<Time>("operation_launch_lag"),
                       .order_lag = c.get<Time>("operation_order_lag"),
                       .extra = c.get<Time>("operation_extra"),
                       .engine_lag = c.get<Time>(c.has("operation_engine_lag") ? "operation_engine_lag"
                                                                               : "operation_order_lag"),
                       .queue_key = c.get<Time>("operation_turn"),
                       .after = c.get<Index>("operation_after"),
                       .released = c.get<Time>("operation_released"),
                       .unordered = c.get<std::uint8_t>("operation_unordered"),
                       .bytes_per_s = c.get<double>("operation_bytes_per_s"),
                       .weight = c.get<double>("operation_weight"),
                       .link_begin = c.get<std::int64_t>("operation_link_begin"),
                       .links = c.get<Index>("operation_links"),
                       .link_cost = c.get<double>("operation_link_cost")},
        .streams = {.device = c.get<Index>("stream_device"),
                    .context = c.get<Index>("stream_context"),
                    .kind = c.get<std::uint8_t>("stream_kind")},
        .engines = {.slots = c.get<Index>("engine_slots")},
        .links = {.bytes_per_s = c.get<double>("link_bytes_per_s"),
                  .duplex_share = c.get<double>("link_both"),
                  .opposite = c.get<Index>("link_opposite")},
    };
    if (has_joints(c)) {
        t.joints = {.begin = c.get<std::int64_t>("joint_begin"), .members = c.get<Index>("joint_members")};
        t.calls.awaits = c.get<Index>("call_awaits");
        t.operations.awaits = c.get<Index>("operation_awaits");
    }
    return t;
}

template <typename T>
nb::object array_of_classes(const std::array<T, 256>& values) {
    return owned_array(std::vector<T>(values.begin(), values.end()));
}

nb::dict explain_columns(nb::dict columns, nb::dict recorded) {
    const Columns c(columns), r(recorded);
    const Timeline t = timeline(c);
    const Recorded times{.call_start = r.get<Time>("call_start"),
                         .call_end = r.get<Time>("call_end"),
                         .operation_start = r.get<Time>("operation_start"),
                         .operation_end = r.get<Time>("operation_end"),
                         .call_class = r.get<std::uint8_t>("call_class"),
                         .operation_class = r.get<std::uint8_t>("operation_class"),
                         .operation_unit = r.get<std::uint8_t>("operation_unit")};
    Explained x = unlocked([&] { return explain(t, times); });
    nb::dict out;
    out["call_own"] = owned_array(std::move(x.busy));
    out["call_wait_lag"] = owned_array(std::move(x.wait_lag));
    out["call_wait"] = owned_array(std::move(x.wait));
    out["call_wait_key"] = owned_array(std::move(x.wait_key));
    out["operation_launch_lag"] = owned_array(std::move(x.launch_lag));
    out["operation_order_lag"] = owned_array(std::move(x.order_lag));
    out["operation_extra"] = owned_array(std::move(x.extra));
    out["operation_unordered"] = owned_array(std::move(x.unordered));
    out["typical_launch"] = array_of_classes(x.typical_launch);
    out["typical_order"] = array_of_classes(x.typical_order);
    out["typical_turn"] = array_of_classes(x.typical_unit_change);
    out["typical_call"] = array_of_classes(x.typical_call);
    out["waits_dropped"] = x.waits_dropped;
    out["waits_narrowed"] = x.waits_narrowed;
    out["orders_dropped"] = x.orders_dropped;
    return out;
}

nb::dict play(nb::dict columns, bool with_path) {
    const Columns c(columns);
    const Timeline t = timeline(c);
    Played p = unlocked([&] { return simulate(t, dependencies(t), poll, with_path); });
    Path path = with_path ? unlocked([&] { return critical_path(t, p); }) : Path{};
    nb::dict out;
    out["call_start"] = owned_array(std::move(p.call_start));
    out["call_end"] = owned_array(std::move(p.call_end));
    out["operation_start"] = owned_array(std::move(p.operation_start));
    out["operation_end"] = owned_array(std::move(p.operation_end));
    out["makespan"] = p.makespan;
    if (with_path) {
        out["call_bound_by"] = owned_array(std::move(p.return_bound_by));
        out["operation_bound_by"] = owned_array(std::move(p.operation_bound_by));
        out["path_step"] = owned_array(std::move(path.step));
        out["path_row"] = owned_array(std::move(path.row));
        out["path_start"] = owned_array(std::move(path.start));
        out["path_end"] = owned_array(std::move(path.end));
    }
    return out;
}

// All of them as pairs of nodes: a call's row, or the number of calls + an operation's row.
nb::dict dependency_columns(nb::dict columns) {
    const Columns c(columns);
    const Timeline t = timeline(c);
    std::vector<Index> from, to;
    {
        nb::gil_scoped_release unlocked;
        const Dependencies d = dependencies(t);
        const auto calls = static_cast<Index>(d.call_behind.size());
        const auto add = [&](Index before, Index behind) {
            if (behind == kNone) return;
            from.push_back(before);
            to.push_back(behind);
        };
        for (Index call = 0; call < calls; ++call) add(call, d.call_behind[call]);
        for (Index o = 0; o < static_cast<Index>(d.operation_behind.size()); ++o) {
            if (t.operations.launched[o]) add(t.operations.call[o], calls + o);
            if (d.operation_behind[o] != kNone) add(calls + o, calls + d.operation_behind[o]);
        }
        for (const Edge& edge : d.edges) add(edge.from, edge.to);
    }
    nb::dict out;
    out["from"] = owned_array(std::move(from));
    out["to"] = owned_array(std::move(to));
    return out;
}

nb::object alone_column(nb::dict columns, nb::handle start_column, nb::handle end_column) {
    const Columns c(columns);
    const Timeline t = timeline(c);
    const auto start = c.get<Time>(start_column, "start"), end = c.get<Time>(end_column, "end");
    return owned_array(unlocked([&] { return alone(t, start, end, poll); }));
}

nb::dict unnamed_event_columns(nb::dict columns) {
    const Columns c(columns);
    const EventCalls calls{.row = c.get<Index>("row"),
                           .kind = c.get<std::uint8_t>("kind"),
                           .thread = c.get<Index>("thread"),
                           .process = c.get<Index>("process"),
                           .time = c.get<Time>("time"),
                           .first_stream = c.get<Index>("first_stream"),
                           .last_stream = c.get<Index>("last_stream"),
                           .first_start = c.get<Time>("first_start"),
                           .last_end = c.get<Time>("last_end")};
    const std::vector<EventPair> pairs = unlocked([&] { return unnamed_events(calls); });
    nb::dict out;
    for (const auto& [name, member] : {std::pair{"record", &EventPair::record},
                                       {"recorded", &EventPair::recorded},
                                       {"wait", &EventPair::wait},
                                       {"waiting", &EventPair::waiting}}) {
        std::vector<Index> values;
        for (const EventPair& pair : pairs) values.push_back(pair.*member);
        out[name] = owned_array(std::move(values));
    }
    return out;
}

}  // namespace

NB_MODULE(_core, module) {
    nb::set_leak_warnings(false);  // what a program holds at its end is no mistake
    module.doc() =
        "A run as columns: taken apart, played again, and its critical path. Times in nanoseconds.";
    module.def("explain", &explain_columns, nb::arg("columns"), nb::arg("recorded"));
    module.def("dependencies", &dependency_columns, nb::arg("columns"));
    module.def("play", &play, nb::arg("columns"), nb::arg("path") = false);
    module.def("unnamed_events", &unnamed_event_columns, nb::arg("columns"));
    module.def("alone", &alone_column, nb::arg("columns"), nb::arg("start"), nb::arg("end"));
}
