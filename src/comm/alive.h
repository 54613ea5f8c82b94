/* Whether a process lives: what its peers see the moment it is killed.
 *
 * A robust mutex in the process's segment is held, for the life of the communicator, by a thread
 * that sleeps (a robust mutex belongs to a thread, and the caller's threads come and go). The
 * kernel marks it when it kills the process, before it frees its memory: 0.2 to 4.5 ms after
 * SIGKILL, also for a process of 8 GiB. A pidfd becomes readable only after the memory is freed: 41
 * ms for 1 GiB, 134 for 4 GiB, 241 to 402 for 8 GiB; it is the second watch. kill(pid, 0) calls a
 * zombie alive and is not used. */
#ifndef COMM_ALIVE_H
#define COMM_ALIVE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "comm/layout.h"
#include "uncopy/status.h"

typedef struct alive_guard {
    pthread_t thread;
    comm_segment_t *segment;
    _Atomic uint32_t state; /* of the thread, see alive.c */
} alive_guard_t;

/* Initialises segment's mutex and returns when the guard holds it. guard stays where it is until
 * alive_stop. */
UNCOPY_MUST_CHECK uncopy_status_t alive_start(alive_guard_t *guard, comm_segment_t *segment);
/* Gives the mutex back and joins the thread; before the segment is unmapped, because the thread's
 * robust list points into it. */
void alive_stop(alive_guard_t *guard);

/* Whether the segment's owner has died. Sets segment->dead then. */
bool alive_is_dead(comm_segment_t *segment);

#endif
