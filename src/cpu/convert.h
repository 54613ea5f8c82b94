/* Numbers of a program as elements and as values of a compute kind. */
#ifndef CPU_CONVERT_H
#define CPU_CONVERT_H

#include "cpu/table.h"
#include "plan/kernel.h"

/* The number as a value of dtype, held in kind: integers wrap, floats round to dtype. With
 * is_opmath, and where kind is KIND_F32, it rounds to f32 only. kind must be able to hold dtype. */
number_t convert_number(const kernel_immediate_t *immediate, uncopy_dtype_t dtype, kind_t kind,
                        bool is_opmath);

/* The number as one element of dtype (at most 16 bytes); complex dtypes get an imaginary part of
 * zero. Opaque dtypes get zero bytes, which is right for the number zero alone. */
void convert_immediate(const kernel_immediate_t *immediate, uncopy_dtype_t dtype,
                       char *out_element);

bool convert_is_zero(const kernel_immediate_t *immediate);

#endif
