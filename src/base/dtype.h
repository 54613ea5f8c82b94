/* Element types with what the library needs of them beyond the public header. */
#ifndef BASE_DTYPE_H
#define BASE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>

#include "uncopy/dtype.h"

typedef enum dtype_kind {
    DTYPE_KIND_BOOL,
    DTYPE_KIND_UNSIGNED,
    DTYPE_KIND_SIGNED,
    DTYPE_KIND_FLOAT,
    DTYPE_KIND_COMPLEX,
    DTYPE_KIND_OPAQUE,
} dtype_kind_t;

enum { DTYPE_COUNT = 20 };

bool dtype_is_valid(uncopy_dtype_t dtype);
/* dtype must be valid. */
dtype_kind_t dtype_kind(uncopy_dtype_t dtype);
/* Finds a dtype by its text name of length bytes. */
bool dtype_find(const char *name, size_t length, uncopy_dtype_t *out_dtype);

#endif
