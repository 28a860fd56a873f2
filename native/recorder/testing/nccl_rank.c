// One of two ranks that use NCCL in a way that the tests know by heart. RANK says which.

#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    char bytes[128];
} ncclUniqueId;
typedef void* ncclComm_t;
int ncclGroupStart(void);
int ncclGroupEnd(void);
int ncclCommInitRank(ncclComm_t*, int, ncclUniqueId, int);
int ncclCommSplit(ncclComm_t, int, int, ncclComm_t*, void*);
int ncclCommDestroy(ncclComm_t);
int ncclAllReduce(const void*, void*, size_t, int, int, ncclComm_t, void*);
int ncclReduceScatter(const void*, void*, size_t, int, int, ncclComm_t, void*);
int ncclAllGather(const void*, void*, size_t, int, ncclComm_t, void*);
int ncclBroadcastConfig(const void*, void*, size_t, int, int, ncclComm_t, void*, const void*);
int ncclSend(const void*, size_t, int, int, ncclComm_t, void*);
int ncclRecv(void*, size_t, int, int, ncclComm_t, void*);

enum { kInt8 = 0, kInt32 = 2, kFloat16 = 6, kFloat32 = 7, kFloat64 = 8 };

int main(void) {
    const int rank = atoi(getenv("RANK")), peer = 1 - rank;
    void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    int (*start)(unsigned);
    ncclUniqueId id;
    ncclComm_t all, part;
    int failed = 0;
    if (!driver) return 3;
    memset(&id, 'x', sizeof id);
    failed |= ncclCommInitRank(&all, 2, id, rank);  // before CUDA's first call that the recorder sees
    *(void**)&start = dlsym(driver, "cuInit");
    start(0);
    for (int i = 0; i < 3; ++i) failed |= ncclAllReduce(NULL, NULL, 256, kFloat32, 0, all, NULL);
    ncclGroupStart();
    failed |= ncclAllReduce(NULL, NULL, 100, kFloat16, 0, all, NULL);
    failed |= ncclAllReduce(NULL, NULL, 50, kFloat16, 0, all, NULL);
    ncclGroupEnd();
    ncclGroupStart();
    failed |= ncclAllReduce(NULL, NULL, 100, kFloat16, 0, all, NULL);
    failed |= ncclAllReduce(NULL, NULL, 50, kFloat32, 0, all, NULL);
    ncclGroupEnd();
    ncclGroupStart();
    ncclGroupStart();  // as PyTorch does
    failed |= ncclSend(NULL, 10, kFloat32, peer, all, NULL);
    ncclGroupEnd();
    failed |= ncclRecv(NULL, 30, kFloat32, peer, all, NULL);
    ncclGroupEnd();
    failed |=
        rank == 0 ? ncclSend(NULL, 5, kFloat64, 1, all, NULL) : ncclRecv(NULL, 5, kFloat64, 0, all, NULL);
    failed |= ncclAllGather(NULL, NULL, 64, kInt8, all, NULL);
    failed |= ncclBroadcastConfig(NULL, NULL, 7, kInt8, 0, all, NULL, NULL);
    failed |= ncclCommSplit(all, 0, 0, &part, NULL);
    failed |= ncclReduceScatter(NULL, NULL, 32, kInt32, 0, part, NULL);
    failed |= ncclCommDestroy(part) | ncclCommDestroy(all);
    return failed;
}
