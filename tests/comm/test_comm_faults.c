/* What goes wrong between real processes (deaths: test_comm_kills.c): a departure, a stop, a delay,
 * calls that do not match, an abort, an interrupt, a fork, no memory. Every survivor gets a clear
 * error, nobody hangs, nothing is left. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "checks.h"
#include "comm/wait.h"
#include "ranks.h"

/* Shared by the test and its ranks. */
typedef struct board {
    _Atomic int32_t num_ready;
} board_t;

static board_t *board;

static void nap_us(int64_t us)
{
    struct timespec span = {us / 1000000, us % 1000000 * 1000};
    (void)nanosleep(&span, NULL);
}

static void wait_until_ready(int32_t count)
{
    while (atomic_load(&board->num_ready) < count) {
        nap_us(200);
    }
}

/* ---------------------------------------------------------------- a rank is gone, late, stopped */

static void leave_early(uncopy_comm_t *comm, void *argument)
{
    const bool *releases = argument;
    CHECK_OK(uncopy_comm_barrier(comm, NULL));
    if (uncopy_comm_rank(comm) == 1) {
        if (!*releases) {
            _exit(0);
        }
        return;
    }
    CHECK_STATUS(uncopy_comm_barrier(comm, NULL), UNCOPY_ERROR_PEER);
    CHECK_HOLDS(uncopy_last_message(), *releases ? "left the communicator" : "died");
}

static void a_departure_is_no_silence(void)
{
    for (int releases = 0; releases < 2; releases++) {
        ranks_options_t options = {.size = 3};
        bool does_release = releases != 0;
        ranks_run(&options, leave_early, &does_release);
    }
}

static void stop_in_the_middle(uncopy_comm_t *comm, void *argument)
{
    (void)argument;
    float source[16] = {0}, destination[16];
    uncopy_status_t status = UNCOPY_OK;
    atomic_fetch_add(&board->num_ready, 1);
    while (status == UNCOPY_OK) {
        status = uncopy_comm_all_reduce(comm, source, destination, 16, UNCOPY_DTYPE_F32,
                                        UNCOPY_REDUCE_SUM, NULL);
    }
    bool is_stopped = uncopy_comm_rank(comm) == 2;
    CHECK(is_stopped ? status == UNCOPY_ERROR_ABORTED
                     : status == UNCOPY_ERROR_TIMEOUT || status == UNCOPY_ERROR_ABORTED);
    CHECK_HOLDS(uncopy_last_message(), "rank 2 did not come");
    CHECK_HOLDS(uncopy_last_message(), "all_reduce");
}

static void a_stopped_rank_is_late(void)
{
    *board = (board_t){.num_ready = 0};
    ranks_options_t options = {.size = 3, .timeout_ns = 300000000};
    ranks_t ranks;
    int32_t codes[UNCOPY_COMM_MAX_SIZE];
    ranks_start(&ranks, &options, stop_in_the_middle, NULL);
    wait_until_ready(3);
    (void)kill(ranks.processes[2], SIGSTOP);
    nap_us(600000);
    (void)kill(ranks.processes[2], SIGCONT);
    (void)ranks_wait(&ranks, codes);
    for (int32_t p = 0; p < 3; p++) {
        CHECK_EQUAL_I64(codes[p], 0);
    }
}

static void come_late(uncopy_comm_t *comm, void *argument)
{
    (void)argument;
    uncopy_comm_call_t call = {.timeout_ns = 100000000};
    if (uncopy_comm_rank(comm) == 0) {
        nap_us(400000);
        CHECK_STATUS(uncopy_comm_barrier(comm, NULL), UNCOPY_ERROR_ABORTED);
        return;
    }
    int64_t start_ns = wait_now_ns();
    uncopy_status_t status = uncopy_comm_barrier(comm, &call);
    CHECK(status == UNCOPY_ERROR_TIMEOUT || status == UNCOPY_ERROR_ABORTED);
    CHECK(wait_now_ns() - start_ns >= 100000000); /* not before its cause */
    CHECK_HOLDS(uncopy_last_message(), "it is alive");
}

