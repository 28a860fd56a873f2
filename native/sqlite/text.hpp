// UTF-8 that nobody vouches for.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace busfare::sqlite {

// Whether `text` is sound UTF-8.
bool is_utf8(std::string_view text);

// `text` with U+FFFD for each longest piece that is no UTF-8 (Unicode, "maximal subparts"; as Python
// replaces).
std::string replaced(std::string_view text);

}  // namespace busfare::sqlite
