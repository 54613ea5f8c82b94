/* The engine over the loopback transport, ranks being threads: random calls of every operation with
 * delays at its points, results compared with a reference; two slots under sleepers; deaths. Built
 * with ThreadSanitizer too. */
#include <stdlib.h>
#include <time.h>

#include "base/memory.h"
#include "checks.h"
#include "ranks.h"

enum { MOST = 6000 };

/* Random numbers that all ranks draw alike. */
static uint32_t draw(uint32_t *seed, uint32_t below)
{
    *seed = *seed * 1664525U + 1013904223U;
    return (*seed >> 8) % below;
}

/* What rank gives as element i in call c: sums of it round. */
static float value_of(uint32_t c, int32_t rank, size_t i)
{
    uint32_t seed = c * 2654435761U + (uint32_t)rank * 40503U + (uint32_t)i * 97U;
    (void)draw(&seed, 2);
    return (float)((int32_t)draw(&seed, 200000) - 100000) / 331.0F;
}

static float sum_of(uint32_t c, int32_t size, size_t i)
{
    float sum = value_of(c, 0, i);
    for (int32_t p = 1; p < size; p++) {
        sum += value_of(c, p, i);
    }
    return sum;
}

static void strike(void *self, int32_t rank, transport_point_t point)
{
    atomic_uint *calls = self;
    uint32_t seed = atomic_fetch_add(calls, 1) * 7919U + (uint32_t)rank + (uint32_t)point;
    uint32_t what = draw(&seed, 200);
    struct timespec span = {0, what == 0 ? 300000 : (what < 4 ? 20000 : 0)};
    if (span.tv_nsec > 0) {
        (void)nanosleep(&span, NULL);
    }
}

/* ---------------------------------------------------------------- one call of each operation */

typedef struct job {
    comm_t *comm;
    uint32_t number;
    size_t count;
    int32_t root;
    float *source, *destination; /* MOST for each rank */
} job_t;

static bool holds(const float *actual, uint32_t c, int32_t from, size_t first, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (actual[i] != value_of(c, from, first + i)) {
            return false;
        }
    }
    return true;
}

static bool holds_sum(const float *actual, uint32_t c, int32_t size, size_t first, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (actual[i] != sum_of(c, size, first + i)) {
            return false;
        }
    }
    return true;
}

static uncopy_status_t run_move(const job_t *job, comm_operation_t operation, comm_reach_t reach,
                                bool is_shared)
{
    comm_t *comm = job->comm;
    size_t bytes = job->count * sizeof(float);
    comm_signature_t signature = {.operation = operation,
                                  .dtype = UNCOPY_DTYPE_F32,
                                  .root = reach == COMM_REACH_ALL ? -1 : job->root,
                                  .bytes = bytes};
    pattern_row_t from = {(char *)job->source, bytes, is_shared ? 0 : bytes};
    pattern_row_t to = {(char *)job->destination, bytes, bytes};
    comm_move_t move = {.reach = reach,
                        .is_shared = is_shared,
                        .source = {&from, 1, false},
                        .destination = {&to, 1, false}};
    uncopy_status_t status = comm_begin(comm, &signature, NULL);
    return status == UNCOPY_OK ? comm_end(comm, comm_move(comm, &move)) : status;
}

static void check_move(const job_t *job, comm_operation_t operation, comm_reach_t reach,
                       bool is_shared)
{
    comm_t *comm = job->comm;
    CHECK_OK(run_move(job, operation, reach, is_shared));
    for (int32_t p = 0; p < comm->size; p++) {
        bool takes = reach == COMM_REACH_ALL || (reach == COMM_REACH_FROM_ROOT && p == job->root) ||
                     (reach == COMM_REACH_TO_ROOT && comm->rank == job->root);
        size_t first = is_shared ? 0 : (size_t)comm->rank * job->count;
        CHECK(!takes ||
              holds(job->destination + (size_t)p * job->count, job->number, p, first, job->count));
    }
}

static void check_reduce_scatter(const job_t *job)
{
    comm_t *comm = job->comm;
    size_t bytes = job->count * sizeof(float);
    comm_signature_t signature = {
        .operation = COMM_REDUCE_SCATTER, .dtype = UNCOPY_DTYPE_F32, .root = -1, .bytes = bytes};
    pattern_row_t from = {(char *)job->source, bytes, bytes};
    pattern_row_t to = {(char *)job->destination, bytes, 0};
    pattern_t source = {&from, 1, false}, destination = {&to, 1, false};
    if (CHECK_OK(comm_begin(comm, &signature, NULL))) {
        CHECK_OK(comm_end(comm, comm_reduce_scatter(comm, &source, &destination)));
    }
    CHECK(holds_sum(job->destination, job->number, comm->size, (size_t)comm->rank * job->count,
                    job->count));
}

