// A table of names that others name by ids.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "columns.hpp"

namespace busfare::sqlite {

// The row of each id; for all else the number of rows. Throws Unreadable if an id is null, occurs twice, or
// they lie further apart than `most`.
std::shared_ptr<Codes> codes_of(const Column& ids, std::uint64_t most);

// The rows of the texts that contain one of `parts`, and those texts. Throws Unreadable if there is a null.
std::vector<std::pair<std::uint64_t, std::string_view>> texts_with(const Column& texts,
                                                                   const std::vector<std::string>& parts);

}  // namespace busfare::sqlite
