#include "storage.h"

#include <dlfcn.h>

#include <atomic>

namespace busfare::recorder {
namespace {

std::atomic<const Notes*> g_notes{nullptr};
std::atomic<uint64_t> g_lost{0};

void push(const BusfareStorage* operation) {
    Note note{};
    note.what = Note::What::kStorage;
    note.start = operation->start;
    note.end = operation->end;
    note.correlation = operation->thread;
    note.number = static_cast<uint16_t>(operation->kind);
    note.one = operation->address;
    note.two = reinterpret_cast<uint64_t>(operation->path);
    note.three = operation->bytes;
    g_notes.load(std::memory_order_relaxed)->push(note);
}

constexpr BusfareStorageSink kSink{push};

}  // namespace

void begin_storage(std::function<void()> wake_writer) {
    using Begin = uint64_t(const BusfareStorageSink*);
    auto* const begin = reinterpret_cast<Begin*>(dlsym(RTLD_DEFAULT, "busfare_storage_begin"));
    if (!begin) return;
    g_notes = new Notes(std::move(wake_writer));  // never destroyed: reads may come to the very end
    g_lost = begin(&kSink);
}

uint64_t lost_before_begin() {
    return g_lost.exchange(0);
}

void write_storage(Journal& journal, const Note& note) {
    const uint64_t path = journal.string(reinterpret_cast<const char*>(note.two));
    journal.append(TableId::kStorage, {note.start, note.end > note.start ? note.end - note.start : 0,
                                       note.correlation, note.number, note.three, note.one, path});
}

}  // namespace busfare::recorder
