// libFuzzer's entry: any bytes as a database. See fuzz.sh.
#include "read_every_table.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* content, std::size_t size) {
    busfare::sqlite::read_every_table(content, size, 1);
    return 0;
}
