// Reads every table of a database as every kind of column: what fuzzers and sanitizers run.
#pragma once

#include <cstddef>
#include <cstdint>

namespace busfare::sqlite {

// A database held in memory of its exact size, so that whatever is read beyond it is seen. Gives how many
// tables could be read, and their rows; a file that cannot be read is as good as another.
struct Outcome {
    std::size_t tables = 0, refused = 0;
    std::uint64_t rows = 0;
};
Outcome read_every_table(const std::uint8_t* content, std::size_t size, unsigned threads);

}  // namespace busfare::sqlite
