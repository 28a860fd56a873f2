#pragma once

#include <cstdint>
#include <functional>

#include "journal.h"
#include "note.h"

// What libbusfare_storage.so, which stands in front of the program's reads and writes of files, hands to the
// recorder.

extern "C" {

/// A read or a write of a file, or a mapping of one.
struct BusfareStorage {
    const char* path;  ///< stays where it is; null: not known
    uint64_t start;    ///< wall clock, ns
    uint64_t end;
    uint64_t bytes;    ///< that came or went
    uint64_t address;  ///< of the first of them in memory
    uint32_t thread;
    uint32_t kind;  ///< a `busfare::recorder::StorageKind`
};

struct BusfareStorageSink {
    void (*operation)(const BusfareStorage*);
};
}

namespace busfare::recorder {

/// Numbers are part of the file format.
enum class StorageKind : uint32_t {
    kRead = 1,
    kWrite = 2,
    kCufileRead = 3,
    kCufileWrite = 4,
    kMapped = 5,   ///< a file became memory
    kUnmapped = 6  ///< what was mapped there, or a part of it, is no more
};

/// From now on the library's operations, where it is in the program, go to the notes: first those that it
/// kept from before.
void begin_storage(std::function<void()> wake_writer);

/// How many of those were too many to be kept, once.
uint64_t lost_before_begin();

/// The row of a noted read or write.
void write_storage(Journal& journal, const Note& note);

}  // namespace busfare::recorder
