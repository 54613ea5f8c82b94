/* The pool. See pool.h for what it does; this is how.
 *
 * A share is one 64-bit word, begin in the low half, end in the high one. Its owner takes from the
 * front, half of what is left at a time; others take half from the back. Taking is a compare and
 * swap of the word, so begin and end never disagree.
 *
 *        share of thread 0                 share of thread 1
 *      [ begin ....... end )             [ begin ....... end )
 *        owner ->   <- others              owner ->   <- others
 *
 * Invariants
 *   p1 body, data are written before the shares are (release), and read only by who has taken
 *      chunks (acquire): they stand still until those chunks are counted as done
 *   p2 done counts in steps of 2; its bit 0 says that the caller sleeps on it
 *   p3 the caller returns when done says that all chunks are; then all shares are empty
 *   p4 sequence changes when there is work; a worker that found none sleeps while it has the value
 *      that it saw. sleepers is raised before it sleeps, and read after sequence is changed, both
 *      in the one order of seq_cst operations, so one of the two sees the other. Who wakes all sets
 *      it to 0 first: it is at least the number of those that sleep
 *   p5 who has set is_busy, and nobody else, starts workers, writes shares and sequence
 *
 * All of this lies in pages that the system clears in the child of a fork: zero is the state of an
 * empty pool. Where the system cannot (Linux before 4.14), a pool has no threads. */
#define _GNU_SOURCE /* syscall, madvise, sched_getcpu, SCHED_BATCH */
#include "run/pool.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/status.h"

enum { LINE_BYTES = 64, PAUSES_PER_LOOK = 16, WORKER_STACK_BYTES = 1 << 20 };

/* What a thread owns, on a cache line of its own. */
typedef struct seat {
    _Alignas(LINE_BYTES) _Atomic uint64_t share;
    _Atomic int processor; /* where its thread was seen last; relaxed: a hint */
    pthread_t thread;
    pool_t *pool;
    int number;
} seat_t;

/* What is lost in the child of a fork. */
typedef struct pool_state {
    _Alignas(LINE_BYTES) _Atomic uint32_t sequence;
    _Atomic uint32_t sleepers;
    _Atomic bool is_ending;
    _Alignas(LINE_BYTES) _Atomic uint32_t done;
    uint32_t done_last; /* value of done, without bit 0, when all chunks are done */
    pool_body_t body;
    void *data;
    _Alignas(LINE_BYTES) _Atomic bool is_busy;
    _Atomic int num_workers;
    seat_t seats[POOL_MAX_THREADS]; /* 0 is the caller's */
} pool_state_t;

struct pool {
    const uncopy_allocator_t *allocator;
    pool_state_t *state;
    size_t state_bytes;
    int num_processors;
};

/* ---- the system ---- */

