// Plays random timelines, good and bad, and takes them apart again; ends with status 1 if a rule is broken.
// Arguments: the first seed and how many. Built with the address and undefined-behaviour sanitizers.
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <random>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "critical_path.hpp"
#include "dependencies.hpp"
#include "explain.hpp"
#include "links.hpp"
#include "simulate.hpp"

namespace {

using namespace busfare::replay;

// Vectors of their exact size, so that reading past an end is seen.
struct Columns {
    std::vector<Index> thread, call_after, wait_key, act_stream, act_event;
    std::vector<Time> gap, busy, wait_lag;
    std::vector<std::uint8_t> wait, act;
    std::vector<Index> call, stream, engine, takes, after, links;
    std::vector<Time> duration, launch_lag, order_lag, extra, engine_lag, queue_key, released;
    std::vector<std::uint8_t> launched, unordered;
    std::vector<double> bytes_per_s, weight, link_cost;
    std::vector<std::int64_t> link_begin;
    std::vector<Index> device, context, slots, opposite;
    std::vector<std::uint8_t> kind;
    std::vector<double> link_rate, duplex_share;
    std::vector<Index> call_awaits, operation_awaits, members;
    std::vector<std::int64_t> joint_begin;

    Timeline timeline() const {
        return {.calls = {thread, gap, busy, call_after, wait, wait_key, wait_lag, act, act_stream, act_event,
                          call_awaits},
                .operations = {call,      launched,   stream,    engine,    takes,
                               duration,  launch_lag, order_lag, extra,     engine_lag,
                               queue_key, after,      released,  unordered, bytes_per_s,
                               weight,    link_begin, links,     link_cost, operation_awaits},
                .streams = {device, context, kind},
                .engines = {slots},
                .links = {link_rate, duplex_share, opposite},
                .joints = {joint_begin, members}};
    }
};

class Chance {
  public:
    explicit Chance(std::uint64_t seed) : generator_(seed) {}
    // Of any type, both ends included.
    template <typename T = Index>
    T pick(std::int64_t least, std::int64_t most) {
        return static_cast<T>(std::uniform_int_distribution<std::int64_t>(least, most)(generator_));
    }
    bool once_in(std::int64_t n) { return pick(1, n) == 1; }

