/* The thread pool: every chunk runs once, whoever calls, however many, and across fork; cuts give
 * the bits of the whole call. */
#define _DEFAULT_SOURCE
#include "check.h"
#include "cpu/cpu.h"
#include "run/cut.h"
#include "run/pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LONG_NS = 1000000, MOST_CHUNKS = 1000 };

/* How often each chunk was done; and what to do within one. */
typedef struct tally {
    atomic_int done[MOST_CHUNKS];
    atomic_int num_at_once, most_at_once;
    int work;
} tally_t;

static void count_chunks(void *data, uint32_t first, uint32_t end)
{
    tally_t *tally = data;
    int now = atomic_fetch_add(&tally->num_at_once, 1) + 1;
    int most = atomic_load(&tally->most_at_once);
    while (now > most && !atomic_compare_exchange_weak(&tally->most_at_once, &most, now)) {
    }
    for (uint32_t i = first; i < end; i++) {
        for (volatile int w = 0; w < tally->work; w++) {
        }
        atomic_fetch_add_explicit(&tally->done[i], 1, memory_order_relaxed);
    }
    atomic_fetch_sub(&tally->num_at_once, 1);
}

static void start_tally(tally_t *tally)
{
    for (int i = 0; i < MOST_CHUNKS; i++) {
        atomic_store(&tally->done[i], 0);
    }
    atomic_store(&tally->most_at_once, 0);
}

static bool each_once(const tally_t *tally, uint32_t num_chunks)
{
    for (uint32_t i = 0; i < MOST_CHUNKS; i++) {
        if (atomic_load(&tally->done[i]) != (i < num_chunks ? 1 : 0)) {
            return false;
        }
    }
    return true;
}

static void does_each_chunk_once(pool_t *pool)
{
    static tally_t tally;
    static const uint32_t counts[] = {0, 1, 2, 3, 7, 64, 999, 1000};
    bool holds = true;
    for (int round = 0; round < 2000; round++) {
        uint32_t count = counts[(unsigned)round % 8];
        start_tally(&tally);
        tally.work = round % 3 * 20;
        pool_run(pool, 1 + round % 5, count, LONG_NS, count_chunks, &tally);
        holds =
            holds && each_once(&tally, count) && atomic_load(&tally.most_at_once) <= 1 + round % 5;
    }
    CHECK(holds);
    CHECK_EQUAL_I64(pool_num_workers(pool), 4);
}

static void small_work_and_one_thread_stay_with_the_caller(const uncopy_allocator_t *allocator)
{
    static tally_t tally;
    pool_t *pool = NULL;
    CHECK(pool_create(allocator, &pool) == UNCOPY_OK);
    start_tally(&tally);
    pool_run(pool, 2, 8, POOL_FORK_NS - 1, count_chunks, &tally);
    CHECK(each_once(&tally, 8));
    start_tally(&tally);
    pool_run(pool, 1, 8, LONG_NS, count_chunks, &tally);
    CHECK(each_once(&tally, 8));
    start_tally(&tally);
    pool_run(NULL, 2, 8, LONG_NS, count_chunks, &tally);
    CHECK(each_once(&tally, 8));
    CHECK_EQUAL_I64(pool_num_workers(pool), 0);
    CHECK(pool_num_processors(pool) >= 1);
    pool_wake(pool, 3);
    CHECK_EQUAL_I64(pool_num_workers(pool), 2);
    pool_release(pool);
    pool_release(NULL);
}

typedef struct caller {
    pool_t *pool;
    tally_t tally;
    bool holds;
} caller_t;

static void *call_often(void *data)
{
    caller_t *caller = data;
    caller->holds = true;
    for (int round = 0; round < 1000; round++) {
        start_tally(&caller->tally);
        pool_run(caller->pool, 2, 37, LONG_NS, count_chunks, &caller->tally);
        caller->holds = caller->holds && each_once(&caller->tally, 37);
    }
    return NULL;
}

static void several_threads_call_at_once(pool_t *pool)
{
    enum { CALLERS = 4 };
    caller_t *callers = calloc(CALLERS, sizeof(*callers));
    pthread_t threads[CALLERS];
    for (int i = 0; i < CALLERS; i++) {
        callers[i].pool = pool;
        CHECK(pthread_create(&threads[i], NULL, call_often, &callers[i]) == 0);
    }
    for (int i = 0; i < CALLERS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
        CHECK(callers[i].holds);
    }
    free(callers);
}

typedef struct nested {
    pool_t *pool;
    atomic_int sum;
} nested_t;

static void add_chunks(void *data, uint32_t first, uint32_t end)
{
    atomic_fetch_add(&((nested_t *)data)->sum, (int)(end - first));
}

static void call_within(void *data, uint32_t first, uint32_t end)
{
    nested_t *nested = data;
    for (uint32_t i = first; i < end; i++) {
        pool_run(nested->pool, 2, 10, LONG_NS, add_chunks, nested);
    }
}

