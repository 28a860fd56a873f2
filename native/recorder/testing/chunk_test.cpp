// Chunks and checksums against values known from elsewhere.

#include "chunk.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "crc32.h"
#include "fingerprint.h"

using namespace busfare::recorder;

namespace {

void require(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "chunk_test: %s\n", what);
    std::exit(1);
}

template <typename T>
T at(const std::vector<unsigned char>& bytes, size_t offset) {
    T value;
    std::memcpy(&value, bytes.data() + offset, sizeof value);
    return value;
}

void checksum_is_that_of_zlib() {
    require(crc32("123456789", 9) == 0xCBF43926, "the check value of CRC-32");
    require(crc32("6789", 4, crc32("12345", 5)) == 0xCBF43926, "a checksum in two parts");
}

void columns_take_the_least_width() {
    Rows rows(TableId::kLosses);
    const uint64_t big = uint64_t{1} << 60;
    for (uint64_t row = 0; row < 300; ++row) {
        const uint64_t values[] = {5, big + row, row * row * row};
        rows.append(values);
    }
    std::vector<unsigned char> chunk;
    encode_chunk(rows, 9, nullptr, chunk);
    require(at<uint16_t>(chunk, 4) == 21 && at<uint16_t>(chunk, 6) == 3 && at<uint32_t>(chunk, 8) == 300,
            "header");
    require(at<uint32_t>(chunk, 12) == 9, "sequence");
    require(at<uint64_t>(chunk, 16) == chunk.size() - 32, "payload length");
    require(chunk[32 + 2] == 0 && at<uint64_t>(chunk, 32 + 8) == 5, "a constant column holds no bytes");
    require(chunk[48 + 2] == 2 && at<uint64_t>(chunk, 48 + 8) == big, "a range of 299 takes two bytes a row");
    require(chunk[64 + 2] == 4, "a range of 26 million takes four");
    const uint32_t second = at<uint32_t>(chunk, 48 + 4);
    require(at<uint16_t>(chunk, 32 + second + 2 * 299) == 299, "the last row");
    require(at<uint32_t>(chunk, 24) == crc32(chunk.data() + 32, chunk.size() - 32), "payload checksum");
    require(at<uint32_t>(chunk, 28) == crc32(chunk.data(), 28), "header checksum");
}

void fingerprints_differ_and_survive_bad_addresses() {
    std::vector<unsigned char> data(1 << 20, 1);
    const uint64_t before = fingerprint(data.data(), data.size());
    require(before != 0 && before == fingerprint(data.data(), data.size()), "the same bytes, the same hash");
    for (size_t at : {size_t{0}, size_t{31}, data.size() / 2, data.size() - 1}) {
        data[at] ^= 1;
        require(fingerprint(data.data(), data.size()) != before, "one bit changes the hash");
        data[at] ^= 1;
    }
    require(fingerprint(data.data(), data.size() - 1) != before, "so does the length");
    require(fingerprint(reinterpret_cast<void*>(16), 64) == 0, "unreadable memory has none");
}

}  // namespace

int main() {
    checksum_is_that_of_zlib();
    columns_take_the_least_width();
    fingerprints_differ_and_survive_bad_addresses();
    return 0;
}
