/* Byte sets: what a span covers, freed of index order. Used inside this room only.
 *
 * A set is the sum of progressions: first + sum(k[d] * dims[d].stride), 0 <= k[d] < dims[d].size.
 * dims[0] is the run of adjacent bytes (stride 1). Invariants of a made set:
 *   S1  num_dims >= 1, dims[0].stride == 1, every other dim has size > 1.
 *   S2  strides ascend strictly, and dims[1].stride > dims[0].size: there is a gap after each run.
 *   S3  extents[d] is the distance from the first to one past the last byte of dims 0..d; all
 *       numbers are below 2^60 in magnitude, so that sums and differences of two sets do not
 *       overflow.
 *   S4  is_ordered: dims[d].stride >= extents[d - 1] for d >= 1. Then mixed-radix digits are
 *       unique: the digit of dim d is the quotient by its stride, and runs ascend in odometer
 *       order.
 *
 * Threads: pure functions on the caller's values. */
#ifndef SPAN_SET_H
#define SPAN_SET_H

#include <stdbool.h>
#include <stdint.h>

#include "span/span.h"

enum { SPAN_SET_MAX_DIMS = SPAN_MAX_RANK + 1, SPAN_SEARCH_MAX_DIMS = 2 * SPAN_SET_MAX_DIMS };

#define SPAN_SET_LIMIT ((int64_t)1 << 60)

typedef struct span_dim {
    int64_t size, stride;
} span_dim_t;

typedef struct span_set {
    int64_t first;
    int32_t num_dims;
    bool is_ordered;
    span_dim_t dims[SPAN_SET_MAX_DIMS];
    int64_t extents[SPAN_SET_MAX_DIMS];
} span_set_t;

/* What a bounded procedure found. */
typedef enum span_answer { SPAN_NO, SPAN_YES, SPAN_GAVE_UP } span_answer_t;

/* Whether the span covers no byte. */
bool span_is_empty(const span_t *span);

/* The set of a span that covers something, with first relative to origin. False where S3 cannot
 * hold. */
bool span_set_make(const span_t *span, int64_t origin, span_set_t *out_set);

/* A bounded linear Diophantine equation: sum(indices[d] * dims[d].stride) == wanted, 0 <=
 * indices[d] < dims[d].size. The caller sets num_dims to 0, adds at least one dim, and solves; the
 * rest belongs to the search. */
typedef struct span_search {
    int32_t num_dims;
    bool has_gcds;
    int64_t steps_left;
    int64_t window;
    span_dim_t dims[SPAN_SEARCH_MAX_DIMS];
    int64_t extents[SPAN_SEARCH_MAX_DIMS];
    int64_t gcds[SPAN_SEARCH_MAX_DIMS];
    int64_t indices[SPAN_SEARCH_MAX_DIMS];
} span_search_t;

/* Adds a dim whose stride is above 0 and not below those before it. One of equal stride is joined
 * with it if may_join: their sum is one progression, but indices[] no longer tells them apart. */
void span_search_add(span_search_t *search, span_dim_t dim, bool may_join);

/* SPAN_YES leaves a solution in indices[]. */
span_answer_t span_search_solve(span_search_t *search, int64_t wanted);

int64_t span_gcd(int64_t a, int64_t b);

/* Which kinds of bytes a walk over two sets met. */
enum { SPAN_MET_COMMON = 1, SPAN_MET_ONLY_A = 2, SPAN_MET_ONLY_B = 4 };

/* Walks the runs of both sets in ascending order until every kind in wanted is met or the sets end.
 * *out_met holds the kinds met so far. False when the walk gives up: then the kinds in *out_met are
 * right, and others may exist. */
bool span_sweep(const span_set_t *a, const span_set_t *b, unsigned wanted, unsigned *out_met);

/* Whether the runs of a set, as listed by its indices, share a byte (SPAN_YES) or never do. */
span_answer_t span_sweep_self(const span_set_t *set);

/* Whether every byte of b is one of a. */
span_answer_t span_set_covers(const span_set_t *a, const span_set_t *b);

#endif
