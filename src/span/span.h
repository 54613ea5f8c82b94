/* Spans: the bytes that a strided view covers, and exact answers about two of them.
 *
 * A span lists elements of element_bytes bytes at start + sum(index[d] * strides[d]). All numbers
 * are bytes, except sizes. Spans that are compared share one address space: absolute addresses, or
 * offsets into one storage. A span with a size of zero covers nothing. Strides may be zero
 * (broadcast) or negative.
 *
 * Threads: pure functions on immutable values. */
#ifndef SPAN_SPAN_H
#define SPAN_SPAN_H

#include <stdbool.h>
#include <stdint.h>

enum { SPAN_MAX_RANK = 12 };

typedef struct span {
    int64_t start;
    int64_t element_bytes;
    int32_t rank;
    int64_t sizes[SPAN_MAX_RANK];
    int64_t strides[SPAN_MAX_RANK];
} span_t;

/* How the bytes of a relate to the bytes of b. */
typedef enum span_relation {
    SPAN_DISJOINT, /* no common byte; a span that covers nothing is disjoint from every span */
    /* equal index map: the element of each index is at the same bytes (strides of size-1 dims are
     * free) */
    SPAN_SAME,
    /* a covers every byte of b; equal byte sets under different index maps count here */
    SPAN_CONTAINS,
    SPAN_WITHIN,  /* b covers every byte of a, and more */
    SPAN_PARTIAL, /* some bytes in common, neither covers the other */
    SPAN_UNKNOWN, /* the bounded search gave up; counts as overlap and refuses every rewrite */
} span_relation_t;

/* "disjoint", "same", ... Static storage. */
const char *span_relation_name(span_relation_t relation);

/* The relation as seen from b: CONTAINS and WITHIN change places. Equal byte sets stay CONTAINS
 * only when asked as such. */
span_relation_t span_relation_flip(span_relation_t relation);

/* Number of elements; sizes are trusted not to overflow (the verifier has checked them). */
int64_t span_count(const span_t *span);

/* Smallest [*out_first, *out_end) that holds every byte; both are start when the span covers
 * nothing. INT64_MIN and INT64_MAX where the numbers overflow. */
void span_hull(const span_t *span, int64_t *out_first, int64_t *out_end);

/* Exact relation of a to b. Staged: hulls, equal maps, gcd and stride reasoning, bounded exact
 * search. */
span_relation_t span_relate(const span_t *a, const span_t *b);

/* Whether a and b have a common byte; unknown counts as overlap. Cheaper than span_relate. */
bool span_overlaps(const span_t *a, const span_t *b);

/* Whether no two indices share a byte. Exact for the ranks and sizes of span_relate's promise;
 * false when it gives up. */
bool span_is_injective(const span_t *span);

/* Row-major without gaps (size-1 dims are free, a span of zero elements is contiguous). */
bool span_is_contiguous(const span_t *span);

/* Whether both have the same sizes, and the same strides in every dim of size above 1. */
bool span_has_same_layout(const span_t *a, const span_t *b);

/* Restates a view through a copy. source and target have equal sizes and element_bytes: the copy
 * moves source's element of each index to target's of the same index. If every byte of view is a
 * byte of source, and one span lists, in view's index order, the places to which the copy moves
 * view's elements, *out_restated is that span (sizes and element_bytes are view's) and the result
 * is true. False where no such span exists, and where source is not injective. */
bool span_restate(const span_t *view, const span_t *source, const span_t *target,
                  span_t *out_restated);

#endif
