// NCCL's calls as the program makes them: each is passed on, and noted. Needs no NCCL to be built.

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string>
#include <unordered_map>

#include "next.h"

namespace busfare::messages {
namespace {

using Comm = void*;
using Stream = void*;

/// ncclUniqueId, which is passed by value.
struct UniqueId {
    char bytes[128];
};

constexpr int kSystemError = 2;  // ncclSystemError; only where no NCCL is there at all
constexpr uint64_t kTypeBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};  // by ncclDataType_t

struct Facts {
    uint64_t hash = 0;  ///< the same in all ranks
    int size = 0;
    uint64_t children = 0;
};
struct All {
    std::mutex mutex;
    std::unordered_map<Comm, Facts> facts;
};
All& all() {
    static auto* const all = new All;
    return *all;
}

/// The calls of a group have its number; it launches at its outermost end.
thread_local int t_depth = 0;
thread_local uint64_t t_group = 0;
thread_local bool t_used = false;
std::atomic<uint64_t> g_groups{0};

void add(Comm comm, uint64_t hash, int rank, int size) {
    if (!comm) return;
    char name[32];
    std::snprintf(name, sizeof name, "nccl %016lx", hash);
    {
        const std::lock_guard lock(all().mutex);
        all().facts[comm] = {hash, size, 0};
    }
    communicators::forget(reinterpret_cast<uint64_t>(comm));
    communicators::add(reinterpret_cast<uint64_t>(comm), name, "", rank, size);
}

/// Of `parent`, with those that gave the same `part`; null in members that get none of it, which count it
/// too.
void add_child(Comm parent, Comm comm, int part) {
    uint64_t from[3] = {};
    {
        const std::lock_guard lock(all().mutex);
        Facts& facts = all().facts[parent];
        from[0] = facts.hash;
        from[1] = facts.children++;
        from[2] = static_cast<uint64_t>(part);
    }
    if (!comm) return;
    static auto* const rank_of = next<int(Comm, int*)>("ncclCommUserRank", "pncclCommUserRank");
    static auto* const size_of = next<int(Comm, int*)>("ncclCommCount", "pncclCommCount");
    int rank = -1, size = 0;
    // Of a communicator that is still being made they are not known: it then has no place, and matches by
    // order.
    if (!rank_of || rank_of(comm, &rank) != 0) rank = -1;
    if (!size_of || size_of(comm, &size) != 0) size = 0;
    add(comm, hash_of(from, sizeof from), rank, size);
}

void add_all(const Comm* comms, int size) {
    const uint64_t seed[] = {now(), static_cast<uint64_t>(getpid())};
    for (int rank = 0; rank < size; ++rank) add(comms[rank], hash_of(seed, sizeof seed), rank, size);
}

bool went_well(int result) {
    return result == 0 || result == 7;  // ncclSuccess, ncclInProgress
}

int size_of(Comm comm) {
    const std::lock_guard lock(all().mutex);
    const auto entry = all().facts.find(comm);
    return entry == all().facts.end() ? 0 : entry->second.size;
}

void note(const Call& call, Comm comm, size_t count, int type, int peer = -1, bool per_rank = false) {
    const bool has_size = type >= 0 && static_cast<size_t>(type) < sizeof kTypeBytes / sizeof *kTypeBytes;
    const uint64_t bytes = has_size ? uint64_t{count} * kTypeBytes[type] : 0;
    t_used = true;
    call.note(communicators::number(reinterpret_cast<uint64_t>(comm)),
              per_rank ? bytes * static_cast<uint64_t>(size_of(comm)) : bytes, peer, -1,
              t_depth ? t_group : 0);
}

void forget(Comm comm) {
    communicators::forget(reinterpret_cast<uint64_t>(comm));
    const std::lock_guard lock(all().mutex);
    all().facts.erase(comm);
}

}  // namespace
}  // namespace busfare::messages

using namespace busfare::messages;

