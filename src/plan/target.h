/* What kernels can do, as data: compile asks it, api fills it from the kernel tables. Immutable
 * once filled. */
#ifndef PLAN_TARGET_H
#define PLAN_TARGET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/ops.h"

/* Bit d of a mask stands for dtype d. */
typedef struct target_row {
    uint32_t read_dtypes;   /* of the operands that the row's rule makes alike */
    uint32_t result_dtypes; /* of the result */
} target_row_t;

typedef struct target {
    target_row_t rows[OPCODE_COUNT]; /* a native kernel exists for these; strides are free */
} target_t;

static inline bool target_takes(const target_t *target, opcode_t opcode, uncopy_dtype_t read,
                                uncopy_dtype_t result)
{
    const target_row_t *row = &target->rows[opcode];
    return ((row->read_dtypes >> (unsigned)read) & 1u) != 0 &&
           ((row->result_dtypes >> (unsigned)result) & 1u) != 0;
}

#endif