  private:
    std::mt19937_64 generator_;
};

Columns random_columns(Chance& chance) {
    Columns c;
    const Index streams = chance.pick(1, 6), engines = chance.pick(0, 3), wires = chance.pick(0, 4);
    const Index calls = chance.pick(0, 120);
    const Time scale = chance.once_in(2) ? 1 : 2000;
    for (Index s = 0; s < streams; ++s) {
        c.device.push_back(chance.pick(-1, std::min(s, 1)));
        c.context.push_back(chance.pick(-1, std::min(s, 1)));
        c.kind.push_back(chance.pick<std::uint8_t>(0, 2));
    }
    for (Index e = 0; e < engines; ++e) c.slots.push_back(chance.pick(1, 5));
    for (Index l = 0; l < wires; ++l) {
        c.link_rate.push_back(chance.pick<double>(1, 50));
        c.duplex_share.push_back(chance.pick<double>(1, 10) / 10);
        c.opposite.push_back(chance.pick(-1, wires - 1));
    }
    Index devices = 0;
    for (Index device : c.device) devices = std::max(devices, device + 1);
    if (wires > 0) c.link_begin.push_back(0);
    for (Index call = -1; call < calls; ++call) {
        for (Index n = chance.pick(0, 3); n-- > 0;) {
            const auto row = static_cast<Index>(c.call.size());
            c.call.push_back(call);
            c.launched.push_back(call >= 0 && !chance.once_in(6));
            c.stream.push_back(chance.pick(0, streams - 1));
            c.engine.push_back(chance.pick(-1, engines - 1));
            c.takes.push_back(c.engine.back() == kNone ? 1 : chance.pick(1, c.slots[c.engine.back()]));
            c.duration.push_back(scale * chance.pick(0, 60));
            c.launch_lag.push_back(scale * chance.pick(-20, 30));
            c.order_lag.push_back(scale * chance.pick(-20, 30));
            c.extra.push_back(scale * std::max(0, chance.pick(-20, 20)));
            c.engine_lag.push_back(scale * chance.pick(0, 5));
            c.queue_key.push_back(chance.pick(0, 50));
            c.after.push_back(chance.once_in(5) ? chance.pick(-1, row - 1) : kNone);
            c.released.push_back(scale * chance.pick(-50, 500));
            c.unordered.push_back(chance.once_in(5) ? chance.pick<std::uint8_t>(0, 7) : 0);
            c.bytes_per_s.push_back(chance.pick<double>(0, 50));
            c.weight.push_back(chance.pick<double>(1, 8) / 4);
            if (wires == 0) continue;
            for (Index link = 0; link < wires; ++link)
                if (chance.once_in(2)) c.links.push_back(chance.pick(0, wires - 1));
            c.link_begin.push_back(static_cast<std::int64_t>(c.links.size()));
            while (c.link_cost.size() < c.links.size()) c.link_cost.push_back(chance.pick<double>(1, 8) / 4);
        }
        if (call < 0) continue;
        const auto issued = static_cast<Index>(c.call.size());
        auto wait = static_cast<Wait>(chance.pick(0, 5));
        if ((wait == Wait::device && devices == 0) || (wait == Wait::operation && issued == 0))
            wait = Wait::none;
        const Index keys = wait == Wait::device      ? devices
                           : wait == Wait::operation ? issued
                           : wait == Wait::stream    ? streams
                                                     : 4;
        c.thread.push_back(std::min(call, chance.pick(0, 3)));
        c.gap.push_back(scale * chance.pick(0, 30));
        c.busy.push_back(scale * chance.pick(0, 30));
        c.call_after.push_back(chance.once_in(6) ? chance.pick(-1, call - 1) : kNone);
        c.wait.push_back(static_cast<std::uint8_t>(wait));
        c.wait_key.push_back(chance.pick(0, keys - 1));
        c.wait_lag.push_back(scale * chance.pick(-40, 30));
        c.act.push_back(chance.pick<std::uint8_t>(0, 2));
        c.act_stream.push_back(chance.pick(-1, streams - 1));
        c.act_event.push_back(chance.pick(-1, 3));
    }
    return c;
}

// Whoever awaits a joint comes behind those that arrive in it; `wild`: who knows, so there may be circles.
void add_joints(Columns& c, Chance& chance, bool wild) {
    const auto calls = static_cast<Index>(c.thread.size()), operations = static_cast<Index>(c.call.size());
    c.call_awaits.assign(c.thread.size(), kNone);
    c.operation_awaits.assign(c.call.size(), kNone);
    c.joint_begin.push_back(0);
    std::vector<Index> issued;  // nodes
    Index row = 0;
    for (Index call = -1; call < calls; ++call) {
        if (call >= 0) issued.push_back(call);
        while (row < operations && c.call[row] == call) issued.push_back(calls + row++);
    }
    for (Index joint = 0; !issued.empty() && joint < chance.pick(0, 12); ++joint) {
        const Index last = chance.pick(0, std::ssize(issued) - 1);
        for (Index n = chance.pick(0, 4); n-- > 0;) c.members.push_back(issued[chance.pick(0, last)]);
        c.joint_begin.push_back(std::ssize(c.members));
        for (Index n = chance.pick(0, 3); n-- > 0;) {
            const Index node = issued[chance.pick(wild ? 0 : last, std::ssize(issued) - 1)];
            const Index o = node - calls;
            if (o < 0)
                c.call_awaits[node] = joint;
            else if (c.engine[o] == kNone && (c.link_begin.empty() || c.link_begin[o] == c.link_begin[o + 1]))
                c.operation_awaits[o] = joint;
        }
    }
}

// One value that is often too high, too low, or no number at all; or a column of another length.
template <typename T>
void spoil(std::vector<T>& column, Chance& chance) {
    using Limits = std::numeric_limits<T>;
    if (chance.once_in(8)) {
        column.resize(static_cast<std::size_t>(chance.pick(0, static_cast<Index>(column.size()) + 2)));
    } else if (!column.empty()) {
        T values[] = {
            Limits::min(),          Limits::max(),      Limits::lowest(),  Limits::infinity(),
            Limits::quiet_NaN(),    static_cast<T>(-1), static_cast<T>(7), static_cast<T>(Limits::max() / 4),
            chance.pick<T>(-2, 100)};
        column[static_cast<std::size_t>(chance.pick(0, static_cast<Index>(column.size()) - 1))] =
            values[static_cast<std::size_t>(chance.pick(0, std::ssize(values) - 1))];
    }
}

void spoil_column(Columns& c, Chance& chance) {
    int column = chance.pick(0, 39);
    const auto take = [&](auto&... columns) { ((column-- == 0 ? spoil(columns, chance) : void()), ...); };
    take(c.thread, c.call_after, c.wait_key, c.act_stream, c.act_event, c.gap, c.busy, c.wait_lag, c.wait,
         c.act, c.call, c.stream, c.engine, c.takes, c.after, c.links, c.duration, c.launch_lag, c.order_lag,
         c.extra, c.queue_key, c.released, c.launched, c.unordered, c.bytes_per_s, c.weight, c.link_cost,
         c.link_begin, c.device, c.context, c.slots, c.opposite, c.kind, c.link_rate, c.duplex_share,
         c.call_awaits, c.operation_awaits, c.members, c.joint_begin);
}

bool holds(const Timeline& t, const Played& p, const Path& path) {
    for (std::size_t c = 0; c < t.calls.size(); ++c)
        if (p.call_start[c] < 0 || p.call_end[c] < p.call_start[c] + t.calls.busy[c]) return false;
    for (std::size_t o = 0; o < t.operations.size(); ++o)
        if (p.operation_start[o] < 0 || p.operation_end[o] < p.operation_start[o]) return false;
    const auto calls = static_cast<Index>(t.calls.size());
    std::vector<Time> arrived(t.joints.size(), 0);
    for (std::size_t joint = 0; joint < arrived.size(); ++joint)
        for (const Index node : t.joints.of(joint))
            arrived[joint] =
                std::max(arrived[joint], node < calls ? p.call_start[node] : p.operation_start[node - calls]);
    for (std::size_t c = 0; c < t.calls.awaits.size(); ++c)
        if (const Index joint = t.calls.awaits[c]; joint != kNone)
            if (p.call_end[c] < arrived[joint] + t.calls.busy[c]) return false;
    for (std::size_t o = 0; o < t.operations.awaits.size(); ++o)
        if (const Index joint = t.operations.awaits[o]; joint != kNone)
            if (p.operation_end[o] !=
                std::max(arrived[joint], p.operation_start[o]) + t.operations.duration[o])
                return false;
    Time at = 0;
    for (std::size_t i = 0; i < path.step.size(); ++i) {
        if (path.start[i] != at || path.end[i] < path.start[i]) return false;
        at = path.end[i];
    }
    return at == p.makespan;
}

// Plays, explains what was played, and plays again. Throws std::invalid_argument where columns are bad.
bool plays(const Columns& c) {
    const Timeline t = c.timeline();
    const auto poll = [] {};
    const Played p = simulate(t, dependencies(t), poll, true);
    if (!holds(t, p, critical_path(t, p))) return false;
    const std::vector<std::uint8_t> call_class(t.calls.size(), 1), operation_class(t.operations.size(), 255);
    std::vector<std::uint8_t> unit(t.operations.size());
    for (std::size_t i = 0; i < unit.size(); ++i) unit[i] = i % 3 == 0;
    Columns again = c;  // without joints: each rank is explained alone
    again.call_awaits = again.operation_awaits = again.members = {};
    again.joint_begin = {};
    again.duration = alone(t, p.operation_start, p.operation_end, poll);
    again.queue_key = p.operation_start;
    Explained x = explain(again.timeline(), {p.call_start, p.call_end, p.operation_start, p.operation_end,
                                             call_class, operation_class, unit});
    again.busy = x.busy;
    again.wait_lag = x.wait_lag;
    again.wait = x.wait;
    again.wait_key = x.wait_key;
    again.launch_lag = x.launch_lag;
    again.order_lag = x.order_lag;
    again.extra = x.extra;
    again.unordered = x.unordered;
    const Timeline u = again.timeline();
    const Played q = simulate(u, dependencies(u), poll, true);
    return holds(u, q, critical_path(u, q));
}

// Ranks that wait for each other in every one of so many collectives: each node and member is one step, or
// few.
bool linear(Index ranks, Index joints) {
    Columns c;
    const auto rows = static_cast<std::size_t>(ranks) * static_cast<std::size_t>(joints);
    for (auto* column :
         {&c.duration, &c.launch_lag, &c.order_lag, &c.extra, &c.engine_lag, &c.queue_key, &c.released})
        column->assign(rows, 5);
    for (auto* column : {&c.call, &c.engine, &c.after}) column->assign(rows, kNone);
    c.takes.assign(rows, 1);
    c.launched.assign(rows, 0);
    c.unordered.assign(rows, 0);
    c.bytes_per_s.assign(rows, 0);
    c.weight.assign(rows, 1);
    c.device.assign(static_cast<std::size_t>(ranks), kNone);
    c.context.assign(static_cast<std::size_t>(ranks), kNone);
    c.kind.assign(static_cast<std::size_t>(ranks), 2);
    for (Index rank = 0; rank < ranks; ++rank) {
        for (Index joint = 0; joint < joints; ++joint) {
            c.stream.push_back(rank);
            c.operation_awaits.push_back(joint);
        }
    }
    for (Index joint = 0; joint < joints; ++joint) {
        c.joint_begin.push_back(std::ssize(c.members));
        for (Index rank = 0; rank < ranks; ++rank) c.members.push_back(rank * joints + joint);
    }
    c.joint_begin.push_back(std::ssize(c.members));
    const Timeline t = c.timeline();
    std::size_t polls = 0;
    const Played p = simulate(t, dependencies(t), [&] { ++polls; }, false);
    // A poll comes every half a million steps.
    return p.makespan > 0 && polls > 0 && polls * 0x80000 <= 4 * rows;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) return 2;
    const std::uint64_t first = std::strtoull(argv[1], nullptr, 10),
                        count = std::strtoull(argv[2], nullptr, 10);
    std::uint64_t broken = 0, refused = 0, played = 0, circles = 0;
    for (const Index joints : {400, 1600}) {
        if (linear(1000, joints)) continue;
        std::printf("%d joints of 1000 ranks are more work than their members\n", joints);
        ++broken;
    }
    for (std::uint64_t seed = first; seed < first + count; ++seed) {
        Chance chance(seed);
        Columns columns = random_columns(chance);
        const bool spoilt = seed % 2 == 1, joined = seed % 3 > 0, wild = seed % 3 > 1;
        if (joined) add_joints(columns, chance, wild);
        if (spoilt) spoil_column(columns, chance);
        try {
            ++played;
            if (!plays(columns)) {
                std::printf("seed %llu: a rule is broken\n", static_cast<unsigned long long>(seed));
                ++broken;
            }
        } catch (const std::invalid_argument& complaint) {
            --played;
            ++refused;
            const bool circle = std::string_view(complaint.what()).ends_with("in a circle");
            circles += circle;
            if (!spoilt && !(wild && circle)) {
                std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), complaint.what());
                ++broken;
            }
        }
    }
    std::printf("%llu played, %llu refused, %llu of them for a circle, %llu broken\n",
                static_cast<unsigned long long>(played), static_cast<unsigned long long>(refused),
                static_cast<unsigned long long>(circles), static_cast<unsigned long long>(broken));
    return broken == 0 ? 0 : 1;
}
