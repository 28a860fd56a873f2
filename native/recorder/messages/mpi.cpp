// MPI's calls as the program makes them: each is passed on, and noted. Needs no MPI to be built: what its
// implementations differ in is chosen when the program starts MPI.

#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "next.h"

namespace busfare::messages {
namespace {

/// A handle, as it is passed: a pointer in Open MPI; in MPICH an int, whose upper half of the register means
/// nothing.
using Handle = void*;

constexpr int kNoLibrary = 15;  // MPI_ERR_OTHER; only where no MPI is there at all
constexpr int kMostListed = 1024;

/// What differs between implementations.
struct Library {
    bool supported = false;
    bool pointers = false;
    Handle world{}, byte{};
    void* ignored = nullptr;  ///< MPI_STATUS_IGNORE and MPI_STATUSES_IGNORE
    const void* in_place = nullptr;
    uint64_t no_request = 0, no_comm = 0;
    size_t status_bytes = 0, source = 0, tag = 0;

    int (*type_size)(Handle, int*) = nullptr;
    int (*comm_rank)(Handle, int*) = nullptr;
    int (*comm_size)(Handle, int*) = nullptr;
    int (*comm_group)(Handle, Handle*) = nullptr;
    int (*comm_test_inter)(Handle, int*) = nullptr;
    int (*group_translate)(Handle, int, const int*, Handle, int*) = nullptr;
    int (*group_free)(Handle*) = nullptr;
    int (*get_count)(const void*, Handle, int*) = nullptr;

