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
        while (p < retry || !skip_blocks(p, depth, retry)) {
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

    // Goes on from `p`, which is outside of any string, by blocks of 64 bytes for as long as they hold no
    // backslash, and keeps `depth`. True: the outermost bracket is closed, and `p` is after it. False: `p` is
    // where to go on byte by byte, again outside of any string, up to `retry` at least.
    bool skip_blocks(const char*& p, std::uint64_t& depth, const char*& retry) const {
#if defined(__SSE2__)
        const char* resume = p;              // the last block boundary outside of strings
        std::uint64_t resume_depth = depth;  // and the depth there
        std::uint64_t inside = 0;            // all ones while a block begins inside a string
        const char* block = p;
        for (; end_ - block >= 64; block += 64) {
            std::uint64_t quotes = 0, backslashes = 0, opens = 0, closes = 0;
            for (int i = 0; i < 4; ++i) {
                const __m128i text = _mm_loadu_si128(reinterpret_cast<const __m128i*>(block + 16 * i));
                // Setting bit 5 turns '[' into '{' and ']' into '}'.
                const __m128i folded = _mm_or_si128(text, _mm_set1_epi8(0x20));
                quotes |= bits(_mm_cmpeq_epi8(text, _mm_set1_epi8('"'))) << (16 * i);
                backslashes |= bits(_mm_cmpeq_epi8(text, _mm_set1_epi8('\\'))) << (16 * i);
                opens |= bits(_mm_cmpeq_epi8(folded, _mm_set1_epi8('{'))) << (16 * i);
                closes |= bits(_mm_cmpeq_epi8(folded, _mm_set1_epi8('}'))) << (16 * i);
            }
            if (backslashes != 0) break;
            // Each bit becomes the parity of the quotes up to it: one inside strings.
            std::uint64_t strings = quotes;
            for (int shift = 1; shift < 64; shift *= 2) strings ^= strings << shift;
            strings ^= inside;
            inside = std::uint64_t{0} - (strings >> 63);
            opens &= ~strings;
            closes &= ~strings;
            if (static_cast<std::uint64_t>(__builtin_popcountll(closes)) >= depth) {
                for (std::uint64_t left = opens | closes; left != 0; left &= left - 1) {
                    const std::uint64_t bit = left & (0 - left);
                    depth += (opens & bit) != 0 ? 1 : -1;
                    if (depth == 0) {
                        p = block + __builtin_ctzll(bit) + 1;
                        return true;
                    }
                }
            } else {
                depth += static_cast<std::uint64_t>(__builtin_popcountll(opens)) -
                         static_cast<std::uint64_t>(__builtin_popcountll(closes));
            }
            if (inside == 0) {
                resume = block + 64;
                resume_depth = depth;
            }
        }
        p = resume;
        depth = resume_depth;
        retry = end_ - block >= 64 ? block + 64 : end_;
#else
        static_cast<void>(p), static_cast<void>(depth);
        retry = end_;
#endif
        return false;
    }

#if defined(__SSE2__)
    static std::uint64_t bits(__m128i equal) { return static_cast<std::uint32_t>(_mm_movemask_epi8(equal)); }
#endif

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