#define EXPORTED extern "C" [[gnu::visibility("default")]] int
#define BEHIND(NAME, PARAMETERS)                                                   \
    static auto* const behind = next<int PARAMETERS>("nccl" #NAME, "pnccl" #NAME); \
    if (!behind) return kSystemError

// ncclNAME(PARAMETERS), noted.
#define NCCL(NAME, PARAMETERS, ARGUMENTS, NOTE)       \
    EXPORTED nccl##NAME PARAMETERS {                  \
        BEHIND(NAME, PARAMETERS);                     \
        if (!Call::wanted()) return behind ARGUMENTS; \
        Call call("nccl" #NAME);                      \
        call.ended(behind ARGUMENTS);                 \
        if (went_well(call.result())) NOTE;           \
        return call.result();                         \
    }
// The same, and its variant that takes a configuration.
#define BARE(...) __VA_ARGS__
#define COLLECTIVE(NAME, PARAMETERS, ARGUMENTS, NOTE)     \
    NCCL(NAME, (BARE PARAMETERS), (BARE ARGUMENTS), NOTE) \
    NCCL(NAME##Config, (BARE PARAMETERS, const void* config), (BARE ARGUMENTS, config), NOTE)
// A communicator is made: NOTE is done where that went well.
#define MAKES(NAME, PARAMETERS, ARGUMENTS, NOTE) \
    EXPORTED nccl##NAME PARAMETERS {             \
        BEHIND(NAME, PARAMETERS);                \
        begin();                                 \
        const int result = behind ARGUMENTS;     \
        if (sink() && went_well(result)) NOTE;   \
        return result;                           \
    }

COLLECTIVE(AllReduce, (const void* s, void* r, size_t n, int d, int o, Comm c, Stream q),
           (s, r, n, d, o, c, q), note(call, c, n, d))
COLLECTIVE(AllGather, (const void* s, void* r, size_t n, int d, Comm c, Stream q), (s, r, n, d, c, q),
           note(call, c, n, d, -1, true))
COLLECTIVE(ReduceScatter, (const void* s, void* r, size_t n, int d, int o, Comm c, Stream q),
           (s, r, n, d, o, c, q), note(call, c, n, d, -1, true))
COLLECTIVE(Broadcast, (const void* s, void* r, size_t n, int d, int root, Comm c, Stream q),
           (s, r, n, d, root, c, q), note(call, c, n, d))
COLLECTIVE(Reduce, (const void* s, void* r, size_t n, int d, int o, int root, Comm c, Stream q),
           (s, r, n, d, o, root, c, q), note(call, c, n, d))
COLLECTIVE(AlltoAll, (const void* s, void* r, size_t n, int d, Comm c, Stream q), (s, r, n, d, c, q),
           note(call, c, n, d, -1, true))
COLLECTIVE(Gather, (const void* s, void* r, size_t n, int d, int root, Comm c, Stream q),
           (s, r, n, d, root, c, q), note(call, c, n, d, -1, true))
COLLECTIVE(Scatter, (const void* s, void* r, size_t n, int d, int root, Comm c, Stream q),
           (s, r, n, d, root, c, q), note(call, c, n, d, -1, true))
NCCL(Bcast, (void* b, size_t n, int d, int root, Comm c, Stream q), (b, n, d, root, c, q),
     note(call, c, n, d))
NCCL(Send, (const void* s, size_t n, int d, int peer, Comm c, Stream q), (s, n, d, peer, c, q),
     note(call, c, n, d, peer))
NCCL(Recv, (void* r, size_t n, int d, int peer, Comm c, Stream q), (r, n, d, peer, c, q),
     note(call, c, n, d, peer))

EXPORTED ncclGroupStart() {
    BEHIND(GroupStart, ());
    if (Call::wanted() && t_depth++ == 0) {
        t_group = g_groups.fetch_add(1, std::memory_order_relaxed) + 1;
        t_used = false;
    }
    return behind();
}
EXPORTED ncclGroupEnd() {
    BEHIND(GroupEnd, ());
    if (!Call::wanted() || t_depth == 0 || --t_depth > 0 || !t_used) return behind();
    Call call("ncclGroupEnd");
    call.ended(behind());
    call.note(0, 0, -1, -1, t_group);
    return call.result();
}

MAKES(CommInitRank, (Comm * c, int n, UniqueId id, int rank), (c, n, id, rank),
      add(*c, hash_of(&id, sizeof id), rank, n))
MAKES(CommInitRankConfig, (Comm * c, int n, UniqueId id, int rank, void* config), (c, n, id, rank, config),
      add(*c, hash_of(&id, sizeof id), rank, n))
MAKES(CommInitRankScalable, (Comm * c, int n, int rank, int ids, UniqueId* id, void* config),
      (c, n, rank, ids, id, config), add(*c, hash_of(id, sizeof *id), rank, n))
MAKES(CommInitAll, (Comm * c, int n, const int* devices), (c, n, devices), add_all(c, n))
MAKES(CommSplit, (Comm c, int color, int key, Comm* made, void* config), (c, color, key, made, config),
      add_child(c, *made, color))
MAKES(CommShrink, (Comm c, int* left, int count, Comm* made, void* config, int flags),
      (c, left, count, made, config, flags), add_child(c, *made, 0))

#define ENDS(NAME)                \
    EXPORTED nccl##NAME(Comm c) { \
        BEHIND(NAME, (Comm c));   \
        if (sink()) forget(c);    \
        return behind(c);         \
    }
ENDS(CommDestroy)
ENDS(CommAbort)
