#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "decimal.hpp"
#include "json_cursor.hpp"

/// What the arguments of an event tell: numbers of operations and calls, launches, collectives, the functions
/// around it.
namespace busfare {

// How operators of older traces name the functions around them, and how names of functions begin that are
// nobody's own.
inline constexpr std::string_view kStack = "Call stack";
inline constexpr std::string_view kBuiltIn = "<built-in";

struct Arguments {
    std::int64_t bytes = kMissing, device = kMissing, context = kMissing, stream = kMissing,
                 correlation = kMissing;
    std::int64_t graph_node = kMissing, waited_stream = kMissing, waited_event = kMissing,
                 waited_correlation = kMissing;
    std::int64_t copy_kind = kMissing;
    std::array<std::int64_t, 3> grid{kMissing, kMissing, kMissing}, block = grid;
    std::int64_t registers = kMissing, shared_bytes = kMissing, external = kMissing;
    JsonString sync_kind;
};

struct IntegerArgument {
    std::string_view key;
    std::int64_t Arguments::* field;
};
inline constexpr std::array<IntegerArgument, 13> kIntegerArguments{{
    {"bytes", &Arguments::bytes},
    {"device", &Arguments::device},
    {"context", &Arguments::context},
    {"stream", &Arguments::stream},
    {"correlation", &Arguments::correlation},
    {"graph node id", &Arguments::graph_node},
    {"wait_on_stream", &Arguments::waited_stream},
    {"wait_on_cuda_event_id", &Arguments::waited_event},
    {"wait_on_cuda_event_record_corr_id", &Arguments::waited_correlation},
    {"cuda_event_id", &Arguments::waited_event},
    {"event_id", &Arguments::waited_event},
    {"size", &Arguments::bytes},
    {"kind", &Arguments::copy_kind},  // of calls of HIP; operations have a text there
}};
// Those that tell of a launch.
inline constexpr std::array<IntegerArgument, 4> kLaunchArguments{{
    {"registers per thread", &Arguments::registers},
    {"shared memory", &Arguments::shared_bytes},
    {"External id", &Arguments::external},
    {"external id", &Arguments::external},
}};
// What a signature has beside the name, in its order; by two spellings.
inline constexpr std::array<std::array<std::string_view, 2>, 3> kInputs{{
    {"Input Dims", "Input dims"},
    {"Input type", "Input types"},
    {"Concrete Inputs", "Concrete inputs"},
}};

// Calls `field(key, value)` for each member of the object whose text is complete, until it returns false.
template <typename Field>
void visit_members(std::string_view object, Field&& field) {
    JsonCursor cursor(object.data(), object.data() + object.size());
    cursor.advance();
    for (;;) {
        if (!cursor.skip_space()) throw Malformed("an object does not end");
        if (cursor.peek() == '}') return;
        if (cursor.peek() == ',') {
            cursor.advance();
            continue;
        }
        JsonString key;
        std::string_view value;
        if (!cursor.string(key) || !cursor.skip_space()) throw Malformed("an object does not end");
        if (cursor.peek() != ':') throw Malformed("a ':' was expected");
        cursor.advance();
        if (!cursor.skip_space() || !cursor.value(value)) throw Malformed("an object does not end");
        if (!field(key.raw, value)) return;
    }
}

// What tells of a collective, in events of kernels and ranges that may be one: names of NCCL and RCCL, and
// `nccl:…`.
inline constexpr std::string_view kCollective = "ccl";
inline constexpr std::array<std::string_view, 12> kCollectiveArguments{
    "Collective name",     "In msg nelems", "Out msg nelems", "dtype",    "Group size", "Process Group Name",
    "Process Group Ranks", "Seq",           "Src Rank",       "Dst Rank", "Input Dims", "Input type"};

// The members of an object that tell of a collective, as an object.
inline std::string collective_arguments(std::string_view object) {
    std::string kept = "{";
    visit_members(object, [&](std::string_view key, std::string_view value) {
        if (std::find(kCollectiveArguments.begin(), kCollectiveArguments.end(), key) !=
            kCollectiveArguments.end())
            kept.append(kept.size() > 1 ? ",\"" : "\"").append(key).append("\":").append(value);
        return true;
    });
    return kept += '}';
}

// The numbers of `[x, y, z]`; kMissing where there are none, or others.
inline std::array<std::int64_t, 3> sides_of(std::string_view list) {
    constexpr std::array<std::int64_t, 3> kNone{kMissing, kMissing, kMissing};
    std::array<std::int64_t, 3> sides = kNone;
    if (list.size() < 2 || list.front() != '[') return kNone;
    list = list.substr(1, list.size() - 2);
    for (std::size_t side = 0; side < sides.size(); ++side) {
        const std::size_t comma = list.find(',');
        if ((comma == std::string_view::npos) != (side + 1 == sides.size())) return kNone;
        std::string_view number = list.substr(0, comma);
        number.remove_prefix(std::min(number.find_first_not_of(" \t\r\n"), number.size()));
        sides[side] = decimal(number.substr(0, number.find_last_not_of(" \t\r\n") + 1), 0);
        list.remove_prefix(comma == std::string_view::npos ? list.size() : comma + 1);
    }
    return sides;
}

// Takes what an argument of a kernel tells of its launch.
inline void launch_argument(std::string_view key, std::string_view value, Arguments& arguments) {
    if (key == "grid") {
        arguments.grid = sides_of(value);
    } else if (key == "block") {
        arguments.block = sides_of(value);
    } else {
        for (const auto& argument : kLaunchArguments) {
            if (argument.key == key) arguments.*argument.field = decimal(value, 0);
        }
    }
}

inline bool is_string(std::string_view value) {
    return !value.empty() && value.front() == '"';
}

// A process or a GPU. Tools that merge traces of several ranks make a text of its number: `[TP01] 4242`.
struct Place {
    std::int64_t number = kMissing;  // of a text the last
    JsonString text;                 // empty: it is a number alone
};

inline JsonString as_string(std::string_view value) {
    const auto raw = value.substr(1, value.size() - 2);
    return {raw, raw.find('\\') != std::string_view::npos};
}

inline Place place_of(std::string_view value) {
    Place place{decimal(value, 0), {}};
    if (place.number != kMissing || !is_string(value)) return place;
    constexpr std::string_view kDigits = "0123456789";
    place.text = as_string(value);
    const std::string_view raw = place.text.raw;
    const std::size_t end = raw.find_last_of(kDigits) + 1;
    const std::size_t begin = end == 0 ? 0 : raw.find_last_not_of(kDigits, end - 1) + 1;
    place.number = decimal(raw.substr(begin, end - begin), 0);
    return place;
}

// Whether it is worth a look: most operators have no stack, or an empty one.
inline bool may_have_stack(std::string_view event) {
    const std::size_t at = event.find(kStack);
    if (at == event.npos) return false;
    const std::size_t value = event.find_first_not_of("\": \t\r\n", at + kStack.size());
    return value != event.npos && event[value] != '}' && event[value] != ',';
}

// The functions around an operator; none where its arguments do not name them.
inline JsonString stack_of(std::string_view arguments) {
    JsonString stack;
    if (arguments.find(kStack) == arguments.npos || arguments.front() != '{') return stack;
    visit_members(arguments, [&](std::string_view key, std::string_view value) {
        if (key != kStack) return true;
        if (is_string(value)) stack = as_string(value);
        return false;
    });
    return stack;
}

}  // namespace busfare
