#include "numbering.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace busfare {

namespace {

constexpr std::size_t kBlock = 4096;  // rows whose codes stay in the cache

// Calls `work` with the column's numbers as they are typed.
template <typename Signed, typename Unsigned, typename Work>
void as(const WholeNumbers& column, Work&& work) {
    column.is_signed ? work(static_cast<const Signed*>(column.values))
                     : work(static_cast<const Unsigned*>(column.values));
}

template <typename Work>
void typed(const WholeNumbers& column, Work&& work) {
    if (column.bytes == 1) return as<std::int8_t, std::uint8_t>(column, work);
    if (column.bytes == 2) return as<std::int16_t, std::uint16_t>(column, work);
    if (column.bytes == 4) return as<std::int32_t, std::uint32_t>(column, work);
    as<std::int64_t, std::uint64_t>(column, work);
}

}  // namespace

bool number_rows(std::span<const WholeNumbers> columns, std::size_t rows, std::uint64_t most,
                 std::uint32_t* number, std::vector<std::int64_t>& first) {
    std::vector<std::uint64_t> least(columns.size()), times(columns.size());
    std::uint64_t span = 1;  // how many different rows there can be
    for (std::size_t k = 0; k < columns.size(); ++k) {
        typed(columns[k], [&](const auto* values) {
            const auto [low, high] = std::minmax_element(values, values + rows);
            least[k] = static_cast<std::uint64_t>(*low);
            times[k] = static_cast<std::uint64_t>(*high) - least[k] + 1;  // 0: all of 64 bits
        });
        if (times[k] == 0 || times[k] > most / span) return false;
        span *= times[k];
    }
    std::vector<std::uint32_t> table(span);  // the number of each code, and 1
    std::array<std::uint64_t, kBlock> codes;
    for (std::size_t begin = 0; begin < rows; begin += kBlock) {
        const std::size_t count = std::min(kBlock, rows - begin);
        std::fill_n(codes.begin(), count, 0);
        for (std::size_t k = 0; k < columns.size(); ++k)
            typed(columns[k], [&](const auto* values) {
                for (std::size_t i = 0; i < count; ++i)
                    codes[i] =
                        codes[i] * times[k] + (static_cast<std::uint64_t>(values[begin + i]) - least[k]);
            });
        for (std::size_t i = 0; i < count; ++i) {
            std::uint32_t& above = table[codes[i]];
            if (above == 0) {
                first.push_back(static_cast<std::int64_t>(begin + i));
                above = static_cast<std::uint32_t>(first.size());
            }
            number[begin + i] = above - 1;
        }
    }
    return true;
}

void previous_rows(std::span<const std::uint32_t> number, std::size_t count, std::int32_t* before) {
    std::vector<std::int32_t> last(count, -1);
    for (std::size_t i = 0; i < number.size(); ++i)
        before[i] = std::exchange(last[number[i]], static_cast<std::int32_t>(i));
}

}  // namespace busfare
