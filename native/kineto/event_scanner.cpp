#include "event_scanner.hpp"

#include <algorithm>
#include <array>

#include "event_arguments.hpp"

namespace busfare {
namespace {

// Header fields worth keeping are short; a longer one (a pip list, an environment) is passed over.
constexpr std::size_t kLongestHeaderField = 1 << 16;
constexpr std::size_t kMostHeaderBytes = 1 << 20;
// Of a new piece, what is copied behind the end of the one before at first.
constexpr std::size_t kLeastJoined = 1 << 12;

struct CategoryName {
    std::string_view text;
    Category category;
};
// Those in capitals are of 2021 and before.
constexpr std::array<CategoryName, 16> kCategories{{
    {"kernel", Category::kernel},
    {"gpu_memcpy", Category::copy},
    {"gpu_memset", Category::set},
    {"cuda_runtime", Category::runtime_call},
    {"cuda_driver", Category::driver_call},
    {"cuda_sync", Category::sync},
    {"cuda_event", Category::event_record},
    {"user_annotation", Category::annotation},
    {"Kernel", Category::kernel},
    {"Memcpy", Category::copy},
    {"Memset", Category::set},
    {"Runtime", Category::runtime_call},
    {"hip_runtime", Category::runtime_call},
    {"cpu_op", Category::operator_},
    {"Operator", Category::operator_},
    {"python_function", Category::function},
}};
Category category_of(std::string_view text) {
    for (const auto& named : kCategories) {
        if (named.text == text) return named.category;
    }
    return Category::skipped;
}

}  // namespace

void EventScanner::feed(const char* text, std::size_t size) {
    const char* const end = text + size;
    // What the piece before ended with comes first, with as much of this one as completes it.
    while (error_.empty() && !pending_.empty() && text != end) {
        const std::size_t before = pending_.size();
        const std::size_t more =
            std::min(static_cast<std::size_t>(end - text), std::max(before, kLeastJoined));
        pending_.append(text, more);
        const std::size_t used = steps(pending_.data(), pending_.size());
        if (used >= before) {
            text += used - before;
            pending_.clear();
        } else {
            text += more;
            pending_.erase(0, used);
        }
    }
    if (!error_.empty()) return;
    if (pending_.empty()) {
        text += steps(text, static_cast<std::size_t>(end - text));
        pending_.assign(text, end);
    }
    if (error_.empty() && pending_.size() > kLongest) {
        error_ = "an event of more than 64 MiB";
        error_position_ = consumed_;
    }
}

// Steps for as long as they are complete in the text given, and how much of it they took.
std::size_t EventScanner::steps(const char* text, std::size_t size) {
    JsonCursor cursor(text, text + size);
    const char* done = text;
    try {
        while (step(cursor)) done = cursor.position();
    } catch (const Malformed& malformed) {
        error_ = malformed.what();
        error_position_ = consumed_ + static_cast<std::uint64_t>(cursor.position() - text);
    }
    const auto used = static_cast<std::size_t>(done - text);
    consumed_ += used;
    return used;
}

void EventScanner::finish() {
    truncated_ = error_.empty() && state_ != State::end;
    pending_.clear();
    pending_.shrink_to_fit();
}

// One step forward. False: what is left does not hold a complete step.
bool EventScanner::step(JsonCursor& cursor) {
    if (!cursor.skip_space()) return false;
    switch (state_) {
        case State::start:
            if (cursor.peek() == '\xEF' || cursor.peek() == '\xBB' ||
                cursor.peek() == '\xBF') {  // a byte order mark
                cursor.advance();
                return true;
            }
            bare_list_ = cursor.peek() == '[';
            if (!bare_list_ && cursor.peek() != '{') throw Malformed("an object or a list was expected");
            state_ = bare_list_ ? State::events : State::top;
            cursor.advance();
            return true;
        case State::top:
            return top_field(cursor);
        case State::events:
            if (cursor.peek() == ',') {
                cursor.advance();
                return true;
            }
            if (cursor.peek() == ']') {
                cursor.advance();
                state_ = bare_list_ ? State::end : State::top;
                return true;
            }
            return event(cursor);
        case State::end:
            throw Malformed("text after the end of the trace");
    }
    return false;
}

bool EventScanner::top_field(JsonCursor& cursor) {
    if (cursor.peek() == ',') {
        cursor.advance();
        return true;
    }
    if (cursor.peek() == '}') {
        cursor.advance();
        state_ = State::end;
        return true;
    }
    JsonString key;
    if (!cursor.string(key) || !cursor.skip_space()) return false;
    if (cursor.peek() != ':') throw Malformed("a ':' was expected");
    cursor.advance();
    if (!cursor.skip_space()) return false;
    if (key.raw == "traceEvents" && cursor.peek() == '[') {
        cursor.advance();
        state_ = State::events;
        saw_events_ = true;
        return true;
    }
    std::string_view value;
    if (!cursor.value(value)) return false;
    if (value.size() <= kLongestHeaderField && header_bytes_ + value.size() <= kMostHeaderBytes) {
        header_bytes_ += value.size();
        header_.emplace_back(key.escaped ? unescape(key.raw) : std::string(key.raw), std::string(value));
    }
    return true;
}

bool EventScanner::event(JsonCursor& cursor) {
    const bool object = cursor.peek() == '{';
    std::string_view text;
    if (!cursor.value(text)) return false;
    ++events_;
    if (object) {
        saw_events_ = true;
        keep(text);
    } else {
        ++unusable_;
    }
    return true;
}

void EventScanner::keep(std::string_view text) {
    std::string_view start, duration, process, thread, arguments_text, name;
    Category category = Category::skipped;
    char phase = 0;
    visit_members(text, [&](std::string_view key, std::string_view value) {
        if (key == "cat") {
            if (is_string(value)) category = category_of(as_string(value).raw);
            if (category == Category::skipped && is_string(value)) count_skipped(as_string(value).raw);
            if (category == Category::operator_ && !launches_ && !may_have_stack(text))
                category = Category::skipped;
            return category != Category::skipped;
        } else if (key == "ph") {
            if (value.size() == 3) phase = value[1];
        } else if (key == "name") {
            name = value;
        } else if (key == "ts") {
            start = value;
        } else if (key == "dur") {
            duration = value;
        } else if (key == "pid") {
            process = value;
        } else if (key == "tid") {
            thread = value;
        } else if (key == "args") {
            arguments_text = value;
        }
        return true;
    });
    // Only complete events have a duration; flow arrows and counters share their categories.
    const bool timed = phase == 'X' || (phase == 'i' && category == Category::event_record);
    if (category == Category::skipped) return;
    if (!timed) {
        // A range whose end is another event: no writer of these categories makes them.
        if (phase == 'B' && category < Category::operator_) ++unusable_;
        return;
    }

    if (category >= Category::operator_) {
        const std::int64_t start_ns = decimal(start, 3);
        if (start_ns == kMissing || !is_string(name)) return;
        const JsonString function =
            category == Category::function ? as_string(name) : stack_of(arguments_text);
        if (!function.raw.empty() && !function.raw.starts_with(kBuiltIn)) {
            functions_.name.push_back(function_names_.of(function));
            functions_.start_ns.push_back(start_ns);
            functions_.duration_ns.push_back(decimal(duration, 3));
            functions_.process.push_back(place_of(process).number);
            functions_.thread.push_back(decimal(thread, 0));
        }
        if (category == Category::function || !launches_) return;
        keep_operator(name, arguments_text);  // first: it throws where these are malformed
        operators_.start_ns.push_back(start_ns);
        operators_.duration_ns.push_back(decimal(duration, 3));
        operators_.process.push_back(place_of(process).number);
        operators_.thread.push_back(decimal(thread, 0));
        return;
    }
    Arguments arguments;
    if (!arguments_text.empty() && arguments_text.front() == '{') {
        visit_members(arguments_text, [&](std::string_view key, std::string_view value) {
            if (key == "cuda_sync_kind") {
                if (is_string(value)) arguments.sync_kind = as_string(value);
                return true;
            }
            for (const auto& argument : kIntegerArguments) {
                if (argument.key == key) {
                    arguments.*argument.field = decimal(value, 0);
                    return true;
                }
            }
            if (launches_) launch_argument(key, value, arguments);
            return true;
        });
    }
    const std::int64_t start_ns = decimal(start, 3);
    if (start_ns == kMissing) {
        ++unusable_;
        return;
    }
    columns_.category.push_back(static_cast<std::uint8_t>(category));
    columns_.start_ns.push_back(start_ns);
    columns_.duration_ns.push_back(duration.empty() ? kMissing : decimal(duration, 3));
    const Place place = place_of(process);
    columns_.process.push_back(place.number);
    columns_.place.push_back(place.text.raw.empty() ? -1 : names_.of(place.text));
    columns_.thread.push_back(decimal(thread, 0));
    columns_.bytes.push_back(arguments.bytes);
    columns_.device.push_back(arguments.device);
    columns_.context.push_back(arguments.context);
    columns_.stream.push_back(arguments.stream);
    columns_.correlation.push_back(arguments.correlation);
    columns_.graph_node.push_back(arguments.graph_node);
    columns_.waited_stream.push_back(arguments.waited_stream);
    columns_.waited_event.push_back(arguments.waited_event);
    columns_.waited_correlation.push_back(arguments.waited_correlation);
    columns_.copy_kind.push_back(arguments.copy_kind);
    columns_.name.push_back(is_string(name) ? names_.of(as_string(name)) : -1);
    columns_.sync_kind.push_back(arguments.sync_kind.raw.empty() ? -1 : names_.of(arguments.sync_kind));
    if ((category == Category::kernel || category == Category::annotation) &&
        name.find(kCollective) != std::string_view::npos && !arguments_text.empty() &&
        arguments_text.front() == '{')
        collectives_.emplace_back(columns_.category.size() - 1, collective_arguments(arguments_text));
    if (!launches_) return;
    for (std::size_t side = 0; side < arguments.grid.size(); ++side) {
        columns_.grid[side].push_back(arguments.grid[side]);
        columns_.block[side].push_back(arguments.block[side]);
    }
    columns_.registers.push_back(arguments.registers);
    columns_.shared_bytes.push_back(arguments.shared_bytes);
    columns_.external.push_back(arguments.external);
}

// What is passed over must not look as if it were not there.
void EventScanner::count_skipped(std::string_view category) {
    const auto begins = [&](std::string_view with) { return category.starts_with(with); };
    accelerator_events_ += begins("mtia_") || begins("hpu_") || begins("glow_");
    foreign_calls_ += begins("xpu_runtime") || begins("xpu_driver") || begins("privateuse1_");
}

void EventScanner::keep_operator(std::string_view name, std::string_view arguments) {
    std::array<std::string_view, 4> parts{name};
    std::int64_t external = kMissing;
    if (!arguments.empty() && arguments.front() == '{') {
        visit_members(arguments, [&](std::string_view key, std::string_view value) {
            if (key == "External id" || key == "external id") external = decimal(value, 0);
            for (std::size_t part = 0; part < kInputs.size(); ++part) {
                if (key == kInputs[part][0] || key == kInputs[part][1]) parts[part + 1] = value;
            }
            return true;
        });
    }
    std::string together;
    for (const auto part : parts) together.append(part).push_back('\0');
    const auto [entry, added] =
        signature_ids_.try_emplace(std::move(together), static_cast<std::int32_t>(signatures_.size()));
    if (added) {
        Signature& signature = signatures_.emplace_back();
        std::copy(parts.begin(), parts.end(), signature.begin());
    }
    operators_.external.push_back(external);
    operators_.signature.push_back(entry->second);
}

std::int32_t EventScanner::Names::of(const JsonString& name) {
    std::string text = name.escaped ? unescape(name.raw) : std::string(name.raw);
    const auto [entry, added] = ids.try_emplace(std::move(text), static_cast<std::int32_t>(texts.size()));
    if (added) texts.push_back(entry->first);
    return entry->second;
}

}  // namespace busfare
