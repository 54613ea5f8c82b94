/* A rank is killed (SIGKILL): in every collective, while a communicator is made, while a forked
 * child of it lives on. Every survivor gets an error that names it, nobody hangs, nothing is left,
 * and the next communicator of the same name works. Latencies are printed, not judged. */
#include <dirent.h>
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

enum { MOST_LATENCIES = 100000, BOUND_MS = 20000 };

/* Shared by the test and its ranks. */
typedef struct board {
    _Atomic int32_t num_ready;
    _Atomic int64_t killed_ns;
    int32_t operation, victim;
    bool uses_windows;
    pid_t child;                   /* of the victim */
    _Atomic int32_t num_latencies; /* kept over all kills */
    int64_t latency_ns[MOST_LATENCIES];
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

static void set_board(int32_t operation, bool uses_windows)
{
    atomic_store(&board->num_ready, 0);
    atomic_store(&board->killed_ns, 0);
    board->operation = operation;
    board->victim = rand() % 4;
    board->uses_windows = uses_windows;
    board->child = 0;
}

/* ---------------------------------------------------------------- in a collective */

enum { NUM_OPERATIONS = 12, COUNT = 40000 };

static uncopy_status_t make_window(uncopy_comm_t *comm)
{
    uncopy_window_t *window = NULL;
    uncopy_status_t status = uncopy_window_create(comm, 10000, NULL, &window);
    uncopy_window_release(window);
    return status;
}

static uncopy_status_t make_part(uncopy_comm_t *comm)
{
    uncopy_comm_t *part = NULL;
    uncopy_status_t status = uncopy_comm_split(comm, uncopy_comm_rank(comm) % 2, 0, &part);
    uncopy_comm_release(part);
    return status;
}

/* One call of the operation, of COUNT f32 or thereabouts; its result is checked. */
static uncopy_status_t call_operation(uncopy_comm_t *comm, int32_t operation, float *source,
                                      float *destination)
{
    int32_t rank = uncopy_comm_rank(comm), size = uncopy_comm_size(comm);
    const uncopy_dtype_t f32 = UNCOPY_DTYPE_F32;
    int64_t part = COUNT / size;
    uncopy_comm_block_t from[UNCOPY_COMM_MAX_SIZE], to[UNCOPY_COMM_MAX_SIZE];
    for (int32_t p = 0; p < size; p++) {
        from[p] = (uncopy_comm_block_t){source + p * part, part * 4};
        to[p] = (uncopy_comm_block_t){destination + p * part, part * 4};
    }
    uncopy_transfer_t ring[] = {
        {UNCOPY_TRANSFER_SEND, (rank + 1) % size, 0, source, COUNT * 4, f32},
        {UNCOPY_TRANSFER_RECEIVE, (rank + size - 1) % size, 0, destination, COUNT * 4, f32}};
    switch (operation) {
    case 0:
        return uncopy_comm_barrier(comm, NULL);
    case 1:
        return uncopy_comm_all_gather(comm, source, destination, part, f32, NULL);
    case 2:
        return uncopy_comm_reduce_scatter(comm, source, destination, part, f32, UNCOPY_REDUCE_SUM,
                                          NULL);
    case 3:
        return uncopy_comm_all_reduce(comm, source, destination, COUNT, f32, UNCOPY_REDUCE_SUM,
                                      NULL);
    case 4:
        return uncopy_comm_reduce(comm, source, destination, COUNT, f32, UNCOPY_REDUCE_SUM, 1,
                                  NULL);
    case 5:
        return uncopy_comm_broadcast(comm, source, COUNT, f32, 1, NULL);
    case 6:
        return uncopy_comm_gather(comm, source, part, to, f32, 1, NULL);
    case 7:
        return uncopy_comm_scatter(comm, from, destination, part, f32, 1, NULL);
    case 8:
        return uncopy_comm_all_to_all(comm, source, destination, part, f32, NULL);
    case 9:
        return uncopy_comm_transfer(comm, ring, 2, NULL);
    case 10:
        return make_window(comm);
    default:
        return make_part(comm);
    }
}

/* How long after the kill this rank heard of it. */
static void note_latency(void)
{
    int64_t killed_ns = atomic_load(&board->killed_ns);
    CHECK(killed_ns != 0); /* nothing failed before */
    board->latency_ns[atomic_fetch_add(&board->num_latencies, 1)] = wait_now_ns() - killed_ns;
}

static void call_until_it_fails(uncopy_comm_t *comm, void *argument)
{
    (void)argument;
    size_t bytes = COUNT * sizeof(float);
    uncopy_window_t *windows[2] = {NULL, NULL};
    float *memory[2];
    for (int i = 0; i < 2; i++) {
        memory[i] = malloc(bytes);
        if (board->uses_windows) {
            CHECK_OK(uncopy_window_create(comm, (int64_t)bytes, NULL, &windows[i]));
        }
    }
    float *source = board->uses_windows ? uncopy_window_data(windows[0]) : memory[0];
    float *destination = board->uses_windows ? uncopy_window_data(windows[1]) : memory[1];
    for (int32_t i = 0; i < COUNT; i++) {
        source[i] = 1;
    }
    atomic_fetch_add(&board->num_ready, 1);
    uncopy_status_t status = UNCOPY_OK;
    bool is_sum = board->operation == 2 || board->operation == 3;
    while (status == UNCOPY_OK) {
        status = call_operation(comm, board->operation, source, destination);
        if (status == UNCOPY_OK && board->operation != 0 && board->operation != 5) {
            float expected = is_sum ? (float)uncopy_comm_size(comm) : 1.0F;
            bool is_taker = board->operation != 4 && board->operation != 6 && board->operation < 10;
            CHECK(!is_taker || destination[1] == expected);
        }
    }
    note_latency();
    CHECK_EQUAL_I64(status, UNCOPY_ERROR_PEER);
    char words[64];
    (void)snprintf(words, sizeof(words), "rank %d", board->victim);
    CHECK_HOLDS(uncopy_last_message(), words);
    CHECK_STATUS(uncopy_comm_state(comm), UNCOPY_ERROR_PEER);
    CHECK_STATUS(uncopy_comm_barrier(comm, NULL), UNCOPY_ERROR_PEER);
    CHECK(!uncopy_comm_is_alive(comm, board->victim));
    for (int i = 0; i < 2; i++) {
        uncopy_window_release(windows[i]);
        free(memory[i]);
    }
}

static void kill_victim(ranks_t *ranks)
{
    atomic_store(&board->killed_ns, wait_now_ns());
    (void)kill(ranks->processes[board->victim], SIGKILL);
}

static void check_codes(ranks_t *ranks)
{
    int32_t codes[UNCOPY_COMM_MAX_SIZE];
    (void)ranks_wait(ranks, codes); /* files of a bootstrap that failed may be left */
    for (int32_t p = 0; p < ranks->size; p++) {
        if (!CHECK_EQUAL_I64(codes[p], p == board->victim ? -SIGKILL : 0)) {
            printf("    operation %d, rank %d, victim %d\n", board->operation, p, board->victim);
        }
    }
}

static void kill_one_of_four(int32_t operation, bool uses_windows)
{
    set_board(operation, uses_windows);
    ranks_options_t options = {.size = 4, .chunk_bytes = 65536, .timeout_ns = 30000000000};
    ranks_t ranks;
    ranks_start(&ranks, &options, call_until_it_fails, NULL);
    wait_until_ready(4);
    nap_us(rand() % 8000);
    kill_victim(&ranks);
    check_codes(&ranks);
}

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void show_latencies(void)
{
    int32_t count = atomic_load(&board->num_latencies);
    qsort(board->latency_ns, (size_t)count, sizeof(int64_t), compare);
    const int64_t *sorted = board->latency_ns;
    printf("%d survivors heard of a kill after: p50 %.2f ms, p99 %.2f ms, most %.2f ms\n", count,
           (double)sorted[count / 2] * 1e-6, (double)sorted[count * 99 / 100] * 1e-6,
           (double)sorted[count - 1] * 1e-6);
    CHECK(sorted[count - 1] < BOUND_MS * 1000000LL);
}

static void survivors_hear_of_it_in_every_collective(void)
{
    int32_t rounds = (int32_t)(20 * ranks_scale());
    for (int32_t operation = 0; operation < NUM_OPERATIONS; operation++) {
        for (int32_t i = 0; i < (rounds > 1 ? rounds : 1); i++) {
            kill_one_of_four(operation, i % 2 != 0);
        }
    }
    show_latencies();
}

/* ---------------------------------------------------------------- while a child lives on */

/* The child has copies of all that its parent has mapped and opened, as a worker of a loader
 * has. */
static void fork_and_call(uncopy_comm_t *comm, void *argument)
{
    if (uncopy_comm_rank(comm) == board->victim) {
        (void)fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            nap_us(10000000);
            _exit(0);
        }
        board->child = child;
    }
    call_until_it_fails(comm, argument);
}

