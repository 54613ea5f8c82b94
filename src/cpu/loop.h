/* A call's loop nest made regular for walking: dims of size 1 dropped, dims ordered so that the
 * result's smallest stride is innermost, neighbours merged where every operand allows it, and a dim
 * along which an operand is contiguous but the result is not moved next to the innermost (a
 * transposed operand). Elementwise operations may run in any order, so none of this changes a
 * result.
 *
 * Cost of loop_prepare: about rank * rank * operands steps; no allocation. */
#ifndef CPU_LOOP_H
#define CPU_LOOP_H

#include "plan/kernel.h"

typedef struct loop {
    int32_t rank; /* at least 1 */
    int32_t num_operands;
    int64_t sizes[SPAN_MAX_RANK];
    int64_t strides[KERNEL_MAX_OPERANDS][SPAN_MAX_RANK]; /* bytes; 0 throughout for an immediate */
} loop_t;

/* Walks all dims but the inner two. offsets[i] is operand i's byte offset at the current place. */
typedef struct loop_walk {
    int64_t index[SPAN_MAX_RANK];
    int64_t offsets[KERNEL_MAX_OPERANDS];
} loop_walk_t;

/* False when the loop has no elements. */
bool loop_prepare(const kernel_call_t *call, loop_t *out_loop);

/* Size and strides of the two inner dims; rows is 1 with strides of 0 when the loop has one dim. */
int64_t loop_columns(const loop_t *loop);
int64_t loop_rows(const loop_t *loop);
int64_t loop_column_stride(const loop_t *loop, int32_t operand);
int64_t loop_row_stride(const loop_t *loop, int32_t operand);

/* Steps a zeroed walk to the next place over the dims below rank - num_inner; false after the
 * last. */
bool loop_next(const loop_t *loop, int32_t num_inner, loop_walk_t *walk);

#endif