static void check_all_reduce(const job_t *job, int32_t root)
{
    comm_t *comm = job->comm;
    comm_signature_t signature = {.operation = root < 0 ? COMM_ALL_REDUCE : COMM_REDUCE,
                                  .dtype = UNCOPY_DTYPE_F32,
                                  .root = root,
                                  .bytes = job->count * sizeof(float)};
    if (CHECK_OK(comm_begin(comm, &signature, NULL))) {
        CHECK_OK(
            comm_end(comm, comm_all_reduce(comm, job->source, job->destination, job->count, root)));
    }
    CHECK((root >= 0 && root != comm->rank) ||
          holds_sum(job->destination, job->number, comm->size, 0, job->count));
}

static void check_transfers(const job_t *job)
{
    comm_t *comm = job->comm;
    int32_t next = (comm->rank + 1) % comm->size, last = (comm->rank + comm->size - 1) % comm->size;
    int64_t bytes = (int64_t)(job->count * sizeof(float));
    uncopy_transfer_t both[] = {
        {UNCOPY_TRANSFER_RECEIVE, last, job->number, job->destination, bytes, UNCOPY_DTYPE_F32},
        {UNCOPY_TRANSFER_SEND, next, job->number, job->source, bytes, UNCOPY_DTYPE_F32}};
    CHECK_OK(comm_transfer(comm, both, 2, NULL));
    CHECK(holds(job->destination, job->number, last, 0, job->count));
}

static void check_barrier(const job_t *job)
{
    comm_signature_t signature = {.operation = COMM_BARRIER, .root = -1};
    if (CHECK_OK(comm_begin(job->comm, &signature, NULL))) {
        CHECK_OK(comm_end(job->comm, comm_barrier(job->comm)));
    }
}

static void run_job(const job_t *job, uint32_t which)
{
    switch (which) {
    case 0:
        check_barrier(job);
        return;
    case 1:
        check_move(job, COMM_ALL_GATHER, COMM_REACH_ALL, true);
        return;
    case 2:
        check_move(job, COMM_ALL_TO_ALL, COMM_REACH_ALL, false);
        return;
    case 3:
        check_move(job, COMM_BROADCAST, COMM_REACH_FROM_ROOT, true);
        return;
    case 4:
        check_move(job, COMM_GATHER, COMM_REACH_TO_ROOT, true);
        return;
    case 5:
        check_move(job, COMM_SCATTER, COMM_REACH_FROM_ROOT, false);
        return;
    case 6:
        check_reduce_scatter(job);
        return;
    case 7:
        check_all_reduce(job, job->root);
        return;
    case 8:
        check_transfers(job);
        return;
    default:
        check_all_reduce(job, -1);
        return;
    }
}

/* ---------------------------------------------------------------- bodies */

static void fill(const job_t *job)
{
    size_t count = job->count * (size_t)job->comm->size;
    for (size_t i = 0; i < count; i++) {
        job->source[i] = value_of(job->number, job->comm->rank, i);
    }
}

/* Sources and destinations are in windows or not, by the call and the rank. */
static void random_calls(comm_t *comm, void *argument)
{
    const uint32_t *num_calls = argument;
    size_t room = MOST * sizeof(float) * (size_t)comm->size;
    comm_window_t *windows[2] = {NULL, NULL};
    float *memory[2];
    for (int i = 0; i < 2; i++) {
        CHECK_OK(comm_window_create(comm, (int64_t)room, true, NULL, &windows[i]));
        memory[i] = malloc(room);
    }
    uint32_t seed = (uint32_t)comm->size;
    for (uint32_t c = 0; c < *num_calls; c++) {
        static const uint32_t most[] = {1, 20, 600, MOST};
        uint32_t inside = draw(&seed, 8);
        if (inside >= 4) { /* ranks differ */
            inside = (inside + (uint32_t)comm->rank) & 3;
        }
        job_t job = {.comm = comm, .number = c, .root = (int32_t)draw(&seed, (uint32_t)comm->size)};
        job.count = draw(&seed, most[draw(&seed, 4)]);
        job.source =
            (inside & 1) != 0 ? (float *)(void *)windows[0]->memory.parts[comm->rank] : memory[0];
        job.destination =
            (inside & 2) != 0 ? (float *)(void *)windows[1]->memory.parts[comm->rank] : memory[1];
        fill(&job);
        run_job(&job, draw(&seed, 10));
    }
    for (int i = 0; i < 2; i++) {
        comm_window_release(windows[i]);
        free(memory[i]);
    }
}

