#include "decimal.hpp"

#include <charconv>
#include <cmath>

namespace busfare {
namespace {

constexpr std::int64_t kMost = 4'000'000'000'000'000'000;

std::int64_t through_double(std::string_view text, int decimals) {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) return kMissing;
    value = std::nearbyint(value * std::pow(10.0, decimals));
    return std::abs(value) < static_cast<double>(kMost) ? static_cast<std::int64_t>(value) : kMissing;
}

}  // namespace

std::int64_t decimal(std::string_view text, int decimals) {
    if (text.size() >= 2 && text.front() == '"' && text.back() == '"') text = text.substr(1, text.size() - 2);
    const std::string_view whole = text;
    const bool negative = !text.empty() && text.front() == '-';
    if (negative) text.remove_prefix(1);
    std::int64_t value = 0;
    std::size_t i = 0;
    for (; i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i) {
        if (value > kMost / 10) return kMissing;
        value = value * 10 + (text[i] - '0');
    }
    if (i == 0) return kMissing;
    int wanted = decimals;
    bool round_up = false;
    if (i < text.size() && text[i] == '.') {
        const std::size_t first = ++i;
        for (; i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i) {
            if (wanted > 0) {
                if (value > kMost / 10) return kMissing;
                value = value * 10 + (text[i] - '0');
                --wanted;
            } else if (i == first + static_cast<std::size_t>(decimals)) {
                round_up = text[i] >= '5';
            }
        }
        if (i == first) return kMissing;
    }
    if (i < text.size()) {
        return text[i] == 'e' || text[i] == 'E' ? through_double(whole, decimals) : kMissing;
    }
    for (; wanted > 0; --wanted) {
        if (value > kMost / 10) return kMissing;
        value *= 10;
    }
    value += round_up ? 1 : 0;
    return negative ? -value : value;
}

}  // namespace busfare