/* ---------------------------------------------------------------- calls do not match */

static void call_another(uncopy_comm_t *comm, void *argument)
{
    const int32_t *which = argument;
    static float source[64], destination[256];
    bool is_other = uncopy_comm_rank(comm) == 1;
    const uncopy_dtype_t f32 = UNCOPY_DTYPE_F32, i32 = UNCOPY_DTYPE_I32;
    uncopy_status_t status = UNCOPY_OK;
    const char *here = NULL, *there = NULL;
    switch (*which) {
    case 0: /* sizes */
        status = uncopy_comm_all_gather(comm, source, destination, is_other ? 9 : 8, f32, NULL);
        here = "all_gather of 32 bytes, f32", there = "all_gather of 36 bytes, f32";
        break;
    case 1: /* dtypes */
        status = uncopy_comm_all_reduce(comm, source, destination, 8, is_other ? i32 : f32,
                                        UNCOPY_REDUCE_SUM, NULL);
        here = "all_reduce of 32 bytes, f32, sum", there = "all_reduce of 32 bytes, i32, sum";
        break;
    case 2: /* reductions */
        status = uncopy_comm_all_reduce(comm, source, destination, 8, f32,
                                        is_other ? UNCOPY_REDUCE_MAX : UNCOPY_REDUCE_SUM, NULL);
        here = "f32, sum", there = "f32, max";
        break;
    case 3: /* roots */
        status = uncopy_comm_broadcast(comm, source, 8, f32, is_other, NULL);
        here = "broadcast of 32 bytes, f32, root 0", there = "broadcast of 32 bytes, f32, root 1";
        break;
    case 4: /* operations */
        status = is_other ? uncopy_comm_barrier(comm, NULL)
                          : uncopy_comm_all_to_all(comm, source, destination, 8, f32, NULL);
        here = "all_to_all of 32 bytes, f32", there = "barrier of 0 bytes";
        break;
    default: { /* lists */
        uncopy_comm_segment_t list[] = {{source, destination, is_other ? 16 : 24, 0},
                                        {source + 32, destination + 64, is_other ? 24 : 16, 0}};
        status = uncopy_comm_all_gather_segments(comm, list, 2, f32, NULL);
        here = there = "all_gather of 40 bytes in a list, f32";
        break;
    }
    }
    CHECK_STATUS(status, UNCOPY_ERROR_MISMATCH);
    CHECK_HOLDS(uncopy_last_message(), here);
    CHECK_HOLDS(uncopy_last_message(), there);
    CHECK_HOLDS(uncopy_last_message(), "rank 1: 1 ");
    CHECK_STATUS(uncopy_comm_barrier(comm, NULL), UNCOPY_ERROR_MISMATCH);
}

static void send_another_size(uncopy_comm_t *comm, void *argument)
{
    const int32_t *which = argument;
    static float memory[64];
    int32_t rank = uncopy_comm_rank(comm);
    uncopy_comm_block_t blocks[] = {{memory, 16}, {memory + 8, 16}, {memory + 16, 16}};
    uncopy_transfer_t transfer = {rank == 0 ? UNCOPY_TRANSFER_RECEIVE : UNCOPY_TRANSFER_SEND,
                                  rank == 0 ? 1 : 0,
                                  5,
                                  memory,
                                  rank == 0 ? 8 : 16,
                                  UNCOPY_DTYPE_F32};
    uncopy_status_t status = UNCOPY_OK;
    if (*which == 0) {
        status = uncopy_comm_gather(comm, memory + 8 * rank, rank == 1 ? 3 : 4, blocks,
                                    UNCOPY_DTYPE_F32, 0, NULL);
    } else if (rank < 2) {
        status = uncopy_comm_transfer(comm, &transfer, 1, NULL);
    }
    /* the receiver finds out; a sender may have been done before */
    uncopy_status_t later = uncopy_comm_barrier(comm, NULL);
    CHECK(status == UNCOPY_ERROR_MISMATCH || (rank != 0 && status == UNCOPY_OK));
    CHECK_STATUS(later, UNCOPY_ERROR_MISMATCH);
    CHECK_HOLDS(uncopy_last_message(), *which == 0
                                           ? "rank 1 sends 12 bytes to rank 0, which takes 16"
                                           : "rank 1 sends 16 bytes of f32; rank 0 receives 8");
}

