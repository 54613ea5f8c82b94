/* A pool of threads for the instructions of plans.
 *
 * Work is a number of chunks and a function that does a range of them. Each thread that takes part
 * has a share of the chunks, always the same share of the same number, so that what it left in its
 * caches is there for the next instruction; whoever is through with its own share takes from the
 * others'. The caller is one of the threads, and waits in the end only for chunks that another has
 * taken: a worker that gets no processor costs nothing.
 *
 * Owner: a context. Threads: pool_run may be called by any number of threads at once, and from
 * within a chunk; one call at a time has the workers, the others do their chunks alone. A process
 * made by fork starts with an empty pool, whatever the parent was doing. */
#ifndef RUN_POOL_H
#define RUN_POOL_H

#include <stdint.h>

#include "base/memory.h"

enum {
    POOL_MAX_THREADS = 64,
    /* Measured by bench/threads.c on a guest with two Zen 4 processors: a region costs 1 us while
     * the worker looks for work, and its caches take the data over at about the speed of the third
     * level; waking a worker costs 3 to 10 us, of which the caller pays 2. Four adds of 6.6 us each
     * take 0.89 of their time on two threads, of 1.6 us each 1.5 times. */
    POOL_FORK_NS = 4000,  /* work below this stays on the calling thread */
    POOL_WAKE_NS = 40000, /* work below this wakes nobody */
    POOL_SPIN_NS = 10000, /* that an idle thread looks for work before it sleeps */
};

typedef struct pool pool_t;

/* Does chunks [first, end). May be called from several threads at once. */
typedef void (*pool_body_t)(void *data, uint32_t first, uint32_t end);

/* Makes a pool without threads; they start when work needs them. Errors: UNCOPY_ERROR_MEMORY. */
UNCOPY_MUST_CHECK uncopy_status_t pool_create(const uncopy_allocator_t *allocator,
                                              pool_t **out_pool);
/* Ends the threads. No call may be running. NULL is allowed. */
void pool_release(pool_t *pool);

/* Has body do chunks [0, num_chunks), each once, and returns when all are done. num_threads: how
 * many may take part, the caller included. cost_ns: an estimate of the whole on one thread. pool
 * NULL: the caller alone. */
void pool_run(pool_t *pool, int num_threads, uint32_t num_chunks, int64_t cost_ns, pool_body_t body,
              void *data);

/* Processors that the process could use when the pool was made. */
int pool_num_processors(const pool_t *pool);

/* Wakes sleeping workers for work that comes within POOL_SPIN_NS. */
void pool_wake(pool_t *pool, int num_threads);

/* Workers that were started and not ended, for tests and reports. */
int pool_num_workers(const pool_t *pool);

#endif