static void a_chunk_may_call_the_pool(pool_t *pool)
{
    nested_t nested = {.pool = pool};
    pool_run(pool, 2, 20, LONG_NS, call_within, &nested);
    CHECK_EQUAL_I64(atomic_load(&nested.sum), 200);
}

/* What lies in plain memory before a call is seen by chunks, and what they write after it. */
static void copy_chunks(void *data, uint32_t first, uint32_t end)
{
    int *values = data;
    for (uint32_t i = first; i < end; i++) {
        values[MOST_CHUNKS + i] = values[i];
    }
}

static void memory_is_handed_over_and_back(pool_t *pool)
{
    static int values[2 * MOST_CHUNKS];
    bool holds = true;
    for (int round = 1; round <= 300; round++) {
        for (int i = 0; i < MOST_CHUNKS; i++) {
            values[i] = round + i;
        }
        pool_run(pool, 3, MOST_CHUNKS, LONG_NS, copy_chunks, values);
        for (int i = 0; i < MOST_CHUNKS; i++) {
            holds = holds && values[MOST_CHUNKS + i] == round + i;
        }
    }
    CHECK(holds);
}

static void workers_sleep_and_are_woken(pool_t *pool)
{
    static tally_t tally;
    bool holds = true;
    for (int round = 0; round < 20; round++) {
        (void)usleep(2000);
        start_tally(&tally);
        pool_run(pool, 2, 64, LONG_NS, count_chunks, &tally);
        holds = holds && each_once(&tally, 64);
    }
    CHECK(holds);
}

#if !defined(__SANITIZE_THREAD__) /* which has no fork of a process with threads */
static void *call_until(void *data)
{
    nested_t *nested = data;
    while (atomic_load(&nested->sum) >= 0) {
        static tally_t tally;
        pool_run(nested->pool, 2, 64, LONG_NS, count_chunks, &tally);
    }
    return NULL;
}

/* The child has no worker and may have been made while another thread had the pool. */
static void a_child_starts_with_an_empty_pool(pool_t *pool)
{
    nested_t busy = {.pool = pool};
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, call_until, &busy) == 0);
    for (int round = 0; round < 20; round++) {
        pid_t child = fork();
        if (child == 0) {
            static tally_t tally;
            bool is_empty = pool_num_workers(pool) == 0;
            start_tally(&tally);
            pool_run(pool, 2, 64, LONG_NS, count_chunks, &tally);
            bool is_right = is_empty && each_once(&tally, 64) && pool_num_workers(pool) == 1;
            pool_release(pool);
            _exit(is_right ? 0 : 1);
        }
        int status = -1;
        CHECK(child > 0 && waitpid(child, &status, 0) == child);
        CHECK_EQUAL_I64(status, 0);
    }
    atomic_store(&busy.sum, -1);
    CHECK(pthread_join(thread, NULL) == 0);
}
#endif

/* ---- cuts ---- */

static void fill_bytes(unsigned char *bytes, size_t count)
{
    uint32_t state = 1;
    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        bytes[i] = (unsigned char)(state >> 24) & 0x3f; /* small, finite numbers */
    }
}

/* A call over f32 operands: rank sizes, the result contiguous, operands broadcast in dims of
 * their mask. */
static kernel_call_t make_call(opcode_t opcode, int32_t num_operands, int32_t rank,
                               const int64_t *sizes, const unsigned *broadcast)
{
    kernel_call_t call = {.opcode = opcode, .num_operands = num_operands, .rank = rank};
    for (int32_t i = 0; i < num_operands; i++) {
        int64_t stride = sizeof(float);
        call.operands[i].dtype = UNCOPY_DTYPE_F32;
        for (int32_t d = rank - 1; d >= 0; d--) {
            bool is_broadcast = (broadcast[i] >> (unsigned)d & 1) != 0;
            call.sizes[d] = sizes[d];
            call.operands[i].strides[d] = is_broadcast ? 0 : stride;
            stride *= is_broadcast ? 1 : sizes[d];
        }
    }
    return call;
}

static bool parts_agree(const kernel_call_t *call, int64_t cost_ns, size_t result_bytes)
{
    enum { ROOM = 1 << 20 };
    static unsigned char left[ROOM], right[ROOM], whole[ROOM], parts[ROOM];
    kernel_function_t function = cpu_find(call);
    if (!CHECK(function != NULL && result_bytes <= ROOM)) {
        return false;
    }
    fill_bytes(left, ROOM);
    fill_bytes(right, ROOM);
    memset(whole, 0xff, ROOM);
    memset(parts, 0xff, ROOM);
    char *data[KERNEL_MAX_OPERANDS] = {(char *)whole, (char *)left, (char *)right};
    function(call, data);
    cut_t cut = cut_choose(call, cost_ns);
    data[0] = (char *)parts;
    for (uint32_t i = 0; i < cut.num_chunks; i += 1 + i % 3) {
        uint32_t end = i + 1 + i % 3;
        cut_run(call, function, &cut, data, i, end < cut.num_chunks ? end : cut.num_chunks);
    }
    return cut.num_chunks > 1 && memcmp(whole, parts, ROOM) == 0;
}

