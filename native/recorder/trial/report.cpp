#include "report.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

namespace busfare::trial {
namespace {

struct Row {
    char name[24];
    std::atomic<uint64_t> value;
};
constexpr const char* kNames[kCounts] = {
    "first_call_ns",   "first_work_ns", "last_call_ns",  "pageable_copies",   "pageable_bytes",
    "changed_copies",  "changed_bytes", "pinned_ranges", "pinned_bytes",      "pinning_ns",
    "staged_copies",   "staged_bytes",  "kept small",    "small bytes",       "kept first-use",
    "first-use bytes", "kept capture",  "capture bytes", "kept host-visible", "host-visible bytes",
    "kept stack",      "stack bytes",   "kept refused",  "refused bytes",     "kept limit",
    "limit bytes",     "kept brief",    "brief bytes",
};

Row* named(Row* rows) {
    for (size_t row = 0; row < kCounts; ++row) std::strncpy(rows[row].name, kNames[row], sizeof rows->name);
    return rows;
}

/// Rows in the file of this process, or in private memory if the file cannot be created.
Row* opened() {
    static Row fallback[kCounts];
    const char* const prefix = std::getenv("BUSFARE_TRY_REPORT");
    if (!prefix || !*prefix) return named(fallback);
    const auto path = std::string(prefix) + "." + std::to_string(getpid()) + "." + std::to_string(now_ns());
    const int file = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    void* mapped = MAP_FAILED;
    if (ftruncate(file, sizeof fallback) == 0)
        mapped = mmap(nullptr, sizeof fallback, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return named(mapped == MAP_FAILED ? fallback : static_cast<Row*>(mapped));
}

std::atomic<Row*> g_rows{nullptr};

}  // namespace

std::atomic<uint64_t>& counted(Count what) {
    Row* rows = g_rows.load(std::memory_order_acquire);
    if (!rows) {
        static Row* const first = opened();
        g_rows.store(first, std::memory_order_release);
        rows = first;
    }
    return rows[what].value;
}

uint64_t now_ns() {
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(time.tv_nsec);
}

void note_call(Count first) {
    const uint64_t now = now_ns();
    if (!counted(first).load(std::memory_order_relaxed)) counted(first) = now;
    counted(kLastCall).store(now, std::memory_order_relaxed);
}

void report_of_child() {
    if (g_rows.load()) g_rows = opened();
}

}  // namespace busfare::trial