    Library();
};

template <typename Function>
bool find(Function*& function, const char* name) {
    function = next<Function>(name, name);
    return function;
}

Library::Library() {
    int (*version)(char*, int*) = nullptr;
    if (!find(version, "PMPI_Get_library_version") || !find(type_size, "PMPI_Type_size") ||
        !find(comm_rank, "PMPI_Comm_rank") || !find(comm_size, "PMPI_Comm_size") ||
        !find(comm_group, "PMPI_Comm_group") || !find(comm_test_inter, "PMPI_Comm_test_inter") ||
        !find(group_translate, "PMPI_Group_translate_ranks") || !find(group_free, "PMPI_Group_free") ||
        !find(get_count, "PMPI_Get_count"))
        return;
    std::vector<char> text(8193);  // MPI_MAX_LIBRARY_VERSION_STRING of MPICH and one
    int length = 0;
    if (version(text.data(), &length) != 0) return;
    const std::string name_and_version(text.data());
    const auto is = [&](const char* name) { return name_and_version.find(name) != std::string::npos; };
    if (is("Open MPI")) {
        pointers = true;
        world = object_of("ompi_mpi_comm_world");
        byte = object_of("ompi_mpi_byte");
        no_request = reinterpret_cast<uint64_t>(object_of("ompi_request_null"));
        no_comm = reinterpret_cast<uint64_t>(object_of("ompi_mpi_comm_null"));
        in_place = reinterpret_cast<const void*>(1);
        status_bytes = 24;
        source = 0;
        tag = 4;
        supported = world && byte && no_request;
    } else if (is("MPICH") || is("MVAPICH") || is("Intel(R) MPI")) {  // of one binary interface since 2014
        world = reinterpret_cast<Handle>(0x44000000);
        byte = reinterpret_cast<Handle>(0x4c00010d);
        no_request = 0x2c000000;
        no_comm = 0x04000000;
        ignored = reinterpret_cast<void*>(1);
        in_place = reinterpret_cast<const void*>(-1);
        status_bytes = 20;
        source = 8;
        tag = 12;
        supported = true;
    }
}

const Library& mpi() {
    static const Library* const library = new Library;
    return *library;
}

uint64_t value(Handle handle) {
    const auto whole = reinterpret_cast<uint64_t>(handle);
    return mpi().pointers ? whole : whole & 0xFFFFFFFFu;
}

Handle loaded(const void* handles, size_t index = 0) {
    if (mpi().pointers) return static_cast<const Handle*>(handles)[index];
    return reinterpret_cast<Handle>(uint64_t{static_cast<const uint32_t*>(handles)[index]});
}

/// "0-3,5" of 0, 1, 2, 3, 5.
std::string ranges(const std::vector<int>& ranks) {
    std::string text;
    for (size_t begin = 0, end = 0; begin < ranks.size(); begin = end) {
        for (end = begin + 1; end < ranks.size() && ranks[end] == ranks[end - 1] + 1;) ++end;
        text.append(begin > 0 ? "," : "").append(std::to_string(ranks[begin]));
        if (end - begin > 1) text.append("-").append(std::to_string(ranks[end - 1]));
    }
    return text;
}

/// Ranks of MPI_COMM_WORLD that are members of `comm`; empty where they cannot be had.
std::vector<int> members_of(Handle comm, int size) {
    Handle group{}, all{};
    std::vector<int> places(static_cast<size_t>(size)), ranks(places.size());
    for (size_t place = 0; place < places.size(); ++place) places[place] = static_cast<int>(place);
    if (mpi().comm_group(comm, &group) != 0) return {};
    const bool done = mpi().comm_group(mpi().world, &all) == 0 &&
                      mpi().group_translate(group, size, places.data(), all, ranks.data()) == 0;
    if (all) mpi().group_free(&all);
    mpi().group_free(&group);
    return done ? ranks : std::vector<int>{};
}

/// Its members make communicators in one order: those of the same members are told apart by counting them.
uint32_t add(Handle comm) {
    static std::mutex mutex;
    static auto* const made = new std::map<std::string, int>;
    int inter = 0, place = 0, size = 0;
    if (mpi().comm_test_inter(comm, &inter) != 0 || mpi().comm_rank(comm, &place) != 0 ||
        mpi().comm_size(comm, &size) != 0)
        return 0;
    const std::vector<int> ranks = members_of(comm, size);
    std::string members, name = inter ? "" : value(comm) == value(mpi().world) ? "MPI_COMM_WORLD" : "";
    if (name.empty() && !inter && !ranks.empty()) {
        name.append("ranks ").append(ranges(ranks));
        if (name.size() > 80) {
            char text[40];
            std::snprintf(text, sizeof text, "%d ranks %016lx", size, hash_of(name.data(), name.size()));
            name = text;
        }
        const std::lock_guard lock(mutex);
        if (const int count = ++(*made)[name]; count > 1) name.append(" #").append(std::to_string(count));
    }
    for (size_t i = 0; size <= kMostListed && i < ranks.size(); ++i)
        members.append(i ? "," : "").append(std::to_string(ranks[i]));
    return communicators::add(value(comm), name.c_str(), members.c_str(), place, inter ? 0 : size);
}

uint32_t number(Handle comm) {
    const uint32_t existing = communicators::number(value(comm));
    return existing ? existing : add(comm);
}

/// A communicator that a call just made, or none.
void made(const void* comm) {
    const Handle handle = loaded(comm);
    int size = 0;
    if (value(handle) == mpi().no_comm || mpi().comm_size(handle, &size) != 0) return;
    communicators::forget(value(handle));
    add(handle);
}

uint64_t bytes(int64_t count, Handle type) {
    int type_bytes = 0;
    if (count <= 0 || mpi().type_size(type, &type_bytes) != 0 || type_bytes < 0) return 0;
    return static_cast<uint64_t>(count) * static_cast<uint64_t>(type_bytes);
}

int size_of(Handle comm) {
    int size = 0;
    return mpi().comm_size(comm, &size) == 0 ? size : 0;
}

int place_in(Handle comm) {
    int place = -1;
    mpi().comm_rank(comm, &place);
    return place;
}

uint64_t sum(const int* counts, Handle comm, Handle type) {
    int64_t all = 0;
    for (int rank = 0, size = size_of(comm); counts && rank < size; ++rank) all += counts[rank];
    return bytes(all, type);
}

/// What a rank receives, by the status of the call.
struct Received {
    int peer = -1, tag = -1;
    uint64_t bytes = 0;

    Received(const void* status, Handle type) {
        const auto* const field = static_cast<const char*>(status);
        int count = 0;
        std::memcpy(&peer, field + mpi().source, sizeof peer);
        std::memcpy(&tag, field + mpi().tag, sizeof tag);
        if (mpi().get_count(status, type, &count) == 0) bytes = messages::bytes(count, type);
    }
};

/// A status of our own where the program wants none.
class Status {
  public:
    explicit Status(void*& given) {
        if (given == mpi().ignored) given = mine_;
        used_ = given;
    }
    const void* get() const { return used_; }