static void parts_of_elementwise_calls_are_the_whole(void)
{
    static const int64_t shapes[][3] = {{1, 1, 100000}, {3, 100, 77}, {1000, 1, 65}, {64, 40, 1},
                                        {2, 2, 9000},   {9, 9, 9},    {300, 300, 1}, {5, 1, 1031}};
    static const unsigned none[2] = {0, 0}, mixed[2] = {0, 5};
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        size_t bytes = sizeof(float);
        for (int d = 0; d < 3; d++) {
            bytes *= (size_t)shapes[i][d];
        }
        for (int64_t cost = 5000; cost < 10000000; cost *= 9) {
            kernel_call_t spread = make_call(OPCODE_COPY, 2, 3, shapes[i], mixed);
            kernel_call_t copy = make_call(OPCODE_COPY, 2, 3, shapes[i], none);
            CHECK(parts_agree(&spread, cost, bytes));
            CHECK(parts_agree(&copy, cost, bytes));
        }
    }
}

static kernel_call_t make_matmul(int64_t batch, int64_t m, int64_t n, int64_t k, bool is_transposed)
{
    kernel_call_t call = {.opcode = OPCODE_MATMUL, .num_operands = 3, .rank = 3, .k = k};
    const int64_t item = sizeof(float), sizes[3] = {batch, m, n};
    for (int i = 0; i < 3; i++) {
        call.sizes[i] = sizes[i];
        call.operands[i].dtype = UNCOPY_DTYPE_F32;
    }
    const int64_t strides[3][3] = {{m * n * item, n * item, item},
                                   {m * k * item, k * item, 0},
                                   {k * n * item, 0, is_transposed ? k * item : item}};
    for (int i = 0; i < 3; i++) {
        memcpy(call.operands[i].strides, strides[i], sizeof(strides[i]));
    }
    call.k_strides[0] = item;
    call.k_strides[1] = is_transposed ? item : n * item;
    return call;
}

static void parts_of_a_matmul_are_the_whole(void)
{
    static const int64_t shapes[][4] = {{1, 1, 1000, 60},  {1, 7, 130, 100}, {1, 130, 7, 100},
                                        {1, 200, 200, 65}, {9, 20, 30, 40},  {2, 129, 5, 300},
                                        {3, 4, 700, 33},   {1, 300, 64, 70}};
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        const int64_t *s = shapes[i];
        size_t bytes = (size_t)(s[0] * s[1] * s[2]) * sizeof(float);
        for (int is_transposed = 0; is_transposed < 2; is_transposed++) {
            kernel_call_t call = make_matmul(s[0], s[1], s[2], s[3], is_transposed != 0);
            CHECK(parts_agree(&call, 5000, bytes));
            CHECK(parts_agree(&call, 5000000, bytes));
        }
    }
}

static void small_and_empty_calls_are_not_cut(void)
{
    static const int64_t small[1] = {500}, empty[2] = {0, 4};
    static const unsigned none[3] = {0, 0, 0};
    kernel_call_t call = make_call(OPCODE_ADD, 3, 1, small, none);
    CHECK(cut_choose(&call, LONG_NS).num_chunks <= 1);
    call = make_call(OPCODE_ADD, 3, 2, empty, none);
    CHECK(cut_choose(&call, LONG_NS).num_chunks <= 1);
    static const int64_t big[1] = {1 << 20};
    call = make_call(OPCODE_ADD, 3, 1, big, none);
    CHECK(cut_choose(&call, 1000).num_chunks == 1);
    CHECK(cut_choose(&call, LONG_NS * 100).num_chunks == CUT_MAX_CHUNKS);
    CHECK(cut_units(1, LONG_NS) == 1 && cut_units(0, LONG_NS) == 1);
    CHECK(cut_units(1000, 1000) == 1 && cut_units(3, LONG_NS) == 3);
    CHECK(cut_units(1000, LONG_NS * 100) == CUT_MAX_CHUNKS);
}

int main(void)
{
    pool_t *pool = NULL;
    small_work_and_one_thread_stay_with_the_caller(&memory_system_allocator);
    CHECK(pool_create(&memory_system_allocator, &pool) == UNCOPY_OK);
    does_each_chunk_once(pool);
    several_threads_call_at_once(pool);
    a_chunk_may_call_the_pool(pool);
    memory_is_handed_over_and_back(pool);
    workers_sleep_and_are_woken(pool);
#if !defined(__SANITIZE_THREAD__)
    a_child_starts_with_an_empty_pool(pool);
#endif
    pool_release(pool);
    parts_of_elementwise_calls_are_the_whole();
    parts_of_a_matmul_are_the_whole();
    small_and_empty_calls_are_not_cut();
    return check_finish("pool");
}
