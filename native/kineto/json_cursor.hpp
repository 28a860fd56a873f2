// A cursor over JSON text that finds things without building them.
//
// Every function returns false when the text ends before the thing does (more may come), and throws Malformed
// when it can never become JSON. Nothing recurses, so nesting cannot exhaust the stack.
#pragma once

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>

#include "bracket_blocks.hpp"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace busfare {

struct Malformed : std::runtime_error {
    using std::runtime_error::runtime_error;
};

struct JsonString {
    std::string_view raw;  // between the quotes
    bool escaped = false;
};

class JsonCursor {
  public:
    JsonCursor(const char* begin, const char* end) : at_(begin), end_(end) {}

    const char* position() const { return at_; }
    bool exhausted() const { return at_ == end_; }
    char peek() const { return *at_; }
    void advance() { ++at_; }

    bool skip_space() {
        while (at_ != end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\t' || *at_ == '\r')) ++at_;
        return at_ != end_;
    }

    // At the opening quote; ends after the closing one.
    bool string(JsonString& out) {
        if (*at_ != '"') throw Malformed("a string was expected");
        const char* const begin = at_ + 1;
        const char* p = begin;
        out.escaped = false;
        for (;;) {
            p = find_quote_or_backslash(p);
            if (p == end_) return false;
            if (*p == '"') break;
            out.escaped = true;
            if (end_ - p < 2) return false;
            p += 2;
        }
        out.raw = {begin, static_cast<std::size_t>(p - begin)};
        at_ = p + 1;
        return true;
    }

    // Any value; `out` is its text. A bare word (number, true, NaN) must be followed by something to be
    // complete.
    bool value(std::string_view& out) {
        const char* const begin = at_;
        const char first = *at_;
        if (first == '"') {
            JsonString ignored;
            if (!string(ignored)) return false;
        } else if (first == '{' || first == '[') {
            if (!container()) return false;
        } else {
            while (at_ != end_ && !ends_word(*at_)) ++at_;
            if (at_ == end_) return false;
            if (at_ == begin) throw Malformed("a value was expected");
        }
        out = {begin, static_cast<std::size_t>(at_ - begin)};
        return true;
    }

  private:
    static bool ends_word(char c) {
        return c == ',' || c == '}' || c == ']' || c == ' ' || c == '\n' || c == '\r' || c == '\t' ||
               c == ':' || c == '"';
    }

    // From the opening bracket to after the one that closes it. Brackets are counted, not matched by kind.
    bool container() {
        const char* p = at_;
        const char* retry = at_;  // no block before this is worth another look
        std::uint64_t depth = 0;
        while (p < retry || !skip_blocks(p, end_, depth, retry)) {
            p = find_structure(p);
            if (p == end_) return false;
            if (*p == '"') {
                JsonCursor inner(p, end_);
                JsonString ignored;
                if (!inner.string(ignored)) return false;
                p = inner.at_;
                continue;
            }
            if (*p == '{' || *p == '[') {
                ++depth;
            } else if (--depth == 0) {
                ++p;
                break;
            }
            ++p;
        }
        at_ = p;
        return true;
    }

    const char* find_quote_or_backslash(const char* p) const {
#if defined(__SSE2__)
        const __m128i quote = _mm_set1_epi8('"'), backslash = _mm_set1_epi8('\\');
        for (; end_ - p >= 16; p += 16) {
            const __m128i text = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
            const int hits =
                _mm_movemask_epi8(_mm_or_si128(_mm_cmpeq_epi8(text, quote), _mm_cmpeq_epi8(text, backslash)));
            if (hits != 0) return p + __builtin_ctz(static_cast<unsigned>(hits));
        }
#endif
        while (p != end_ && *p != '"' && *p != '\\') ++p;
        return p;
    }

    const char* find_structure(const char* p) const {
#if defined(__SSE2__)
        // Setting bit 5 turns '[' into '{' and ']' into '}'.
        const __m128i quote = _mm_set1_epi8('"'), open = _mm_set1_epi8('{'), close = _mm_set1_epi8('}');
        const __m128i bit = _mm_set1_epi8(0x20);
        for (; end_ - p >= 16; p += 16) {
            const __m128i text = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
            const __m128i folded = _mm_or_si128(text, bit);
            const __m128i hit =
                _mm_or_si128(_mm_cmpeq_epi8(text, quote),
                             _mm_or_si128(_mm_cmpeq_epi8(folded, open), _mm_cmpeq_epi8(folded, close)));
            const int hits = _mm_movemask_epi8(hit);
            if (hits != 0) return p + __builtin_ctz(static_cast<unsigned>(hits));
        }
#endif
        while (p != end_ && *p != '"' && *p != '{' && *p != '}' && *p != '[' && *p != ']') ++p;
        return p;
    }

    const char* at_;
    const char* end_;
};

// The text that a JSON string stands for; broken escapes become U+FFFD.
std::string unescape(std::string_view raw);

}  // namespace busfare