static void sleep_while(_Atomic uint32_t *word, uint32_t value)
{
    (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void wake(_Atomic uint32_t *word, int count)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

static int64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void pause_briefly(void)
{
    for (int i = 0; i < PAUSES_PER_LOOK; i++) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        __asm__ volatile("yield");
#endif
    }
}

static void note_processor(seat_t *seat)
{
    atomic_store_explicit(&seat->processor, sched_getcpu(), memory_order_relaxed);
}

static bool is_on_processor(const seat_t *seat, int processor)
{
    return atomic_load_explicit(&seat->processor, memory_order_relaxed) == processor;
}

/* Processors in this process's mask. */
static int count_processors(void)
{
    enum { MASK_WORDS = 128 }; /* 8,192 processors */
    unsigned long mask[MASK_WORDS] = {0};
    long bytes = syscall(SYS_sched_getaffinity, 0, sizeof(mask), mask);
    int count = 0;
    for (size_t i = 0; bytes > 0 && i < (size_t)bytes / sizeof(mask[0]); i++) {
        count += __builtin_popcountl(mask[i]);
    }
    return count > 0 ? count : 1;
}

/* ---- chunks ---- */

static uint64_t share_of(uint32_t begin, uint32_t end)
{
    return (uint64_t)end << 32 | begin;
}

/* Takes half of a share, at least one chunk; false when it is empty. */
static bool take(seat_t *seat, bool is_own, uint32_t *out_first, uint32_t *out_end)
{
    uint64_t seen = atomic_load_explicit(&seat->share, memory_order_relaxed);
    for (;;) {
        uint32_t begin = (uint32_t)seen, end = (uint32_t)(seen >> 32);
        if (begin >= end) {
            return false;
        }
        uint32_t half = (end - begin + 1) / 2;
        uint64_t rest = is_own ? share_of(begin + half, end) : share_of(begin, end - half);
        /* acquire: pairs with the release in set_shares, so that body and data are seen (p1) */
        if (atomic_compare_exchange_weak_explicit(&seat->share, &seen, rest, memory_order_acquire,
                                                  memory_order_relaxed)) {
            *out_first = is_own ? begin : end - half;
            *out_end = *out_first + half;
            return true;
        }
    }
}

/* Does chunks until none is to be had: of the own share first, then of the others in turn. */
static void work(pool_state_t *state, int number, int num_seats)
{
    uint32_t first, end;
    note_processor(&state->seats[number]);
    for (int i = 0; i < num_seats; i++) {
        seat_t *seat = &state->seats[(number + i) % num_seats];
        while (take(seat, i == 0, &first, &end)) {
            state->body(state->data, first, end);
            uint32_t step = 2 * (end - first);
            uint32_t last = state->done_last;
            /* release: what the chunks wrote; pairs with the acquire in await_done. seq_cst is not
             * needed: the caller's bit is in the same word */
            uint32_t before = atomic_fetch_add_explicit(&state->done, step, memory_order_acq_rel);
            if ((before & 1) != 0 && before - 1 + step == last) {
                wake(&state->done, 1);
            }
        }
    }
}

static void set_shares(pool_state_t *state, int num_seats, uint32_t num_chunks)
{
    for (int i = 0; i < num_seats; i++) {
        uint64_t begin = (uint64_t)num_chunks * (unsigned)i / (unsigned)num_seats;
        uint64_t end = (uint64_t)num_chunks * (unsigned)(i + 1) / (unsigned)num_seats;
        /* release: p1 */
        atomic_store_explicit(&state->seats[i].share, share_of((uint32_t)begin, (uint32_t)end),
                              memory_order_release);
    }
}

/* Whether a worker was last seen where the caller runs: spinning would keep it from its chunk. */
static bool worker_is_beside(const pool_state_t *state, int num_seats)
{
    int processor = sched_getcpu();
    bool is_beside = false;
    for (int i = 1; i < num_seats; i++) {
        is_beside = is_beside || is_on_processor(&state->seats[i], processor);
    }
    return is_beside;
}

/* Waits for chunks that others have taken. */
static void await_done(pool_state_t *state, int num_seats)
{
    uint32_t last = state->done_last;
    int64_t end_ns = 0;
    for (;;) {
        /* acquire: pairs with the release in work */
        uint32_t seen = atomic_load_explicit(&state->done, memory_order_acquire);
        if ((seen & ~1u) == last) {
            return;
        }
        if (end_ns == 0) {
            end_ns = worker_is_beside(state, num_seats) ? 1 : now_ns() + POOL_SPIN_NS;
        }
        if (end_ns != 1 && now_ns() < end_ns) {
            pause_briefly();
            continue;
        }
        seen = atomic_fetch_or_explicit(&state->done, 1, memory_order_acq_rel) | 1;
        if ((seen & ~1u) != last) {
            sleep_while(&state->done, seen);
        }
    }
}

/* ---- workers ---- */

/* Looks for work until there is some or POOL_SPIN_NS have gone by, not at all where the caller
 * runs: it would keep the work from coming. The value of sequence seen last. */
static uint32_t look_for_work(pool_state_t *state, uint32_t value)
{
    int64_t end_ns = now_ns() + POOL_SPIN_NS;
    uint32_t seen;
    /* acquire: pairs with the store in call_workers */
    while ((seen = atomic_load_explicit(&state->sequence, memory_order_acquire)) == value &&
           !is_on_processor(&state->seats[0], sched_getcpu()) && now_ns() < end_ns) {
        pause_briefly();
    }
    return seen;
}

/* A thread of the batch kind does not take the processor from the one that wakes it. */
static void be_polite(void)
{
    struct sched_param none = {0};
    (void)sched_setscheduler(0, SCHED_BATCH, &none);
}

static void *worker_main(void *argument)
{
    seat_t *seat = argument;
    pool_state_t *state = seat->pool->state;
    uint32_t seen = 0;
    be_polite();
    /* acquire: pairs with the release in pool_release */
    while (!atomic_load_explicit(&state->is_ending, memory_order_acquire)) {
        uint32_t now = look_for_work(state, seen);
        if (now == seen) {
            atomic_fetch_add_explicit(&state->sleepers, 1, memory_order_seq_cst);
            sleep_while(&state->sequence, seen);
            continue;
        }
        seen = now;
        /* The low bits say how many take part; 0 is a call to stay awake. */
        int num_seats = (int)(now % (POOL_MAX_THREADS + 1));
        if (seat->number < num_seats) {
            work(state, seat->number, num_seats);
        }
    }
    return NULL;
}

/* Signals are the program's own threads' to handle. */
static bool start_worker(pool_t *pool, int number)
{
    seat_t *seat = &pool->state->seats[number];
    pthread_attr_t attributes;
    sigset_t all, old;
    if (pthread_attr_init(&attributes) != 0) {
        return false;
    }
    seat->pool = pool;
    seat->number = number;
    (void)pthread_attr_setstacksize(&attributes, WORKER_STACK_BYTES);
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    bool is_started = pthread_create(&seat->thread, &attributes, worker_main, seat) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    (void)pthread_attr_destroy(&attributes);
    return is_started;
}

/* As many as can be had; work that has no worker is done by the others. */
static void start_workers(pool_t *pool, int num_threads)
{
    int have = atomic_load_explicit(&pool->state->num_workers, memory_order_relaxed);
    while (have + 1 < num_threads && start_worker(pool, have + 1)) {
        have++;
        atomic_store_explicit(&pool->state->num_workers, have, memory_order_relaxed);
    }
}

/* Tells workers of work for num_seats of them. */
static void call_workers(pool_state_t *state, int num_seats)
{
    uint32_t old = atomic_load_explicit(&state->sequence, memory_order_relaxed);
    uint32_t next = (old / (POOL_MAX_THREADS + 1) + 1) * (POOL_MAX_THREADS + 1);
    next = next > UINT32_MAX - 2 * (POOL_MAX_THREADS + 1) ? POOL_MAX_THREADS + 1 : next;
    atomic_store_explicit(&state->sequence, next + (uint32_t)num_seats, memory_order_seq_cst);
    if (atomic_load_explicit(&state->sleepers, memory_order_seq_cst) != 0) {
        atomic_store_explicit(&state->sleepers, 0, memory_order_seq_cst);
        wake(&state->sequence, INT_MAX);
    }
}

static void end_workers(pool_state_t *state)
{
    int num_workers = atomic_load_explicit(&state->num_workers, memory_order_relaxed);
    /* release: pairs with the acquire in worker_main */
    atomic_store_explicit(&state->is_ending, true, memory_order_release);
    call_workers(state, 0);
    for (int i = 1; i <= num_workers; i++) {
        (void)pthread_join(state->seats[i].thread, NULL);
    }
}

/* ---- the pool ---- */

uncopy_status_t pool_create(const uncopy_allocator_t *allocator, pool_t **out_pool)
{
    pool_t *pool = memory_allocate(allocator, sizeof(*pool), "a thread pool");
    if (pool == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t bytes = (sizeof(pool_state_t) + page - 1) / page * page;
    void *state = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (state == MAP_FAILED) {
        memory_release(allocator, pool, sizeof(*pool));
        return status_no_memory(bytes, "a thread pool");
    }
    if (madvise(state, bytes, MADV_WIPEONFORK) != 0) {
        (void)munmap(state, bytes); /* Linux before 4.14 */
        state = NULL;
    }
    *pool = (pool_t){allocator, state, bytes, count_processors()};
    *out_pool = pool;
    return UNCOPY_OK;
}

void pool_release(pool_t *pool)
{
    if (pool == NULL) {
        return;
    }
    if (pool->state != NULL) {
        end_workers(pool->state);
        (void)munmap(pool->state, pool->state_bytes);
    }
    memory_release(pool->allocator, pool, sizeof(*pool));
}

/* Whether to share work out: it must be worth a region, and more if workers have to be woken. */
static bool is_worth_it(const pool_state_t *state, int num_threads, int64_t cost_ns)
{
    if (cost_ns < POOL_FORK_NS) {
        return false;
    }
    int awake = atomic_load_explicit(&state->num_workers, memory_order_relaxed) -
                (int)atomic_load_explicit(&state->sleepers, memory_order_relaxed);
    return cost_ns >= POOL_WAKE_NS || awake + 1 >= num_threads;
}

static bool claim(pool_state_t *state)
{
    /* acquire: pairs with the release in disclaim */
    return !atomic_load_explicit(&state->is_busy, memory_order_relaxed) &&
           !atomic_exchange_explicit(&state->is_busy, true, memory_order_acquire);
}

static void disclaim(pool_state_t *state)
{
    atomic_store_explicit(&state->is_busy, false, memory_order_release);
}

/* At least 1. */
static int usable_threads(const pool_t *pool, int num_threads)
{
    if (pool == NULL || pool->state == NULL || num_threads < 2) {
        return 1;
    }
    return num_threads < POOL_MAX_THREADS ? num_threads : POOL_MAX_THREADS;
}

void pool_run(pool_t *pool, int num_threads, uint32_t num_chunks, int64_t cost_ns, pool_body_t body,
              void *data)
{
    int limit = usable_threads(pool, num_threads);
    limit = num_chunks < (uint32_t)limit ? (int)num_chunks : limit;
    if (limit < 2 || num_chunks > INT32_MAX || !is_worth_it(pool->state, limit, cost_ns) ||
        !claim(pool->state)) {
        body(data, 0, num_chunks);
        return;
    }
    pool_state_t *state = pool->state;
    start_workers(pool, limit);
    state->body = body;
    state->data = data;
    state->done_last = 2 * num_chunks;
    atomic_store_explicit(&state->done, 0, memory_order_relaxed);
    note_processor(&state->seats[0]);
    set_shares(state, limit, num_chunks);
    call_workers(state, limit);
    work(state, 0, limit);
    await_done(state, limit);
    disclaim(state);
}

void pool_wake(pool_t *pool, int num_threads)
{
    int limit = usable_threads(pool, num_threads);
    if (limit < 2 || !claim(pool->state)) {
        return;
    }
    start_workers(pool, limit);
    if (atomic_load_explicit(&pool->state->sleepers, memory_order_relaxed) != 0) {
        call_workers(pool->state, 0);
    }
    disclaim(pool->state);
}

int pool_num_processors(const pool_t *pool)
{
    return pool->num_processors;
}

int pool_num_workers(const pool_t *pool)
{
    return pool->state == NULL
               ? 0
               : atomic_load_explicit(&pool->state->num_workers, memory_order_relaxed);
}
