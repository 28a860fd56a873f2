#include "links.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace busfare::replay {
namespace {

std::span<const Index> links_of(const Operations& operations, Index operation) {
    if (operations.link_begin.empty() || !(operations.bytes_per_s[operation] > 0)) return {};
    const auto begin = static_cast<std::size_t>(operations.link_begin[operation]);
    return operations.links.subspan(begin,
                                    static_cast<std::size_t>(operations.link_begin[operation + 1]) - begin);
}

}  // namespace

void share(std::vector<Flow>& flows, const Operations& operations, const Links& links) {
    if (flows.size() == 1) {  // by far the most frequent case
        const auto mine = links_of(operations, flows[0].operation);
        flows[0].pace = 1;
        for (Index link : mine)
            flows[0].pace =
                std::min(flows[0].pace, links.bytes_per_s[link] / operations.bytes_per_s[flows[0].operation]);
        return;
    }
    const std::size_t count = links.bytes_per_s.size();
    std::vector<double> left(count, 0);
    std::vector<Index> users(count, 0);
    for (const Flow& flow : flows)
        for (Index link : links_of(operations, flow.operation)) ++users[link];
    for (std::size_t link = 0; link < count; ++link) {
        const Index opposite = links.opposite[link];
        const bool both = opposite != kNone && users[opposite] > 0;
        left[link] = links.bytes_per_s[link] * (both ? links.both[link] : 1.0);
    }
    std::vector<std::size_t> growing;
    for (std::size_t f = 0; f < flows.size(); ++f) {
        flows[f].pace = 1;
        if (!links_of(operations, flows[f].operation).empty()) growing.push_back(f);
    }
    // Each round fixes at least one flow, at the tightest of all limits.
    while (!growing.empty()) {
        double least = std::numeric_limits<double>::infinity();
        for (std::size_t f : growing) {
            const Index operation = flows[f].operation;
            least = std::min(least, operations.bytes_per_s[operation]);
            for (Index link : links_of(operations, operation))
                least = std::min(least, left[link] / users[link]);
        }
        std::vector<std::size_t> still, fixed;
        for (std::size_t f : growing) {
            const Index operation = flows[f].operation;
            bool full = operations.bytes_per_s[operation] <= least * (1 + 1e-12);
            for (Index link : links_of(operations, operation))
                full = full || left[link] / users[link] <= least * (1 + 1e-12);
            (full ? fixed : still).push_back(f);
        }
        for (std::size_t f : fixed) {
            const Index operation = flows[f].operation;
            flows[f].pace = least / operations.bytes_per_s[operation];
            for (Index link : links_of(operations, operation)) {
                left[link] = std::max(0.0, left[link] - least);
                --users[link];
            }
        }
        growing = std::move(still);
    }
}

std::vector<Time> alone(const Timeline& timeline, std::span<const Time> start, std::span<const Time> end) {
    const Operations& operations = timeline.operations;
    if (start.size() != operations.size() || end.size() != operations.size())
        throw std::invalid_argument("replay: recorded operations and operations differ in number");
    std::vector<Time> found(operations.size());
    std::vector<std::pair<Time, Index>> edges;  // ~row: an end
    for (std::size_t o = 0; o < operations.size(); ++o) {
        found[o] = end[o] - start[o];
        if (links_of(operations, static_cast<Index>(o)).empty() || found[o] <= 0) continue;
        edges.emplace_back(start[o], static_cast<Index>(o));
        edges.emplace_back(end[o], ~static_cast<Index>(o));
    }
    std::sort(edges.begin(), edges.end());
    std::vector<Flow> flows;
    std::vector<double> done(operations.size(), 0);
    Time now = 0;
    for (const auto& [time, row] : edges) {
        if (time > now) {
            share(flows, operations, timeline.links);
            for (const Flow& flow : flows)
                done[flow.operation] += flow.pace * static_cast<double>(time - now);
        }
        now = time;
        if (row >= 0) {
            flows.push_back({.operation = row});
        } else {
            const Index operation = ~row;
            std::erase_if(flows, [&](const Flow& flow) { return flow.operation == operation; });
            found[operation] = std::llround(done[operation]);
        }
    }
    return found;
}

}  // namespace busfare::replay
