#include "chunk.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "crc32.h"

namespace busfare::recorder {
namespace {

static_assert(std::endian::native == std::endian::little, "recordings are little-endian");

constexpr unsigned char kFileMagic[8] = {0x89, 'B', 'F', 'R', 'E', 'C', '\r', '\n'};
constexpr uint32_t kFormatVersion = 1;
constexpr uint32_t kFileHeaderBytes = 64;
constexpr uint32_t kChunkMagic = 0x4B434642;  // "BFCK"
constexpr size_t kChunkHeaderBytes = 32;
constexpr size_t kDirectoryEntryBytes = 16;
constexpr unsigned char kBlobWidth = 255;

template <typename T>
void put(std::vector<unsigned char>& out, size_t at, T value) {
    std::memcpy(out.data() + at, &value, sizeof value);
}

size_t padded(size_t bytes) {
    return (bytes + 7) & ~size_t{7};
}

unsigned char width_for(uint64_t range) {
    if (range == 0) return 0;
    if (range <= 0xFF) return 1;
    if (range <= 0xFFFF) return 2;
    return range <= 0xFFFFFFFF ? 4 : 8;
}

template <typename T>
void narrow(std::span<const uint64_t> values, uint64_t base, unsigned char* out) {
    for (size_t row = 0; row < values.size(); ++row) {
        const T delta = static_cast<T>(values[row] - base);
        std::memcpy(out + row * sizeof(T), &delta, sizeof(T));
    }
}

}  // namespace

void encode_chunk(const Rows& rows, uint32_t sequence, const std::string* blob,
                  std::vector<unsigned char>& chunk) {
    const size_t columns = rows.columns() + (blob ? 1 : 0);
    size_t end = kChunkHeaderBytes + columns * kDirectoryEntryBytes;
    chunk.assign(end, 0);
    for (size_t column = 0; column < rows.columns(); ++column) {
        const std::span<const uint64_t> values = rows.column(column);
        const auto [least, most] = std::ranges::minmax(values);
        const unsigned char width = width_for(most - least);
        const size_t entry = kChunkHeaderBytes + column * kDirectoryEntryBytes;
        put(chunk, entry, static_cast<uint16_t>(column));
        put(chunk, entry + 2, width);
        put(chunk, entry + 4, static_cast<uint32_t>(end - kChunkHeaderBytes));
        put(chunk, entry + 8, least);
        chunk.resize(end + padded(values.size() * width));
        unsigned char* out = chunk.data() + end;
        if (width == 1) narrow<uint8_t>(values, least, out);
        if (width == 2) narrow<uint16_t>(values, least, out);
        if (width == 4) narrow<uint32_t>(values, least, out);
        if (width == 8) narrow<uint64_t>(values, least, out);
        end = chunk.size();
    }
    if (blob) {
        const size_t entry = kChunkHeaderBytes + rows.columns() * kDirectoryEntryBytes;
        put(chunk, entry, static_cast<uint16_t>(rows.columns()));
        put(chunk, entry + 2, kBlobWidth);
        put(chunk, entry + 4, static_cast<uint32_t>(end - kChunkHeaderBytes));
        put(chunk, entry + 8, static_cast<uint64_t>(blob->size()));
        chunk.resize(end + padded(blob->size()));
        std::memcpy(chunk.data() + end, blob->data(), blob->size());
        end = chunk.size();
    }
    const size_t payload = end - kChunkHeaderBytes;
    put(chunk, 0, kChunkMagic);
    put(chunk, 4, static_cast<uint16_t>(rows.table()));
    put(chunk, 6, static_cast<uint16_t>(columns));
    put(chunk, 8, static_cast<uint32_t>(rows.count()));
    put(chunk, 12, sequence);
    put(chunk, 16, static_cast<uint64_t>(payload));
    put(chunk, 24, crc32(chunk.data() + kChunkHeaderBytes, payload));
    put(chunk, 28, crc32(chunk.data(), 28));
}

std::vector<unsigned char> encode_file_header(const FileHeader& header) {
    std::vector<unsigned char> bytes(kFileHeaderBytes, 0);
    std::memcpy(bytes.data(), kFileMagic, sizeof kFileMagic);
    put(bytes, 8, kFormatVersion);
    put(bytes, 12, kFileHeaderBytes);
    put(bytes, 16, header.process);
    put(bytes, 24, header.wall_clock_ns);
    put(bytes, 32, header.trace_clock_ns);
    put(bytes, 60, crc32(bytes.data(), 60));
    return bytes;
}

}  // namespace busfare::recorder