static void a_child_does_not_hide_the_death(void)
{
    for (int32_t operation = 0; operation < NUM_OPERATIONS; operation += 3) {
        set_board(operation, false);
        ranks_options_t options = {.size = 4, .timeout_ns = 30000000000};
        ranks_t ranks;
        ranks_start(&ranks, &options, fork_and_call, NULL);
        wait_until_ready(4);
        kill_victim(&ranks);
        check_codes(&ranks);
        (void)kill(board->child, SIGKILL);
        CHECK(waitpid(board->child, NULL, 0) == board->child); /* inherited, see main */
    }
}

/* ---------------------------------------------------------------- while it is made */

static void make_and_call(int32_t rank, void *argument)
{
    uncopy_comm_options_t options = {
        .name = "making", .rank = rank, .size = 4, .timeout_ns = 300000000, .directory = argument};
    uncopy_comm_t *comm = NULL;
    uncopy_status_t status = uncopy_comm_create(NULL, &options, &comm);
    if (status == UNCOPY_OK) { /* made before the kill */
        CHECK_OK(uncopy_comm_set_timeout(comm, 30000000000));
        while ((status = uncopy_comm_barrier(comm, NULL)) == UNCOPY_OK) {
        }
        CHECK_EQUAL_I64(status, UNCOPY_ERROR_PEER);
        uncopy_comm_release(comm);
        return;
    }
    /* late: it died before it wrote its part; apart: it does not take memory any more */
    CHECK(comm == NULL);
    CHECK(status == UNCOPY_ERROR_TIMEOUT || status == UNCOPY_ERROR_APART ||
          status == UNCOPY_ERROR_PEER);
    CHECK(strlen(uncopy_last_message()) > 0);
}

