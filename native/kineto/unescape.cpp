#include "json_cursor.hpp"

namespace busfare {
namespace {

int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

// Four hexadecimal digits at `at`, or -1.
int code_unit(std::string_view raw, std::size_t at) {
    if (at + 4 > raw.size()) return -1;
    int unit = 0;
    for (std::size_t i = at; i < at + 4; ++i) {
        const int digit = hex_digit(raw[i]);
        if (digit < 0) return -1;
        unit = unit * 16 + digit;
    }
    return unit;
}

void append_utf8(std::string& out, std::uint32_t point) {
    if (point < 0x80) {
        out += static_cast<char>(point);
    } else if (point < 0x800) {
        out += static_cast<char>(0xC0 | point >> 6);
        out += static_cast<char>(0x80 | (point & 0x3F));
    } else if (point < 0x10000) {
        out += static_cast<char>(0xE0 | point >> 12);
        out += static_cast<char>(0x80 | (point >> 6 & 0x3F));
        out += static_cast<char>(0x80 | (point & 0x3F));
    } else {
        out += static_cast<char>(0xF0 | point >> 18);
        out += static_cast<char>(0x80 | (point >> 12 & 0x3F));
        out += static_cast<char>(0x80 | (point >> 6 & 0x3F));
        out += static_cast<char>(0x80 | (point & 0x3F));
    }
}

constexpr std::uint32_t kReplacement = 0xFFFD;

}  // namespace

std::string unescape(std::string_view raw) {
    std::string out;
    out.reserve(raw.size());
    for (std::size_t i = 0; i < raw.size(); ++i) {
        if (raw[i] != '\\' || i + 1 == raw.size()) {
            out += raw[i];
            continue;
        }
        const char kind = raw[++i];
        switch (kind) {
            case 'n':
                out += '\n';
                break;
            case 't':
                out += '\t';
                break;
            case 'r':
                out += '\r';
                break;
            case 'b':
                out += '\b';
                break;
            case 'f':
                out += '\f';
                break;
            case 'u': {
                const int unit = code_unit(raw, i + 1);
                if (unit < 0) {
                    append_utf8(out, kReplacement);
                    break;
                }
                i += 4;
                const bool high = unit >= 0xD800 && unit < 0xDC00;
                const bool low_follows = i + 2 < raw.size() && raw[i + 1] == '\\' && raw[i + 2] == 'u';
                const int low = high && low_follows ? code_unit(raw, i + 3) : -1;
                if (low >= 0xDC00 && low < 0xE000) {
                    i += 6;
                    append_utf8(out, 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00));
                } else {
                    append_utf8(out, unit >= 0xD800 && unit < 0xE000 ? kReplacement
                                                                     : static_cast<std::uint32_t>(unit));
                }
                break;
            }
            default:
                out += kind;  // \" \\ \/ and anything unknown stand for themselves
        }
    }
    return out;
}

}  // namespace busfare
