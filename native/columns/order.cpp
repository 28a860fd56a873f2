#include "order.hpp"

#include <algorithm>

namespace busfare {

namespace {

// What is left of a part: the rows from `row` to `end`.
struct Rest {
    const std::int64_t* at;
    std::uint32_t row, end;
};

// By no branch on which comes first, for that cannot be foretold.
std::uint32_t* merge(Rest& first, Rest& second, std::uint32_t* into) {
    while (first.row != first.end && second.row != second.end) {
        const bool later = *second.at < *first.at;
        *into++ = later ? second.row : first.row;
        first.at += !later;
        first.row += !later;
        second.at += later;
        second.row += later;
    }
    return into;
}

std::uint32_t* all(Rest& rest, std::uint32_t* into) {
    while (rest.row != rest.end) *into++ = rest.row++;
    return into;
}

}  // namespace

bool merged(const std::vector<Part>& parts, std::uint32_t* order) {
    std::vector<Rest> rests;
    std::uint32_t row = 0;
    for (const Part& part : parts) {
        if (!std::is_sorted(part.numbers, part.numbers + part.count)) return false;
        const auto count = static_cast<std::uint32_t>(part.count);
        if (count > 0) rests.push_back({part.numbers, row, row + count});
        row += count;
    }
    while (rests.size() > 2) {  // the least one, of parts as little the first
        Rest* least = &rests.front();
        for (Rest& rest : rests) {
            if (*rest.at < *least->at) least = &rest;
        }
        *order++ = least->row++;
        ++least->at;
        if (least->row == least->end) rests.erase(rests.begin() + (least - rests.data()));
    }
    if (rests.size() == 2) order = merge(rests[0], rests[1], order);
    for (Rest& rest : rests) order = all(rest, order);
    return true;
}

}  // namespace busfare
