/* Symbols of a plan: the sizes, strides and values of arguments that its numbers were computed
 * from. Immutable data. */
#ifndef PLAN_SYMBOL_H
#define PLAN_SYMBOL_H

#include <stdbool.h>
#include <string.h>

#include "uncopy/argument.h"
#include "uncopy/program.h"

typedef struct plan_symbol {
    uint32_t argument;
    uncopy_symbol_kind_t kind;
    int32_t dim;
    int64_t value; /* of the call that was planned */
} plan_symbol_t;

/* What the symbol stands for at a call; false where the argument has no such dim. The value of an
 * argument is read from its memory. */
static inline bool plan_symbol_read(const plan_symbol_t *symbol, const uncopy_argument_t *argument,
                                    int64_t *out_value)
{
    if (symbol->kind == UNCOPY_SYMBOL_VALUE) {
        bool is_integer =
            argument->dtype == UNCOPY_DTYPE_I64 && argument->rank == 0 && argument->data != NULL;
        if (is_integer) {
            memcpy(out_value, argument->data, sizeof(*out_value));
        }
        return is_integer;
    }
    if (symbol->dim >= argument->rank) {
        return false;
    }
    int64_t row_major = 1;
    for (int32_t d = argument->rank - 1; d > symbol->dim; d--) {
        row_major *= argument->sizes[d] > 1 ? argument->sizes[d] : 1;
    }
    *out_value = symbol->kind == UNCOPY_SYMBOL_SIZE ? argument->sizes[symbol->dim]
                 : argument->strides == NULL        ? row_major
                                                    : argument->strides[symbol->dim];
    return true;
}

#endif