static void survivors_hear_of_it_while_it_is_made(void)
{
    double scale = ranks_scale();
    for (int32_t i = 0; i < (int32_t)(10 * scale) + 1; i++) {
        char directory[] = "/tmp/uncopy-test-XXXXXX";
        if (!CHECK(mkdtemp(directory) != NULL)) {
            return;
        }
        set_board(0, false);
        ranks_t ranks;
        ranks_start_bare(&ranks, 4, make_and_call, directory);
        (void)snprintf(ranks.directory, sizeof(ranks.directory), "%s", directory);
        nap_us(rand() % 4000);
        kill_victim(&ranks);
        check_codes(&ranks);
    }
}

/* ---------------------------------------------------------------- nothing is left */

static int32_t count_named_memory(void)
{
    int32_t count = 0;
    DIR *folder = opendir("/dev/shm");
    for (struct dirent *e = NULL; folder != NULL && (e = readdir(folder)) != NULL;) {
        count += strstr(e->d_name, "uncopy") != NULL;
    }
    if (folder != NULL) {
        (void)closedir(folder);
    }
    return count;
}

int main(void)
{
    srand(7);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    survivors_hear_of_it_in_every_collective();
    a_child_does_not_hide_the_death();
    survivors_hear_of_it_while_it_is_made();
    CHECK_EQUAL_I64(count_named_memory(), 0);
    CHECK(waitpid(-1, NULL, WNOHANG) < 0); /* no process either */
    return checks_finish("comm_kills");
}