/* Steps back to back, some ranks asleep: a lost wake-up hangs, a torn slot gives a wrong number. */
static void two_slots(comm_t *comm, void *argument)
{
    const uint32_t *num_calls = argument;
    for (uint32_t c = 0; c < *num_calls; c++) {
        uint32_t mine[16], all[16 * UNCOPY_COMM_MAX_SIZE];
        for (uint32_t i = 0; i < 16; i++) {
            mine[i] = c * 100 + (uint32_t)comm->rank;
        }
        comm_signature_t signature = {.operation = COMM_ALL_GATHER, .root = -1, .bytes = 64};
        pattern_row_t from = {(char *)mine, 64, 0}, to = {(char *)all, 64, 64};
        comm_move_t move = {.reach = COMM_REACH_ALL,
                            .is_shared = true,
                            .source = {&from, 1, false},
                            .destination = {&to, 1, false}};
        if (!CHECK(comm_begin(comm, &signature, NULL) == UNCOPY_OK)) {
            return;
        }
        uncopy_status_t status = comm_end(comm, comm_move(comm, &move));
        bool is_right = status == UNCOPY_OK;
        for (int32_t p = 0; p < comm->size; p++) {
            for (int32_t i = 0; i < 16; i++) {
                is_right = is_right && all[p * 16 + i] == c * 100 + (uint32_t)p;
            }
        }
        if (!CHECK(is_right)) {
            return;
        }
    }
}

typedef struct death {
    loopback_t *loopback;
    uint32_t operation;
} death_t;

static void die_in_the_middle(comm_t *comm, void *argument)
{
    death_t *death = argument;
    static float memory[UNCOPY_COMM_MAX_SIZE][2][MOST];
    comm_signature_t signature = {.operation = COMM_BARRIER, .root = -1};
    CHECK(comm_begin(comm, &signature, NULL) == UNCOPY_OK);
    CHECK(comm_end(comm, comm_barrier(comm)) == UNCOPY_OK);
    if (comm->rank == 1) {
        /* the transport knows its member; the loopback is its first field's */
        loopback_kill(*(loopback_t **)comm->transport.self, 1);
        return;
    }
    uncopy_transfer_t receive = {UNCOPY_TRANSFER_RECEIVE, 1, 0,
                                 memory[comm->rank][0],   8, UNCOPY_DTYPE_F32};
    uncopy_status_t status = UNCOPY_OK;
    if (death->operation == 0) {
        status = comm_transfer(comm, &receive, 1, NULL);
    } else {
        signature = (comm_signature_t){
            .operation = COMM_ALL_REDUCE, .dtype = UNCOPY_DTYPE_F32, .root = -1, .bytes = MOST * 4};
        status = comm_begin(comm, &signature, NULL);
        status = status != UNCOPY_OK
                     ? status
                     : comm_end(comm, comm_all_reduce(comm, memory[comm->rank][0],
                                                      memory[comm->rank][1], MOST, -1));
    }
    CHECK_STATUS(status, UNCOPY_ERROR_PEER);
    CHECK_HOLDS(uncopy_last_message(), "rank 1");
}

int main(void)
{
    double scale = ranks_scale() < 1 ? ranks_scale() : 1;
    uint32_t num_calls = (uint32_t)(300 * scale) + 1, num_steps = (uint32_t)(20000 * scale) + 1;
    for (int32_t size = 1; size <= 5; size++) {
        atomic_uint calls = 0;
        loopback_options_t options = {.size = size,
                                      .chunk_bytes = 4096,
                                      .streaming_bytes = 8192,
                                      .is_crowded = size > 2,
                                      .can_read = size % 2 == 0,
                                      .timeout_ns = 120000000000,
                                      .fault = {&calls, strike}};
        ranks_run_threads(&options, random_calls, &num_calls);
        options.fault.strike = NULL;
        ranks_run_threads(&options, two_slots, &num_steps);
    }
    for (uint32_t operation = 0; operation < 2; operation++) {
        death_t death = {.operation = operation};
        loopback_options_t options = {.size = 3,
                                      .chunk_bytes = 4096,
                                      .streaming_bytes = 1 << 20,
                                      .is_crowded = true,
                                      .timeout_ns = 60000000000};
        ranks_run_threads(&options, die_in_the_middle, &death);
    }
    return checks_finish("comm_loopback");
}
