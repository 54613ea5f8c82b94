/* Collectives of this engine beside an MPI library's, in one run: contenders take turns, in another
 * order in each iteration, behind the same barrier, so that noise meets all alike. Each makes one
 * call that is not timed first, so that it finds the caches as a program that calls it alone.
 * CONTENDERS is a sum of 1 (window), 2 (memory), 4 (staged), 8 (mpi): who takes part.
 *
 * `comm DIRECTORY MOST_BYTES BUDGET_US CONTENDERS` under mpirun, built with mpicc and -DWITH_MPI;
 * without these, a fifth word says how many ranks it forks.
 * Rank 0 prints a line a measurement: operation, bytes, contender, median and least microseconds of
 * the slowest rank of each iteration. bench/comm.py builds, runs and compares.
 *
 * Contenders: window (source and destination in windows), memory (ordinary, as the engine chooses),
 * staged (ordinary, process_vm_readv off), mpi (ordinary). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "uncopy/uncopy.h"
#ifdef WITH_MPI
#include <mpi.h>
#endif

enum { MOST_ITERATIONS = 2000, NUM_CONTENDERS = 4, NUM_OPERATIONS = 6, PAGE = 4096 };

typedef struct rank {
    int rank, size;
    uncopy_comm_t *comm, *staged; /* staged: reads are off */
    char *window[2], *memory[2];
    size_t room;
    int contenders; /* bits */
} rank_t;

static const char *const contenders[] = {"window", "memory", "staged", "mpi"};
static const char *const operations[] = {"all_gather", "all_reduce_f32", "reduce_scatter_f32",
                                         "broadcast",  "all_to_all",     "all_reduce_bf16"};

static void check(uncopy_status_t status)
{
    if (status != UNCOPY_OK) {
        (void)fprintf(stderr, "%s: %s\n", uncopy_status_name(status), uncopy_last_message());
        exit(1);
    }
}