static void what_does_not_match_is_named(void)
{
    for (int32_t which = 0; which < 6; which++) {
        ranks_run(&(ranks_options_t){.size = 3}, call_another, &which);
    }
    for (int32_t which = 0; which < 2; which++) {
        ranks_run(&(ranks_options_t){.size = 3}, send_another_size, &which);
    }
}

/* ---------------------------------------------------------------- abort, interrupt, fork,
 * memory */

static void abort_it(uncopy_comm_t *comm, void *argument)
{
    (void)argument;
    if (uncopy_comm_rank(comm) == 1) {
        nap_us(30000);
        uncopy_comm_abort(comm, "the sky fell");
    }
    CHECK_STATUS(uncopy_comm_barrier(comm, NULL), UNCOPY_ERROR_ABORTED);
    CHECK_HOLDS(uncopy_last_message(), "the sky fell");
}

static void *abort_soon(void *comm)
{
    nap_us(30000);
    uncopy_comm_abort(comm, "another thread");
    return NULL;
}

static void abort_from_a_thread(uncopy_comm_t *comm, void *argument)
{
    (void)argument;
    pthread_t thread;
    bool is_first = uncopy_comm_rank(comm) == 0;
    if (is_first) {
        CHECK(pthread_create(&thread, NULL, abort_soon, comm) == 0);
    }
    char byte = 0;
    uncopy_transfer_t receive = {
        UNCOPY_TRANSFER_RECEIVE, (uncopy_comm_rank(comm) + 1) % 3, 0, &byte, 1, UNCOPY_DTYPE_U8};
    CHECK_STATUS(uncopy_comm_transfer(comm, &receive, 1, NULL), UNCOPY_ERROR_ABORTED);
    CHECK_HOLDS(uncopy_last_message(), "another thread");
    if (is_first) {
        (void)pthread_join(thread, NULL);
    }
}

static int is_third_look(void *self)
{
    int *looks = self;
    return ++*looks >= 3;
}

static void interrupt_a_wait(uncopy_comm_t *comm, void *argument)
{
    (void)argument;
    int looks = 0;
    uncopy_comm_call_t call = {.interrupt = {&looks, is_third_look}};
    if (uncopy_comm_rank(comm) == 0) {
        CHECK_STATUS(uncopy_comm_barrier(comm, &call), UNCOPY_ERROR_INTERRUPTED);
        CHECK_EQUAL_I64(looks, 3);
    } else {
        nap_us(200000);
        CHECK_STATUS(uncopy_comm_barrier(comm, NULL), UNCOPY_ERROR_ABORTED);
        CHECK_HOLDS(uncopy_last_message(), "rank 0 aborted");
        CHECK_HOLDS(uncopy_last_message(), "interrupted");
    }
}

static void use_in_a_child(uncopy_comm_t *comm, void *argument)
{
    (void)argument;
    uncopy_window_t *window = NULL;
    CHECK_OK(uncopy_window_create(comm, 10000, NULL, &window));
    int32_t mine = uncopy_comm_rank(comm), all[3];
    (void)fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        checks_reset();
        CHECK_STATUS(uncopy_comm_barrier(comm, NULL), UNCOPY_ERROR_GROUP);
        CHECK_HOLDS(uncopy_last_message(), "a forked child makes its own");
        CHECK_STATUS(uncopy_comm_state(comm), UNCOPY_ERROR_GROUP);
        uncopy_comm_abort(comm, "from a child");
        uncopy_window_release(window);
        uncopy_comm_release(comm);
        _exit(checks_failed());
    }
    int code = -1;
    (void)waitpid(child, &code, 0);
    CHECK_EQUAL_I64(code, 0);
    for (int i = 0; i < 100; i++) {
        CHECK_OK(uncopy_comm_all_gather(comm, &mine, all, 1, UNCOPY_DTYPE_I32, NULL));
    }
    CHECK(all[0] == 0 && all[1] == 1 && all[2] == 2);
    uncopy_window_release(window);
}

