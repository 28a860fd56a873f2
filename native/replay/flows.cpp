#include "flows.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "check.hpp"

namespace busfare::replay {

std::optional<Flows::Foreseen> Flows::begin(Index operation, Time now, Time alone_until) {
    advance(now);
    flows_.push_back({.operation = operation, .left = static_cast<double>(alone_until - now)});
    return foresee();
}

std::optional<Flows::Foreseen> Flows::end(Index operation, Time now) {
    advance(now);
    std::erase_if(flows_, [&](const Flow& flow) { return flow.operation == operation; });
    return foresee();
}

void Flows::advance(Time now) {
    const auto passed = static_cast<double>(now - now_);
    for (Flow& flow : flows_) flow.left = std::max(0.0, flow.left - flow.rate_share * passed);
    now_ = now;
}

std::optional<Flows::Foreseen> Flows::foresee() {
    share_(flows_);
    ++changes_;
    const auto needs = [](const Flow& flow) { return flow.left / flow.rate_share; };
    const Flow* first = nullptr;
    for (const Flow& flow : flows_)
        if (first == nullptr || needs(flow) < needs(*first) ||
            (needs(flow) == needs(*first) && flow.operation < first->operation))
            first = &flow;
    if (first == nullptr) return std::nullopt;
    // Also where it is not a number.
    if (!(needs(*first) < static_cast<double>(kLongest)) || now_ + std::llround(needs(*first)) > kLongest)
        throw std::invalid_argument("replay: column link_bytes_per_s: a copy would take decades");
    return Foreseen{now_ + std::llround(needs(*first)), changes_, first->operation};
}

}  // namespace busfare::replay
