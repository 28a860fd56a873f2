// Why a table is not read here.
#pragma once

#include <stdexcept>
#include <string>

namespace busfare::sqlite {

// The file is damaged, or uses something that is left to SQLite itself. Nothing of the table counts.
class Unreadable : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

// A page that is not as the file format says.
[[noreturn]] inline void damaged(std::uint64_t page, const char* what) {
    throw Unreadable("page " + std::to_string(page) + ": " + what);
}

// The user asked to stop.
class Cancelled : public std::exception {};

}  // namespace busfare::sqlite
