// Stands in for libnccl.so.2: calls have NCCL's types and return at once; those outside of groups launch a
// kernel each, a group launches one a kind at its outermost end. Nothing is moved.

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    char bytes[128];
} ncclUniqueId;
typedef struct Comm {
    int rank, size;
}* ncclComm_t;
typedef int ncclResult_t;

static int t_depth;
static const char* t_held[16];
static int t_types[16];
static int t_count;

static void run(const char* kernel) {
    void* const cupti = dlopen("libcupti.so.13", RTLD_NOW | RTLD_NOLOAD);
    uint32_t (*launch)(const char*, uint64_t);
    if (!cupti) return;
    *(void**)&launch = dlsym(cupti, "fake_kernel");
    launch(kernel, 0);
}

static ncclResult_t launch(const char* kernel, int type) {
    if (t_depth == 0) {
        run(kernel);
        return 0;
    }
    for (int i = 0; i < t_count; ++i) {
        if (!strcmp(t_held[i], kernel) && t_types[i] == type) return 0;
    }
    t_types[t_count] = type;
    t_held[t_count++] = kernel;
    return 0;
}

ncclResult_t ncclGroupStart(void) {
    ++t_depth;
    return 0;
}
ncclResult_t ncclGroupEnd(void) {
    if (--t_depth > 0) return 0;
    for (int i = 0; i < t_count; ++i) run(t_held[i]);
    t_count = 0;
    return 0;
}

static ncclComm_t comm(int rank, int size) {
    ncclComm_t made = malloc(sizeof *made);
    made->rank = rank;
    made->size = size;
    return made;
}
ncclResult_t ncclCommInitRank(ncclComm_t* made, int size, ncclUniqueId id, int rank) {
    *made = id.bytes[127] == 'x' ? comm(rank, size) : NULL;  // an id that came through whole
    return *made ? 0 : 4;
}
ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t* made, void* config) {
    (void)key;
    (void)config;
    *made = color < 0 ? NULL : comm(parent->rank, parent->size);
    return 0;
}
ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
    *rank = comm->rank;
    return 0;
}
ncclResult_t ncclCommCount(ncclComm_t comm, int* size) {
    *size = comm->size;
    return 0;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    free(comm);
    return 0;
}

#define ANY const void *a, void *b, size_t n, int type
ncclResult_t ncclAllReduce(ANY, int op, ncclComm_t c, void* stream) {
    return launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL", type);
}
ncclResult_t ncclReduceScatter(ANY, int op, ncclComm_t c, void* stream) {
    return launch("ncclDevKernel_ReduceScatter_Sum_i32_RING_LL", type);
}
ncclResult_t ncclAllGather(ANY, ncclComm_t c, void* stream) {
    return launch("ncclDevKernel_AllGather_RING_LL", type);
}
ncclResult_t ncclBroadcastConfig(ANY, int root, ncclComm_t c, void* stream, const void* config) {
    return launch("ncclDevKernel_Broadcast_RING_LL", type);
}
ncclResult_t ncclSend(const void* a, size_t n, int type, int peer, ncclComm_t c, void* stream) {
    return launch("ncclDevKernel_SendRecv", type);
}
ncclResult_t ncclRecv(void* a, size_t n, int type, int peer, ncclComm_t c, void* stream) {
    return launch("ncclDevKernel_SendRecv", type);
}