  private:
    alignas(16) char mine_[64]{};
    void* used_;
};

/// Requests before the call, which takes them away; and a status of each.
class Requests {
  public:
    Requests(int count, const void* requests, void*& statuses) {
        const size_t size = count > 0 ? static_cast<size_t>(count) : 0;
        handles_.reserve(size);
        for (size_t i = 0; i < size; ++i) handles_.push_back(value(loaded(requests, i)));
        if (statuses == mpi().ignored) {
            mine_.resize(size * mpi().status_bytes + 16);
            statuses = mine_.data();
        }
        statuses_ = static_cast<const char*>(statuses);
    }
    /// Request `index` has ended, as status `place` says.
    void ended(const Call& call, int index, int place) const {
        if (index < 0 || static_cast<size_t>(index) >= handles_.size()) return;
        const uint64_t request = handles_[static_cast<size_t>(index)];
        if (request == mpi().no_request) return;
        const Received got(statuses_ + static_cast<size_t>(place) * mpi().status_bytes, mpi().byte);
        call.note(0, got.bytes, got.peer, got.tag, request);
    }
    void all_ended(const Call& call) const {
        for (int i = 0; i < static_cast<int>(handles_.size()); ++i) ended(call, i, i);
    }

  private:
    std::vector<uint64_t> handles_;
    std::vector<char> mine_;
    const char* statuses_ = nullptr;
};

void posted(const Call& call, Handle comm, int64_t count, Handle type, int peer, int tag,
            const void* request) {
    call.note(number(comm), bytes(count, type), peer, tag, request ? value(loaded(request)) : 0);
}

void started(const Call& call, int count, const void* requests) {
    for (int i = 0; i < count; ++i) call.note(0, 0, -1, -1, value(loaded(requests, static_cast<size_t>(i))));
}

void collective(const Call& call, Handle comm, uint64_t bytes, const void* request = nullptr) {
    call.note(number(comm), bytes, -1, -1, request ? value(loaded(request)) : 0);
}

void received(const Call& call, Handle comm, Handle type, const Status& status) {
    const Received got(status.get(), type);
    call.note(number(comm), got.bytes, got.peer, got.tag);
}

void begun() {
    begin();
    if (sink() && mpi().supported) number(mpi().world);
}

/// Windows, by their handles: the communicators that they were made of.
class Windows {
  public:
    static void made(const void* window, Handle comm) {
        const std::lock_guard lock(all().mutex_);
        all().comms_[value(loaded(window))] = number(comm);
    }
    static void forget(const void* window) {
        const std::lock_guard lock(all().mutex_);
        all().comms_.erase(value(loaded(window)));
    }
    static uint32_t comm(Handle window) {
        const std::lock_guard lock(all().mutex_);
        const auto entry = all().comms_.find(value(window));
        return entry == all().comms_.end() ? 0 : entry->second;
    }

  private:
    static Windows& all() {
        static auto* const all = new Windows;
        return *all;
    }
    std::mutex mutex_;
    std::map<uint64_t, uint32_t> comms_;
};

/// `count` elements of `type` for each rank, in all.
uint64_t for_all_ranks(Handle comm, int count, Handle type) {
    return bytes(int64_t{count} * size_of(comm), type);
}

}  // namespace
}  // namespace busfare::messages

using namespace busfare::messages;

#define EXPORTED extern "C" [[gnu::visibility("default")]] int
// Open MPI's bindings for Fortran call its functions by their other name.
#define ALSO_AS_PMPI(NAME, PARAMETERS) EXPORTED PMPI_##NAME PARAMETERS __attribute__((alias("MPI_" #NAME)));

