/* Waiting: see wait.h for the rule, tuning.h for the numbers. */
#include "comm/wait.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "comm/tuning.h"

int64_t wait_now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int32_t wait_num_cores(void)
{
    cpu_set_t cores;
    CPU_ZERO(&cores);
    return sched_getaffinity(0, sizeof(cores), &cores) != 0 ? 1 : CPU_COUNT(&cores);
}

void waiter_init(waiter_t *waiter, bool is_crowded)
{
    *waiter = (waiter_t){.is_crowded = is_crowded, .next_rest = TUNING_YIELD_REST};
}

/* The words are in memory of several processes: never FUTEX_PRIVATE. */
static void sleep_on(_Atomic uint32_t *word, uint32_t value, int64_t span_ns)
{
    struct timespec span = {.tv_sec = 0, .tv_nsec = span_ns};
    (void)syscall(SYS_futex, word, FUTEX_WAIT, value, &span, NULL, 0);
}

void wait_wake(_Atomic uint32_t *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void wait_publish(_Atomic uint32_t *word, _Atomic uint32_t *sleepers, uint32_t value)
{
    /* seq_cst, both: pairs with sleep_once; release of all that was written before */
    atomic_store(word, value);
    if (atomic_load(sleepers) != 0) {
        wait_wake(word);
    }
}

void wait_ring(_Atomic uint32_t *word, _Atomic uint32_t *sleepers)
{
    /* seq_cst, both: as in wait_publish */
    (void)atomic_fetch_add(word, 1);
    if (atomic_load(sleepers) != 0) {
        wait_wake(word);
    }
}

static inline void pause_core(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static bool spin(_Atomic uint32_t *word, uint32_t target, int64_t end_ns)
{
    do {
        for (int i = 0; i < 32; i++) {
            if (wait_has_come(word, target)) {
                return true;
            }
            pause_core();
        }
    } while (wait_now_ns() < end_ns);
    return wait_has_come(word, target);
}

/* A yield that takes long went to a stranger: the next waits go without. */
static bool yield(waiter_t *waiter, _Atomic uint32_t *word, uint32_t target, int64_t now_ns)
{
    int64_t end_ns = now_ns + TUNING_YIELD_NS;
    while (now_ns < end_ns) {
        (void)sched_yield();
        if (wait_has_come(word, target)) {
            return true;
        }
        int64_t before_ns = now_ns;
        now_ns = wait_now_ns();
        if (now_ns - before_ns > TUNING_YIELD_LONG_NS) {
            waiter->rest = waiter->next_rest;
            if (waiter->next_rest < TUNING_YIELD_REST_MOST) {
                waiter->next_rest *= 2;
            }
            return false;
        }
    }
    return false;
}

static void sleep_once(_Atomic uint32_t *word, _Atomic uint32_t *sleepers, uint32_t target)
{
    /* seq_cst, both: pairs with wait_publish */
    (void)atomic_fetch_add(sleepers, 1);
    uint32_t value = atomic_load(word);
    if ((int32_t)(value - target) < 0) {
        sleep_on(word, value, TUNING_SLEEP_NS);
    }
    (void)atomic_fetch_sub(sleepers, 1);
}

static uncopy_status_t wait_late(waiter_t *waiter, _Atomic uint32_t *word,
                                 _Atomic uint32_t *sleepers, uint32_t target, int32_t peer_cpu,
                                 const wait_watch_t *watch, int64_t start_ns)
{
    bool shares_core = peer_cpu == sched_getcpu();
    bool spins = !waiter->is_crowded && !shares_core;
    if (spin(word, target, start_ns + (spins ? TUNING_SPIN_NS : TUNING_SPIN_SHORT_NS))) {
        return UNCOPY_OK;
    }
    if (waiter->rest > 0) {
        waiter->rest--;
    } else if ((shares_core || waiter->is_crowded) && yield(waiter, word, target, wait_now_ns())) {
        return UNCOPY_OK;
    }
    waiter->slept++;
    while (!wait_has_come(word, target)) {
        uncopy_status_t status = watch->look(watch->self);
        if (status != UNCOPY_OK) {
            return status;
        }
        sleep_once(word, sleepers, target);
    }
    return UNCOPY_OK;
}

uncopy_status_t wait_until(waiter_t *waiter, _Atomic uint32_t *word, _Atomic uint32_t *sleepers,
                           uint32_t target, int32_t peer_cpu, const wait_watch_t *watch)
{
    if (wait_has_come(word, target)) {
        return UNCOPY_OK;
    }
    int64_t start_ns = wait_now_ns();
    uncopy_status_t status = wait_late(waiter, word, sleepers, target, peer_cpu, watch, start_ns);
    waiter->waited_ns += wait_now_ns() - start_ns;
    return status;
}
