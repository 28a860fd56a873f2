#include "order.hpp"

#include <algorithm>
#include <array>
#include <utility>

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

// By digits of 11 bits, the least first; digits that are alike everywhere are passed over.
void sort(const std::vector<Part>& parts, std::uint32_t* order) {
    constexpr unsigned kBits = 11, kDigits = 6;
    constexpr std::uint64_t kValues = 1 << kBits;
    struct Row {
        std::uint64_t key;
        std::uint32_t row;
    };
    std::vector<Row> rows, sorted;
    std::array<std::array<std::uint32_t, kValues>, kDigits> counts{};
    for (const Part& part : parts) {
        for (std::size_t i = 0; i < part.count; ++i) {
            const std::uint64_t key = static_cast<std::uint64_t>(part.numbers[i]) ^ std::uint64_t{1} << 63;
            rows.push_back({key, static_cast<std::uint32_t>(rows.size())});
            for (unsigned digit = 0; digit < kDigits; ++digit)
                ++counts[digit][key >> digit * kBits & (kValues - 1)];
        }
    }
    sorted.resize(rows.size());
    for (unsigned digit = 0; digit < kDigits; ++digit) {
        auto& places = counts[digit];
        if (std::ranges::find(places, rows.size()) != places.end()) continue;
        std::uint32_t before = 0;
        for (std::uint32_t& place : places) before += std::exchange(place, before);
        for (const Row& row : rows) sorted[places[row.key >> digit * kBits & (kValues - 1)]++] = row;
        rows.swap(sorted);
    }
    for (std::size_t i = 0; i < rows.size(); ++i) order[i] = rows[i].row;
}

}  // namespace

void order_of(const std::vector<Part>& parts, std::uint32_t* order) {
    if (std::ranges::any_of(parts, [](const Part& part) {
            return !std::is_sorted(part.numbers, part.numbers + part.count);
        })) {
        sort(parts, order);
        return;
    }
    std::vector<Rest> rests;
    std::uint32_t row = 0;
    for (const Part& part : parts) {
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
}

}  // namespace busfare