// MPI_NAME(PARAMETERS), which calls what stands behind it with ARGUMENTS; BEFORE and NOTE are ours.
#define MPI(NAME, PARAMETERS, ARGUMENTS, BEFORE, NOTE)                                 \
    EXPORTED MPI_##NAME PARAMETERS {                                                   \
        static auto* const behind = next<int PARAMETERS>("MPI_" #NAME, "PMPI_" #NAME); \
        if (!behind) return kNoLibrary;                                                \
        if (!Call::wanted() || !mpi().supported) return behind ARGUMENTS;              \
        BEFORE;                                                                        \
        Call call("MPI_" #NAME);                                                       \
        call.ended(behind ARGUMENTS);                                                  \
        if (call.result() == 0) {                                                      \
            NOTE;                                                                      \
        }                                                                              \
        return call.result();                                                          \
    }                                                                                  \
    ALSO_AS_PMPI(NAME, PARAMETERS)

#define STARTS(NAME, PARAMETERS, ARGUMENTS)                                            \
    EXPORTED MPI_##NAME PARAMETERS {                                                   \
        static auto* const behind = next<int PARAMETERS>("MPI_" #NAME, "PMPI_" #NAME); \
        if (!behind) return kNoLibrary;                                                \
        const int result = behind ARGUMENTS;                                           \
        if (result == 0) begun();                                                      \
        return result;                                                                 \
    }                                                                                  \
    ALSO_AS_PMPI(NAME, PARAMETERS)
STARTS(Init, (int* argc, char*** argv), (argc, argv))
STARTS(Init_thread, (int* argc, char*** argv, int wanted, int* given), (argc, argv, wanted, given))

// Messages: p a peer, t a tag, c a communicator, q a request.
#define POSTS(NAME, BUFFER)                                                                          \
    MPI(NAME, (BUFFER b, int n, Handle d, int p, int t, Handle c, void* q), (b, n, d, p, t, c, q), , \
        posted(call, c, n, d, p, t, q))
#define SENDS(NAME, INAME)                                                                    \
    MPI(NAME, (const void* b, int n, Handle d, int p, int t, Handle c), (b, n, d, p, t, c), , \
        posted(call, c, n, d, p, t, nullptr))                                                 \
    POSTS(INAME, const void*)                                                                 \
    POSTS(NAME##_init, const void*)
SENDS(Send, Isend)
SENDS(Ssend, Issend)
SENDS(Bsend, Ibsend)
SENDS(Rsend, Irsend)
POSTS(Irecv, void*)
POSTS(Recv_init, void*)
MPI(Recv, (void* b, int n, Handle d, int p, int t, Handle c, void* s), (b, n, d, p, t, c, s),
    Status status(s), received(call, c, d, status))
MPI(Sendrecv,
    (const void* b, int n, Handle d, int p, int t, void* rb, int rn, Handle rd, int rp, int rt, Handle c,
     void* s),
    (b, n, d, p, t, rb, rn, rd, rp, rt, c, s), Status status(s), posted(call, c, n, d, p, t, nullptr);
    received(call, c, rd, status))
MPI(Sendrecv_replace, (void* b, int n, Handle d, int p, int t, int rp, int rt, Handle c, void* s),
    (b, n, d, p, t, rp, rt, c, s), Status status(s), posted(call, c, n, d, p, t, nullptr);
    received(call, c, d, status))
MPI(Start, (void* q), (q), , started(call, 1, q))
MPI(Startall, (int n, void* q), (n, q), , started(call, n, q))

// Requests: f a flag, i an index or indices, k how many.
MPI(Wait, (void* q, void* s), (q, s), Requests held(1, q, s), held.all_ended(call))
MPI(Waitall, (int n, void* q, void* s), (n, q, s), Requests held(n, q, s), held.all_ended(call))
MPI(Waitany, (int n, void* q, int* i, void* s), (n, q, i, s), Requests held(n, q, s), held.ended(call, *i, 0))
MPI(Waitsome, (int n, void* q, int* k, int* i, void* s), (n, q, k, i, s), Requests held(n, q, s),
    for (int at = 0; at < *k; ++at) held.ended(call, i[at], at))
MPI(Test, (void* q, int* f, void* s), (q, f, s), Requests held(1, q, s), if (*f) held.all_ended(call))
MPI(Testall, (int n, void* q, int* f, void* s), (n, q, f, s), Requests held(n, q, s),
    if (*f) held.all_ended(call))
MPI(Testany, (int n, void* q, int* i, int* f, void* s), (n, q, i, f, s), Requests held(n, q, s),
    if (*f) held.ended(call, *i, 0))
MPI(Testsome, (int n, void* q, int* k, int* i, void* s), (n, q, k, i, s), Requests held(n, q, s),
    for (int at = 0; at < *k; ++at) held.ended(call, i[at], at))

// Collectives, each with the one that returns at once. Its parameters end in c; those of the other in c and
// q.
#define BARE(...) __VA_ARGS__
#define COLLECTIVE(NAME, INAME, PARAMETERS, ARGUMENTS, BYTES)                    \
    MPI(NAME, (BARE PARAMETERS), (BARE ARGUMENTS), , collective(call, c, BYTES)) \
    MPI(INAME, (BARE PARAMETERS, void* q), (BARE ARGUMENTS, q), , collective(call, c, BYTES, q))
COLLECTIVE(Barrier, Ibarrier, (Handle c), (c), 0)
COLLECTIVE(Bcast, Ibcast, (void* b, int n, Handle d, int root, Handle c), (b, n, d, root, c), bytes(n, d))
COLLECTIVE(Reduce, Ireduce, (const void* b, void* r, int n, Handle d, Handle o, int root, Handle c),
           (b, r, n, d, o, root, c), bytes(n, d))
COLLECTIVE(Allreduce, Iallreduce, (const void* b, void* r, int n, Handle d, Handle o, Handle c),
           (b, r, n, d, o, c), bytes(n, d))
COLLECTIVE(Allgather, Iallgather, (const void* b, int n, Handle d, void* r, int rn, Handle rd, Handle c),
           (b, n, d, r, rn, rd, c), for_all_ranks(c, rn, rd))
COLLECTIVE(Allgatherv, Iallgatherv,
           (const void* b, int n, Handle d, void* r, const int* rn, const int* at, Handle rd, Handle c),
           (b, n, d, r, rn, at, rd, c), sum(rn, c, rd))
COLLECTIVE(Alltoall, Ialltoall, (const void* b, int n, Handle d, void* r, int rn, Handle rd, Handle c),
           (b, n, d, r, rn, rd, c), for_all_ranks(c, rn, rd))
COLLECTIVE(Alltoallv, Ialltoallv,
           (const void* b, const int* n, const int* at, Handle d, void* r, const int* rn, const int* rat,
            Handle rd, Handle c),
           (b, n, at, d, r, rn, rat, rd, c), b == mpi().in_place ? sum(rn, c, rd) : sum(n, c, d))
COLLECTIVE(Gather, Igather, (const void* b, int n, Handle d, void* r, int rn, Handle rd, int root, Handle c),
           (b, n, d, r, rn, rd, root, c),
           place_in(c) == root ? for_all_ranks(c, rn, rd) : for_all_ranks(c, n, d))
COLLECTIVE(Gatherv, Igatherv,
           (const void* b, int n, Handle d, void* r, const int* rn, const int* at, Handle rd, int root,
            Handle c),
           (b, n, d, r, rn, at, rd, root, c), place_in(c) == root ? sum(rn, c, rd) : bytes(n, d))
COLLECTIVE(Scatter, Iscatter,
           (const void* b, int n, Handle d, void* r, int rn, Handle rd, int root, Handle c),
           (b, n, d, r, rn, rd, root, c),
           place_in(c) == root ? for_all_ranks(c, n, d) : for_all_ranks(c, rn, rd))
COLLECTIVE(Scatterv, Iscatterv,
           (const void* b, const int* n, const int* at, Handle d, void* r, int rn, Handle rd, int root,
            Handle c),
           (b, n, at, d, r, rn, rd, root, c), place_in(c) == root ? sum(n, c, d) : bytes(rn, rd))
COLLECTIVE(Reduce_scatter, Ireduce_scatter,
           (const void* b, void* r, const int* n, Handle d, Handle o, Handle c), (b, r, n, d, o, c),
           sum(n, c, d))
COLLECTIVE(Reduce_scatter_block, Ireduce_scatter_block,
           (const void* b, void* r, int n, Handle d, Handle o, Handle c), (b, r, n, d, o, c),
           for_all_ranks(c, n, d))

// Communicators.
MPI(Comm_dup, (Handle c, void* n), (c, n), , made(n))
MPI(Comm_dup_with_info, (Handle c, Handle i, void* n), (c, i, n), , made(n))
MPI(Comm_split, (Handle c, int color, int key, void* n), (c, color, key, n), , made(n))
MPI(Comm_split_type, (Handle c, int type, int key, Handle i, void* n), (c, type, key, i, n), , made(n))
MPI(Comm_create, (Handle c, Handle g, void* n), (c, g, n), , made(n))
MPI(Comm_create_group, (Handle c, Handle g, int t, void* n), (c, g, t, n), , made(n))
MPI(Cart_create, (Handle c, int d, const int* s, const int* p, int r, void* n), (c, d, s, p, r, n), , made(n))
MPI(Cart_sub, (Handle c, const int* d, void* n), (c, d, n), , made(n))
MPI(Graph_create, (Handle c, int s, const int* i, const int* e, int r, void* n), (c, s, i, e, r, n), ,
    made(n))
MPI(Dist_graph_create_adjacent,
    (Handle c, int i, const int* f, const int* w, int o, const int* t, const int* v, Handle x, int r,
     void* n),
    (c, i, f, w, o, t, v, x, r, n), , made(n))
MPI(Intercomm_merge, (Handle c, int high, void* n), (c, high, n), , made(n))
MPI(Comm_free, (void* c), (c), communicators::forget(value(loaded(c))), )
MPI(Comm_disconnect, (void* c), (c), communicators::forget(value(loaded(c))), )

// Windows: w a window, p a rank of it. A fence waits for all; what moves bytes, and other waits, are ranges
// alone.
using Aint = int64_t;
MPI(Win_create, (void* b, Aint n, int u, Handle i, Handle c, void* w), (b, n, u, i, c, w), ,
    Windows::made(w, c))
MPI(Win_create_dynamic, (Handle i, Handle c, void* w), (i, c, w), , Windows::made(w, c))
MPI(Win_allocate, (Aint n, int u, Handle i, Handle c, void* b, void* w), (n, u, i, c, b, w), ,
    Windows::made(w, c))
MPI(Win_allocate_shared, (Aint n, int u, Handle i, Handle c, void* b, void* w), (n, u, i, c, b, w), ,
    Windows::made(w, c))
MPI(Win_free, (void* w), (w), Windows::forget(w), )
#define AT_WINDOW(NAME, PARAMETERS, ARGUMENTS) \
    MPI(NAME, PARAMETERS, ARGUMENTS, , call.note(Windows::comm(w), 0))
AT_WINDOW(Win_fence, (int a, Handle w), (a, w))
AT_WINDOW(Win_lock, (int l, int p, int a, Handle w), (l, p, a, w))
AT_WINDOW(Win_unlock, (int p, Handle w), (p, w))
AT_WINDOW(Win_lock_all, (int a, Handle w), (a, w))
AT_WINDOW(Win_unlock_all, (Handle w), (w))
AT_WINDOW(Win_flush, (int p, Handle w), (p, w))
AT_WINDOW(Win_flush_all, (Handle w), (w))
AT_WINDOW(Win_flush_local, (int p, Handle w), (p, w))
AT_WINDOW(Win_flush_local_all, (Handle w), (w))
AT_WINDOW(Win_start, (Handle g, int a, Handle w), (g, a, w))
AT_WINDOW(Win_complete, (Handle w), (w))
AT_WINDOW(Win_post, (Handle g, int a, Handle w), (g, a, w))
AT_WINDOW(Win_wait, (Handle w), (w))
#define ONE_SIDED(NAME, RNAME, BUFFER, MORE, GIVEN)                                                         \
    MPI(NAME, (BUFFER b, int n, Handle d, int p, Aint at, int tn, Handle td, BARE MORE Handle w),           \
        (b, n, d, p, at, tn, td, BARE GIVEN w), , call.note(Windows::comm(w), bytes(n, d), p))              \
    MPI(RNAME, (BUFFER b, int n, Handle d, int p, Aint at, int tn, Handle td, BARE MORE Handle w, void* q), \
        (b, n, d, p, at, tn, td, BARE GIVEN w, q), , call.note(Windows::comm(w), bytes(n, d), p))
ONE_SIDED(Put, Rput, const void*, (), ())
ONE_SIDED(Get, Rget, void*, (), ())
ONE_SIDED(Accumulate, Raccumulate, const void*, (Handle o, ), (o, ))
