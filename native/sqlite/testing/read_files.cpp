// Reads every table of each file named, with one thread and with three, and says how many could be read.
// Built with the sanitizers; ends with status 1 if the number of threads makes a difference.
#include <cstdio>
#include <fstream>
#include <iterator>
#include <vector>

#include "read_every_table.hpp"

int main(int argc, char** argv) {
    int unlike = 0;
    std::size_t tables = 0, refused = 0;
    for (int i = 1; i < argc; ++i) {
        std::ifstream file(argv[i], std::ios::binary);
        const std::vector<char> content{std::istreambuf_iterator<char>(file),
                                        std::istreambuf_iterator<char>()};
        const auto* bytes = reinterpret_cast<const std::uint8_t*>(content.data());
        const auto single = busfare::sqlite::read_every_table(bytes, content.size(), 1);
        const auto three = busfare::sqlite::read_every_table(bytes, content.size(), 3);
        if (single.tables != three.tables || single.rows != three.rows) {
            std::printf("%s: %zu tables by one thread, %zu by three\n", argv[i], single.tables, three.tables);
            ++unlike;
        }
        tables += single.tables;
        refused += single.refused;
    }
    std::printf("%zu read, %zu refused\n", tables, refused);
    return unlike == 0 ? 0 : 1;
}
