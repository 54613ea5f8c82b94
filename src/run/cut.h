/* Cutting a call of a kernel along one loop dim, so that threads can do it in parts.
 *
 * A cut is chosen once, when a plan is made, from the call and what it costs: it depends on nothing
 * else, so neither do results. Parts are sub-calls with the same kernel over [begin, end) of the
 * dim. Immutable data. */
#ifndef RUN_CUT_H
#define RUN_CUT_H

#include "plan/kernel.h"

enum { CUT_MAX_CHUNKS = 64 };

typedef struct cut {
    uint32_t num_chunks; /* 0 or 1: the call is not cut */
    int32_t dim;
    int64_t unit; /* chunks begin at multiples of it */
} cut_t;

/* cost_ns: of the whole call on one thread. */
cut_t cut_choose(const kernel_call_t *call, int64_t cost_ns);

/* Chunks of a tile program of num_units units: chunk c is units [c * num_units / chunks, (c + 1) *
 * num_units / chunks). */
uint32_t cut_units(int64_t num_units, int64_t cost_ns);

/* Runs chunks [first, end) of a cut call. */
void cut_run(const kernel_call_t *call, kernel_function_t function, const cut_t *cut,
             char *const *data, uint32_t first, uint32_t end);

#endif
