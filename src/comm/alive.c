/* Whether a process lives: see alive.h. */
#include "comm/alive.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/status.h"

enum { STARTING = 0, HOLDING = 1, LEAVING = 2, STACK_BYTES = 64 << 10 };

static void sleep_while(_Atomic uint32_t *state, uint32_t value)
{
    /* acquire: pairs with set_state */
    while (atomic_load_explicit(state, memory_order_acquire) == value) {
        (void)syscall(SYS_futex, state, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
    }
}

static void set_state(_Atomic uint32_t *state, uint32_t value)
{
    /* release: pairs with sleep_while */
    atomic_store_explicit(state, value, memory_order_release);
    (void)syscall(SYS_futex, state, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void *guard_main(void *self)
{
    alive_guard_t *guard = self;
    (void)pthread_mutex_lock(&guard->segment->alive);
    set_state(&guard->state, HOLDING);
    sleep_while(&guard->state, HOLDING);
    (void)pthread_mutex_unlock(&guard->segment->alive);
    return NULL;
}

static int init_mutex(pthread_mutex_t *mutex)
{
    pthread_mutexattr_t attributes;
    int error = pthread_mutexattr_init(&attributes);
    if (error != 0) {
        return error;
    }
    (void)pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    (void)pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    error = pthread_mutex_init(mutex, &attributes);
    (void)pthread_mutexattr_destroy(&attributes);
    return error;
}

/* With all signals blocked: handlers of the program belong to the program's threads. */
static int start_thread(alive_guard_t *guard)
{
    pthread_attr_t attributes;
    int error = pthread_attr_init(&attributes);
    if (error != 0) {
        return error;
    }
    (void)pthread_attr_setstacksize(&attributes, STACK_BYTES); /* too small: the default stays */
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_BLOCK, &all, &before);
    error = pthread_create(&guard->thread, &attributes, guard_main, guard);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attributes);
    return error;
}

uncopy_status_t alive_start(alive_guard_t *guard, comm_segment_t *segment)
{
    guard->segment = segment;
    atomic_init(&guard->state, STARTING);
    int error = init_mutex(&segment->alive);
    if (error == 0) {
        error = start_thread(guard);
    }
    if (error != 0) {
        return status_fail(UNCOPY_ERROR_SYSTEM, "the guard thread of a communicator: %s",
                           strerror(error));
    }
    sleep_while(&guard->state, STARTING);
    return UNCOPY_OK;
}

void alive_stop(alive_guard_t *guard)
{
    set_state(&guard->state, LEAVING);
    (void)pthread_join(guard->thread, NULL);
}

/* Whoever gets the mutex of a dead owner says so in the segment and gives it back, so that neither
 * its own robust list keeps pointing there nor its own death is mistaken for the owner's. */
bool alive_is_dead(comm_segment_t *segment)
{
    /* acquire: as in fault_is_gone */
    if (atomic_load_explicit(&segment->dead, memory_order_acquire) != 0) {
        return true;
    }
    int error = pthread_mutex_trylock(&segment->alive);
    if (error == EBUSY) {
        return false;
    }
    if (error == EOWNERDEAD || error == ENOTRECOVERABLE) {
        atomic_store_explicit(&segment->dead, 1, memory_order_release);
    }
    if (error == EOWNERDEAD) {
        (void)pthread_mutex_consistent(&segment->alive);
    }
    if (error == EOWNERDEAD || error == 0) {
        (void)pthread_mutex_unlock(&segment->alive);
    }
    return error != 0;
}
