#include "links.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "check.hpp"

namespace busfare::replay {

Sharing::Sharing(const Operations& operations, const Links& links)
    : o_(operations),
      l_(links),
      left_(links.bytes_per_s.size(), 0),
      growth_(links.bytes_per_s.size(), 0),
      users_(links.bytes_per_s.size(), 0) {}

std::pair<std::size_t, std::size_t> Sharing::places_of(Index operation) const {
    if (o_.link_begin.empty() || o_.bytes_per_s[operation] == 0) return {0, 0};
    return {static_cast<std::size_t>(o_.link_begin[operation]),
            static_cast<std::size_t>(o_.link_begin[operation + 1])};
}

void Sharing::operator()(std::vector<Flow>& flows) {
    growing_.clear();
    for (std::size_t f = 0; f < flows.size(); ++f) {
        const Index operation = flows[f].operation;
        const auto [first, last] = places_of(operation);
        for (std::size_t at = first; at < last; ++at) {
            ++users_[o_.links[at]];
            growth_[o_.links[at]] += o_.link_cost[at] * o_.weight[operation];
        }
        flows[f].rate_share = 1;
        if (first != last) growing_.push_back(f);
    }
    for (std::size_t f : growing_) {
        const auto [first, last] = places_of(flows[f].operation);
        for (std::size_t at = first; at < last; ++at) {
            const Index link = o_.links[at], opposite = l_.opposite[link];
            const bool duplex = opposite != kNone && users_[opposite] > 0;
            left_[link] = l_.bytes_per_s[link] * (duplex ? l_.duplex_share[link] : 1.0);
        }
    }
    // Each round fixes at least one flow, at the tightest of all limits: a rate for a weight of one.
    while (!growing_.empty()) {
        const auto limit = [&](std::size_t f) {
            const Index operation = flows[f].operation;
            const auto [first, last] = places_of(operation);
            double least = o_.bytes_per_s[operation] / o_.weight[operation];
            for (std::size_t at = first; at < last; ++at)
                least = std::min(least, left_[o_.links[at]] / growth_[o_.links[at]]);
            return least;
        };
        double least = std::numeric_limits<double>::infinity();
        for (std::size_t f : growing_) least = std::min(least, limit(f));
        const auto still = std::stable_partition(growing_.begin(), growing_.end(), [&](std::size_t f) {
            return !(limit(f) <= least * (1 + 1e-12));
        });
        fixed_.assign(still, growing_.end());
        growing_.erase(still, growing_.end());
        for (std::size_t f : fixed_) {
            const Index operation = flows[f].operation;
            const auto [first, last] = places_of(operation);
            const double rate = least * o_.weight[operation];
            flows[f].rate_share = rate / o_.bytes_per_s[operation];
            for (std::size_t at = first; at < last; ++at) {
                const Index link = o_.links[at];
                left_[link] = std::max(0.0, left_[link] - o_.link_cost[at] * rate);
                growth_[link] -= o_.link_cost[at] * o_.weight[operation];
                if (--users_[link] == 0) growth_[link] = 0;  // whatever was rounded
            }
        }
    }
}

std::vector<Time> alone(const Timeline& timeline, std::span<const Time> start, std::span<const Time> end,
                        const std::function<void()>& poll) {
    check(timeline);
    const Operations& operations = timeline.operations;
    check_times(start, end, operations.size(), "start", "end");
    Sharing share(operations, timeline.links);
    std::vector<Time> durations(operations.size());
    std::vector<std::pair<Time, Index>> edges;  // ~row: an end
    for (std::size_t o = 0; o < operations.size(); ++o) {
        durations[o] = end[o] - start[o];
        if (!share.shares(static_cast<Index>(o)) || durations[o] == 0) continue;
        edges.emplace_back(start[o], static_cast<Index>(o));
        edges.emplace_back(end[o], ~static_cast<Index>(o));
    }
    std::sort(edges.begin(), edges.end());
    std::vector<Flow> flows;
    std::vector<double> done(operations.size(), 0);
    Time now = 0;
    std::size_t steps = 0;
    for (const auto& [time, row] : edges) {
        if (time > now && !flows.empty()) {
            share(flows);
            for (const Flow& flow : flows)
                done[flow.operation] += flow.rate_share * static_cast<double>(time - now);
        }
        if ((steps += flows.size() + 1) > 0x10000) {
            poll();
            steps = 0;
        }
        now = time;
        if (row >= 0) {
            flows.push_back({.operation = row});
        } else {
            const Index operation = ~row;
            std::erase_if(flows, [&](const Flow& flow) { return flow.operation == operation; });
            durations[operation] = std::llround(done[operation]);
        }
    }
    return durations;
}

}  // namespace busfare::replay
