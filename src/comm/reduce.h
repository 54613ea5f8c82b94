/* Reduction of elements that lie in several places, one place a rank.
 *
 * For each element: widened to the accumulator (f16, bf16: f32; all else: itself), combined in the
 * order of the ranks, for avg multiplied by 1/n, rounded once. So the bits depend on the values
 * alone, not on the algorithm, the position or the instruction set. Floats: min and max give NaN if
 * any element is NaN. Integers wrap. bool: any non-zero byte is true; sum, max, bor are or;
 * product, min, band are and; bxor is parity; results are 0 or 1.
 *
 * Loops are compiled once an instruction set from reduce_body.inc, chosen at the first call;
 * UNCOPY_ISA=portable or avx2 forces a lower one. */
#ifndef COMM_REDUCE_H
#define COMM_REDUCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "uncopy/comm.h"

/* One run of a reduction. destination or copy may be NULL, not both; either may be one of the
 * sources. Otherwise nothing overlaps. */
typedef struct reduce_run {
    uncopy_reduction_t reduction;
    const char *const *sources; /* num_sources of them, at least 1, in rank order */
    int32_t num_sources;
    char *destination;
    char *copy;
    size_t count;
} reduce_run_t;

typedef void (*reduce_function_t)(const reduce_run_t *run);

/* One instruction set's loops, by dtype; NULL where dtype is not reduced. */
typedef struct reduce_table {
    const char *name;
    reduce_function_t of_dtype[20];
} reduce_table_t;

extern const reduce_table_t reduce_portable;
#if defined(__x86_64__)
extern const reduce_table_t reduce_avx2, reduce_avx512;
#endif

bool reduce_is_supported(uncopy_dtype_t dtype, uncopy_reduction_t reduction);
/* dtype and reduction are supported together. */
void reduce_elements(uncopy_dtype_t dtype, const reduce_run_t *run);
/* Name of the instruction set in use. */
const char *reduce_isa_name(void);

#endif