static double now_us(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

/* bytes: of the whole buffer for reductions to all and broadcast, of one rank's block otherwise. */
static void call_engine(uncopy_comm_t *comm, int operation, char *source, char *destination,
                        int64_t bytes)
{
    int rank = uncopy_comm_rank(comm);
    switch (operation) {
    case 0:
        check(uncopy_comm_all_gather(comm, destination + rank * bytes, destination, bytes,
                                     UNCOPY_DTYPE_U8, NULL));
        return;
    case 1:
        check(uncopy_comm_all_reduce(comm, source, destination, bytes / 4, UNCOPY_DTYPE_F32,
                                     UNCOPY_REDUCE_SUM, NULL));
        return;
    case 2:
        check(uncopy_comm_reduce_scatter(comm, source, destination, bytes / 4, UNCOPY_DTYPE_F32,
                                         UNCOPY_REDUCE_SUM, NULL));
        return;
    case 3:
        check(uncopy_comm_broadcast(comm, source, bytes, UNCOPY_DTYPE_U8, 0, NULL));
        return;
    case 4:
        check(uncopy_comm_all_to_all(comm, source, destination, bytes, UNCOPY_DTYPE_U8, NULL));
        return;
    default:
        check(uncopy_comm_all_reduce(comm, source, destination, bytes / 2, UNCOPY_DTYPE_BF16,
                                     UNCOPY_REDUCE_SUM, NULL));
        return;
    }
}

#ifdef WITH_MPI
static void call_mpi(int operation, char *source, char *destination, int bytes)
{
    switch (operation) {
    case 0:
        MPI_Allgather(MPI_IN_PLACE, 0, MPI_BYTE, destination, bytes, MPI_BYTE, MPI_COMM_WORLD);
        return;
    case 1:
        MPI_Allreduce(source, destination, bytes / 4, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        return;
    case 2:
        MPI_Reduce_scatter_block(source, destination, bytes / 4, MPI_FLOAT, MPI_SUM,
                                 MPI_COMM_WORLD);
        return;
    case 3:
        MPI_Bcast(source, bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
        return;
    default:
        MPI_Alltoall(source, bytes, MPI_BYTE, destination, bytes, MPI_BYTE, MPI_COMM_WORLD);
        return;
    }
}

#else
static void call_mpi(int operation, char *source, char *destination, int bytes)
{
    (void)operation;
    (void)source;
    (void)destination;
    (void)bytes;
}
#endif

/* MPI has no bf16. */
static int takes_part(const rank_t *r, int contender, int operation)
{
    return (r->contenders >> contender & 1) != 0 && (contender != 3 || operation != 5);
}

/* The source is written anew, as a program would: it is in this core's cache, not in the peer's. */
static double time_one(rank_t *r, int operation, int contender, int64_t bytes)
{
    char **buffers = contender == 0 ? r->window : r->memory;
    int64_t written = operation == 0   ? bytes
                      : operation == 2 ? bytes * r->size
                      : operation == 4 ? bytes * r->size
                                       : bytes;
    char *source = operation == 0 ? buffers[1] + r->rank * bytes : buffers[0];
    memset(source, r->rank + 1, (size_t)written);
    check(uncopy_comm_barrier(r->comm, NULL));
    double start = now_us();
    if (contender == 3) {
        call_mpi(operation, buffers[0], buffers[1], (int)bytes);
    } else {
        call_engine(contender == 2 ? r->staged : r->comm, operation, buffers[0], buffers[1], bytes);
    }
    float mine = (float)(now_us() - start), slowest = 0;
    check(uncopy_comm_all_reduce(r->comm, &mine, &slowest, 1, UNCOPY_DTYPE_F32, UNCOPY_REDUCE_MAX,
                                 NULL));
    return (double)slowest;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(rank_t *r, int operation, int64_t bytes, double budget_us)
{
    static double times[NUM_CONTENDERS][MOST_ITERATIONS];
    int count = 0;
    double spent = 0;
    for (int i = -2; i < MOST_ITERATIONS && (i < 5 || spent < budget_us); i++) {
        double sum = 0;
        for (int turn = 0; turn < NUM_CONTENDERS; turn++) {
            int c = (turn + i + 2) % NUM_CONTENDERS;
            if (!takes_part(r, c, operation)) {
                continue;
            }
            (void)time_one(r, operation, c, bytes);
            double time = time_one(r, operation, c, bytes);
            sum += time;
            if (i >= 0) {
                times[c][i] = time;
            }
        }
        spent += i >= 0 ? sum : 0; /* the same on all ranks */
        count = i + 1;
    }
    for (int c = 0; c < NUM_CONTENDERS && r->rank == 0; c++) {
        if (takes_part(r, c, operation)) {
            qsort(times[c], (size_t)count, sizeof(double), compare);
            printf("%s %lld %s %.2f %.2f\n", operations[operation], (long long)bytes, contenders[c],
                   times[c][count / 2], times[c][0]);
        }
    }
    (void)fflush(stdout);
}

static void run(int rank, int size, char **words)
{
    int64_t most_bytes = atoll(words[2]);
    double budget_us = atof(words[3]);
    rank_t r = {.rank = rank,
                .size = size,
                .room = (size_t)(most_bytes * size),
                .contenders = atoi(words[4])};
    uncopy_comm_options_t options = {
        .name = "bench", .rank = rank, .size = size, .directory = words[1]};
    check(uncopy_comm_create(NULL, &options, &r.comm));
    options.name = "staged";
    options.reads = UNCOPY_COMM_READS_OFF;
    check(uncopy_comm_create(NULL, &options, &r.staged));
    uncopy_window_t *windows[2];
    for (int i = 0; i < 2; i++) {
        check(uncopy_window_create(r.comm, (int64_t)r.room, NULL, &windows[i]));
        r.window[i] = uncopy_window_data(windows[i]);
        r.memory[i] = aligned_alloc(PAGE, r.room);
        memset(r.window[i], 0, r.room);
        memset(r.memory[i], 0, r.room);
    }
    static const int64_t sizes[] = {64,      1024,    4096,    16384,    65536,    262144,
                                    1 << 20, 4 << 20, 8 << 20, 32 << 20, 128 << 20};
    for (int operation = 0; operation < NUM_OPERATIONS; operation++) {
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            if (sizes[i] <= most_bytes) {
                measure(&r, operation, sizes[i], budget_us);
            }
        }
    }
    for (int i = 0; i < 2; i++) {
        uncopy_window_release(windows[i]);
        free(r.memory[i]);
    }
    uncopy_comm_release(r.staged);
    uncopy_comm_release(r.comm);
}

#ifdef WITH_MPI
int main(int argc, char **argv)
{
    int rank = 0, size = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc == 5) {
        run(rank, size, argv);
    }
    MPI_Finalize();
    return argc == 5 ? 0 : 2;
}
#else
int main(int argc, char **argv)
{
    int size = argc == 6 ? atoi(argv[5]) : 0, failed = size == 0;
    for (int p = 0; p < size; p++) {
        if (fork() == 0) {
            run(p, size, argv);
            (void)fflush(stdout);
            _exit(0);
        }
    }
    for (int p = 0; p < size; p++) {
        int status = 0;
        (void)wait(&status);
        failed |= status;
    }
    return failed != 0;
}
#endif
