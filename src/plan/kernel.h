/* What a CPU kernel is told, once, when a plan is made; a run adds the addresses. Immutable data.
 *
 * Operand 0 is the result; the others follow in the row's order. Loop dims are shared by all
 * operands: dim 0 is the outermost. Strides are bytes, 0 where an operand is broadcast. Lowering
 * has merged dims where it may. */
#ifndef PLAN_KERNEL_H
#define PLAN_KERNEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/ops.h"
#include "span/span.h"

enum { KERNEL_MAX_OPERANDS = 1 + OP_MAX_READS };

/* An operand that is a number of the program instead of bytes. Integers are kept exactly beside
 * their double. */
typedef struct kernel_immediate {
    double number;
    int64_t integer;
    bool is_integer;
} kernel_immediate_t;

typedef struct kernel_operand {
    uncopy_dtype_t dtype;
    /* then no address is passed, and dtype is the one that the rule gives its slot */
    bool is_immediate;
    kernel_immediate_t immediate;
    int64_t strides[SPAN_MAX_RANK];
} kernel_operand_t;

/* Pointwise, copy, convert, fill: the loop covers the result. Matmul: dims are batch..., m, n of
 * the result; k is the length of the sum; operand 1 has strides of batch..., m and k_strides[0],
 * operand 2 of batch..., (ignored m: 0), n and k_strides[1]; its stride in dim n is
 * strides[rank-1]. */
typedef struct kernel_call {
    opcode_t opcode;
    int32_t num_operands;
    int32_t rank;
    int64_t sizes[SPAN_MAX_RANK];
    kernel_operand_t operands[KERNEL_MAX_OPERANDS];
    double attributes[OP_MAX_ATTRIBUTES];
    int64_t k;
    int64_t k_strides[2];
} kernel_call_t;

/* data[i] is the address of operand i's first element (unused for immediates). Operands may be
 * exactly the same bytes as the result where the row says IN_PLACE; else they are disjoint from
 * it. */
typedef void (*kernel_function_t)(const kernel_call_t *call, char *const *data);

#endif
