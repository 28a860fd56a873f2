#include "names.hpp"

#include <algorithm>

#include "unreadable.hpp"

namespace busfare::sqlite {

std::shared_ptr<Codes> codes_of(const Column& ids, std::uint64_t most) {
    if (ids.kind() != Kind::integer || ids.nulls() != 0) throw Unreadable("names without ids");
    if (ids.length() >= UINT32_MAX) throw Unreadable("very many names");
    const auto rows = static_cast<std::uint32_t>(ids.length());
    const std::int64_t* values = ids.values<std::int64_t>();
    auto made = std::make_shared<Codes>();
    made->otherwise = rows;
    if (rows == 0) return made;
    const auto [least, greatest] = std::minmax_element(values, values + rows);
    const std::uint64_t span = static_cast<std::uint64_t>(*greatest) - static_cast<std::uint64_t>(*least);
    if (span >= most) throw Unreadable("ids far apart");
    made->least = *least;
    made->of.assign(span + 1, rows);
    for (std::uint32_t row = 0; row < rows; ++row) {
        std::uint32_t& code =
            made->of[static_cast<std::uint64_t>(values[row]) - static_cast<std::uint64_t>(*least)];
        if (code != rows) throw Unreadable("an id of two names");
        code = row;
    }
    return made;
}

std::vector<std::pair<std::uint64_t, std::string_view>> texts_with(const Column& texts,
                                                                   const std::vector<std::string>& parts) {
    if (texts.kind() != Kind::text || texts.nulls() != 0) throw Unreadable("ids without names");
    std::vector<std::pair<std::uint64_t, std::string_view>> found;
    for (std::uint64_t row = 0; row < texts.length(); ++row) {
        const std::string_view text = texts.text(row);
        if (std::ranges::any_of(
                parts, [&](const std::string& part) { return text.find(part) != std::string_view::npos; })) {
            found.emplace_back(row, text);
        }
    }
    return found;
}

}  // namespace busfare::sqlite
