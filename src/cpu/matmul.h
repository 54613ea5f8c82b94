/* Shapes that matmul and its inner loops share. */
#ifndef CPU_MATMUL_H
#define CPU_MATMUL_H

#include "plan/kernel.h"

enum {
    MATMUL_DEPTH = 64,        /* k of a packed panel; a row of packed a has this many elements */
    MATMUL_SUM_DEPTH = 16,    /* products summed in a register, in order */
    MATMUL_FLUSH_DEPTH = 256, /* products behind one addition to the final sum */
    MATMUL_COLUMN_STEP =
        32, /* columns are padded to this: two vectors of f32 of the widest table */
};

/* Whether the result has no elements. */
bool matmul_is_empty(const kernel_call_t *call);
/* Steps index over the batch dims, and the three operands' addresses with it; false after the
 * last. */
bool matmul_next_batch(const kernel_call_t *call, int64_t *index, char **at);

void matmul_run(const kernel_call_t *call, char *const *data);
/* Words of cpu_kernel_name: "gemv" for at most 8 rows or columns, else "block". */
bool matmul_is_gemv(const kernel_call_t *call);
/* See cpu_prefers_host_matmul. */
bool matmul_prefers_host(const kernel_call_t *call);

#endif
