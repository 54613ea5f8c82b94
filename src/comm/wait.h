/* Waiting for a word in shared memory.
 *
 * Three ways, each right in one case only:
 *   spin    the peer runs on another core now: reaction in 0.1 us
 *   yield   a rank shares this core: 1 us, where a sleep costs 5 to 30
 *   sleep   the peer is late, or a stranger wants the core
 * A wait spins or not by the core that the peer last posted from, then yields, then sleeps in short
 * spans with a look at the world between them (wait_watch_t: deaths, aborts, deadline, interrupt).
 *
 * Sleepers: whoever sleeps on a word counts itself in `sleepers` before it checks the word again;
 * whoever changes the word looks at `sleepers` after. Both orders are seq_cst, so one of them sees
 * the other (Dekker).
 *
 * Threads: a waiter_t is confined to the call that waits. */
#ifndef COMM_WAIT_H
#define COMM_WAIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "uncopy/status.h"

typedef struct waiter {
    bool is_crowded;         /* more ranks than cores */
    int32_t rest, next_rest; /* waits that go without yields; how many after the next long yield */
    int64_t slept, waited_ns;
} waiter_t;

/* Looks for a reason to end a wait: anything but UNCOPY_OK ends it. */
typedef struct wait_watch {
    void *self;
    uncopy_status_t (*look)(void *self);
} wait_watch_t;

int64_t wait_now_ns(void);
/* Cores that this process may run on, at least 1. */
int32_t wait_num_cores(void);

void waiter_init(waiter_t *waiter, bool is_crowded);

/* Whether word, a counter that wraps, has come to target. acquire: pairs with wait_publish. */
static inline bool wait_has_come(_Atomic uint32_t *word, uint32_t target)
{
    return (int32_t)(atomic_load_explicit(word, memory_order_acquire) - target) >= 0;
}

/* Returns when word has come to target, or with the code of the watch. peer_cpu: the core where
 * whoever changes word ran last, negative if unknown. */
UNCOPY_MUST_CHECK uncopy_status_t wait_until(waiter_t *waiter, _Atomic uint32_t *word,
                                             _Atomic uint32_t *sleepers, uint32_t target,
                                             int32_t peer_cpu, const wait_watch_t *watch);

/* Sets word and wakes whoever sleeps on it. */
void wait_publish(_Atomic uint32_t *word, _Atomic uint32_t *sleepers, uint32_t value);
/* Adds one. */
void wait_ring(_Atomic uint32_t *word, _Atomic uint32_t *sleepers);
/* Wakes all sleepers without a change, so that they look at the world. */
void wait_wake(_Atomic uint32_t *word);

#endif
