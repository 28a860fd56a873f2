// Ranks that communicate in a way that the tests know by heart: `mpi_ranks SCENARIO`. For any MPI.

#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kSteps = 10, kThreads = 4, kMessages = 200 };

static int rank, size;

// Ten steps: halos to the right, then a sum. Rank 1 comes 100 ms late to each.
static void halo(int steps) {
    static double out[1000], in[1000], sum;
    const int right = (rank + 1) % size, left = (rank + size - 1) % size;
    // MPI may connect ranks when they first talk, and then a send waits for who gets it.
    for (int time = 0; time < 2; ++time)
        MPI_Sendrecv(out, 1, MPI_INT, right, 8, in, 1, MPI_INT, left, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int step = 0; step < steps; ++step) {
        MPI_Request requests[2];
        if (rank == 1) usleep(100000);
        MPI_Irecv(in, 1000, MPI_DOUBLE, left, 7, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(out, 500, MPI_DOUBLE, right, 7, MPI_COMM_WORLD, &requests[1]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        MPI_Allreduce(out, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    }
}

static void collectives(void) {
    int mine[16] = {0}, all[64] = {0}, counts[16], places[16];
    MPI_Comm half, again, none;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);  // the last rank is the first of it
    MPI_Comm_dup(half, &again);
    MPI_Comm_split(MPI_COMM_WORLD, rank == 0 ? 0 : MPI_UNDEFINED, 0, &none);
    MPI_Barrier(half);
    MPI_Bcast(mine, 3, MPI_INT, 0, again);
    if (rank == 0) MPI_Barrier(none);  // alone
    MPI_Comm_free(&half);
    MPI_Allgather(mine, 2, MPI_INT, all, 2, MPI_INT, MPI_COMM_WORLD);
    MPI_Reduce_scatter_block(all, mine, 2, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Gather(mine, 3, MPI_INT, all, 3, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Scatter(all, 5, MPI_CHAR, mine, 5, MPI_CHAR, 1, MPI_COMM_WORLD);
    for (int peer = 0; peer < size; ++peer) {
        counts[peer] = 1 + (rank + peer) % 2;
        places[peer] = 4 * peer;
    }
    MPI_Alltoallv(all, counts, places, MPI_INT, all + 16, counts, places, MPI_INT, MPI_COMM_WORLD);
}

static void messages(void) {
    char out[64] = {0}, in[64];
    const int peer = rank ^ 1;
    MPI_Request requests[2];
    MPI_Status status;
    int done = 0, index;
    MPI_Sendrecv(out, 10, MPI_CHAR, peer, 1, in, 64, MPI_CHAR, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD,
                 &status);
    if (status.MPI_SOURCE != peer || status.MPI_TAG != 1) abort();
    MPI_Send(out, 64, MPI_CHAR, MPI_PROC_NULL, 1, MPI_COMM_WORLD);
    MPI_Sendrecv(out, 1, MPI_CHAR, rank, 2, in, 1, MPI_CHAR, rank, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send_init(out, 20, MPI_CHAR, peer, 3, MPI_COMM_WORLD, &requests[0]);
    MPI_Recv_init(in, 64, MPI_CHAR, peer, 3, MPI_COMM_WORLD, &requests[1]);
    for (int time = 0; time < 3; ++time) {
        MPI_Startall(2, requests);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    }
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
    MPI_Irecv(in, 64, MPI_CHAR, peer, 4, MPI_COMM_WORLD, &requests[0]);
    MPI_Send(out, 30, MPI_CHAR, peer, 4, MPI_COMM_WORLD);
    while (!done) MPI_Test(&requests[0], &done, MPI_STATUS_IGNORE);
    MPI_Irecv(in, 64, MPI_CHAR, peer, 5, MPI_COMM_WORLD, &requests[0]);
    requests[1] = MPI_REQUEST_NULL;
    MPI_Ssend(out, 40 * (rank % 2), MPI_CHAR, rank % 2 ? peer : MPI_PROC_NULL, 5, MPI_COMM_WORLD);
    if (rank % 2 == 0) {
        MPI_Waitany(2, requests, &index, &status);
        MPI_Send(out, 40, MPI_CHAR, peer, 5, MPI_COMM_WORLD);
    } else {
        MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    }
}

// Each rank puts to the right and gets from the left; rank 1 comes half a second late to the second fence.
static void windows(void) {
    int mine[64] = {0}, got[16] = {0};
    const int right = (rank + 1) % size, left = (rank + size - 1) % size;
    MPI_Win window;
    mine[8] = rank;
    MPI_Win_create(mine, sizeof mine, sizeof *mine, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Win_fence(0, window);
    MPI_Put(&rank, 1, MPI_INT, right, 0, 1, MPI_INT, window);
    MPI_Get(got, 3, MPI_INT, left, 8, 3, MPI_INT, window);
    if (rank == 1) usleep(500000);
    MPI_Win_fence(0, window);
    if (mine[0] != left || got[0] != left) abort();
    MPI_Win_lock(MPI_LOCK_SHARED, right, 0, window);
    MPI_Get(got, 16, MPI_INT, right, 0, 16, MPI_INT, window);
    MPI_Win_unlock(right, window);
    MPI_Win_free(&window);
}

static void* talk(void* tag) {
    int out = 0, in;
    for (int i = 0; i < kMessages; ++i) {
        MPI_Sendrecv(&out, 1, MPI_INT, rank ^ 1, *(int*)tag, &in, 1, MPI_INT, rank ^ 1, *(int*)tag,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    return NULL;
}

int main(int argc, char** argv) {
    const char* const scenario = argc > 1 ? argv[1] : "";
    int given;
    MPI_Init_thread(&argc, &argv, strcmp(scenario, "threads") ? MPI_THREAD_SINGLE : MPI_THREAD_MULTIPLE,
                    &given);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (!strcmp(scenario, "halo")) halo(kSteps);
    if (!strcmp(scenario, "collectives")) collectives();
    if (!strcmp(scenario, "messages")) messages();
    if (!strcmp(scenario, "windows")) windows();
    if (!strcmp(scenario, "killed")) {
        halo(kSteps);
        usleep(400000);  // more than is between two flushes
        if (rank == 1) raise(SIGKILL);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    if (!strcmp(scenario, "threads") && given == MPI_THREAD_MULTIPLE) {
        pthread_t threads[kThreads];
        int tags[kThreads];
        for (int i = 0; i < kThreads; ++i) pthread_create(&threads[i], NULL, talk, (tags[i] = i, &tags[i]));
        for (int i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
    }
    MPI_Finalize();
    return 0;
}
