/* Operations on strided memory, element by element, for tests: slow, plain, without a kernel of the
 * library. Operands are bounds (uncopy/host.h): data, dtype, sizes, strides in elements.
 *
 * Floats are computed as eager does: in the compute type (f32 for f16 and bf16), rounded once more
 * to the dtype. Transcendentals are rounded from the double's and may differ from a kernel's. */
#ifndef ELEMENT_H
#define ELEMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/ops.h"
#include "uncopy/host.h"

int64_t element_count(const uncopy_bound_t *bound);
/* Address of the element of row-major number index. */
char *element_at(const uncopy_bound_t *bound, int64_t index);
/* Bytes from data to the end of the last element; 0 where there is none. */
int64_t element_extent(const uncopy_bound_t *bound);
/* A row-major copy of the elements; the caller frees it. */
char *element_snapshot(const uncopy_bound_t *bound);
bool element_is_equal(const uncopy_bound_t *a, const uncopy_bound_t *b);
/* Equal up to a small relative error, where dtypes are floats. */
bool element_is_close(const uncopy_bound_t *a, const uncopy_bound_t *b);
/* Small whole numbers, in row-major order, different for each seed. */
void element_fill_pattern(const uncopy_bound_t *bound, int64_t seed);

/* One operand of a row: a view, or a number where view is NULL. */
typedef struct element_operand {
    const uncopy_bound_t *view;
    uncopy_operand_t number;
} element_operand_t;

/* Pointwise rows, copy, convert, fill, matmul. False where the opcode is none of them. */
bool element_run(opcode_t opcode, const element_operand_t *reads, size_t num_reads,
                 const double *attributes, const uncopy_bound_t *result);

/* What a collective gives on rank of ranks, where peer r's source is this one's plus r - rank.
 * source is row-major, as from element_snapshot. */
void element_collective(opcode_t opcode, int32_t ranks, int32_t rank, double attribute,
                        const char *source, int64_t source_count, const uncopy_bound_t *result);

#endif