static void ask_for_too_much(uncopy_comm_t *comm, void *argument)
{
    (void)argument;
    uncopy_window_t *window = NULL;
    bool is_greedy = uncopy_comm_rank(comm) == 1;
    for (int i = 0; i < 3; i++) {
        CHECK_STATUS(uncopy_window_create(comm, is_greedy ? 1LL << 46 : 5000, NULL, &window),
                     UNCOPY_ERROR_MEMORY);
        CHECK(window == NULL);
        CHECK_OK(uncopy_comm_barrier(comm, NULL));
    }
    CHECK_OK(uncopy_window_create(comm, 5000, NULL, &window));
    uncopy_window_release(window);
}

/* ---------------------------------------------------------------- a busy machine */

enum { NUM_HOGS = 2, MANY = 8, NUM_CALLS = 100, BUSY_COUNT = 30000 };

static void call_often(uncopy_comm_t *comm, void *argument)
{
    (void)argument;
    int32_t rank = uncopy_comm_rank(comm);
    int32_t *source = malloc(BUSY_COUNT * sizeof(int32_t));
    int32_t *sums = malloc(BUSY_COUNT * sizeof(int32_t));
    for (int32_t call = 0; call < NUM_CALLS; call++) {
        int32_t count = call % 4 == 0 ? BUSY_COUNT : 10; /* many chunks, or one step */
        for (int32_t i = 0; i < count; i++) {
            source[i] = call + rank * i;
        }
        if (!CHECK_OK(uncopy_comm_all_reduce(comm, source, sums, count, UNCOPY_DTYPE_I32,
                                             UNCOPY_REDUCE_SUM, NULL))) {
            break;
        }
        CHECK(sums[0] == MANY * call);
        CHECK(sums[count - 1] == MANY * call + MANY * (MANY - 1) / 2 * (count - 1));
    }
    free(source);
    free(sums);
}

/* More ranks than cores, beside processes that never wait. */
static void many_ranks_share_a_busy_machine(void)
{
    pid_t hogs[NUM_HOGS];
    (void)fflush(NULL);
    for (int i = 0; i < NUM_HOGS; i++) {
        hogs[i] = fork();
        if (hogs[i] == 0) {
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (volatile uint32_t spins = 0;; spins++) {
            }
        }
    }
    int64_t start_ns = wait_now_ns();
    ranks_run(&(ranks_options_t){.size = MANY, .chunk_bytes = 16384}, call_often, NULL);
    printf("%d ranks beside %d busy processes: %d all_reduces in %.0f ms\n", MANY, NUM_HOGS,
           NUM_CALLS, (double)(wait_now_ns() - start_ns) * 1e-6);
    for (int i = 0; i < NUM_HOGS; i++) {
        (void)kill(hogs[i], SIGKILL);
        (void)waitpid(hogs[i], NULL, 0);
    }
}

int main(void)
{
    srand(7);
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ranks_options_t options = {.size = 3};
    a_departure_is_no_silence();
    a_stopped_rank_is_late();
    ranks_run(&options, come_late, NULL);
    what_does_not_match_is_named();
    ranks_run(&options, abort_it, NULL);
    ranks_run(&options, abort_from_a_thread, NULL);
    ranks_run(&options, interrupt_a_wait, NULL);
    ranks_run(&options, use_in_a_child, NULL);
    ranks_run(&options, ask_for_too_much, NULL);
    many_ranks_share_a_busy_machine();
    return checks_finish("comm_faults");
}
