#include "journal.h"

#include <cxxabi.h>

#include <cstdlib>
#include <cstring>

namespace busfare::recorder {

Journal::Journal() {
    for (size_t table = 1; table < kTableCount; ++table) {
        tables_[table] = std::make_unique<Rows>(static_cast<TableId>(table));
    }
}

bool Journal::open(const std::string& pattern, const FileHeader& header) {
    failed_ = !file_.create(pattern) || !file_.append(encode_file_header(header));
    return !failed_;
}

void Journal::append(TableId table, std::span<const uint64_t> values) {
    Rows& held = rows(table);
    held.append(values);
    if (held.full()) write(table);
}

void Journal::write(TableId table) {
    Rows& held = rows(table);
    if (held.count() == 0) return;
    // A row never reaches the file before the strings it names.
    if (table != TableId::kStrings) write(TableId::kStrings);
    const bool strings = table == TableId::kStrings;
    encode_chunk(held, sequence_, strings ? &new_text_ : nullptr, chunk_);
    if (!failed_) {
        failed_ = !file_.append(chunk_);
        sequence_ += 1;
        rows_written_ += held.count();
    }
    held.clear();
    if (strings) new_text_.clear();
}

bool Journal::flush() {
    for (size_t table = 1; table < kTableCount; ++table) write(static_cast<TableId>(table));
    return !failed_;
}

uint64_t Journal::string(std::string_view text) {
    if (text.empty()) return 0;
    if (const auto entry = numbers_.find(std::string(text)); entry != numbers_.end()) return entry->second;
    if (string_bytes_ + text.size() > kStringBytes) forget_strings();
    const uint64_t number = next_string_++;
    numbers_.emplace(text, number);
    string_bytes_ += text.size() + 64;
    const uint64_t row[] = {number, text.size()};
    new_text_ += text;
    append(TableId::kStrings, row);
    return number;
}

uint64_t Journal::string(const char* pointer) {
    if (!pointer || !*pointer) return 0;
    if (const auto entry = pointers_.find(pointer); entry != pointers_.end()) {
        if (std::strcmp(entry->second.text->c_str(), pointer) == 0) return entry->second.number;
    }
    const uint64_t number = string(std::string_view(pointer));
    // unordered_map keeps its elements in place, so the key's address stays good until the strings are
    // forgotten.
    const auto stored = numbers_.find(std::string(pointer));
    if (pointers_.size() * 64 > kStringBytes) pointers_.clear();
    pointers_[pointer] = {number, &stored->first};
    return number;
}

uint64_t Journal::kernel_name(const char* mangled) {
    const uint64_t number = string(mangled);
    if (number == 0 || !demangled_.try_emplace(number, true).second) return number;
    int status = 0;
    if (char* readable = abi::__cxa_demangle(mangled, nullptr, nullptr, &status); readable) {
        const uint64_t shown = string(std::string_view(readable));
        std::free(readable);
        append(TableId::kDemangled, {number, shown});
    }
    return number;
}

void Journal::fact(std::string_view key, std::string_view value) {
    const uint64_t key_number = string(key);
    const uint64_t value_number = string(value);
    append(TableId::kFacts, {key_number, value_number});
}

void Journal::finish(EndReason reason, uint64_t trace_clock_ns) {
    flush();
    append(TableId::kEnd, {static_cast<uint64_t>(reason), trace_clock_ns, rows_written_, sequence_});
    flush();
    file_.close();
}

void Journal::forget_strings() {
    numbers_.clear();
    pointers_.clear();
    demangled_.clear();
    string_bytes_ = 0;
}

}  // namespace busfare::recorder
