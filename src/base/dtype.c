#include "base/dtype.h"

#include <string.h>

typedef struct dtype_row {
    const char *name;
    size_t size_bytes;
    dtype_kind_t kind;
} dtype_row_t;

static const dtype_row_t rows[] = {
#define DTYPE(name, value, text, bytes, kind) [value] = {text, bytes, DTYPE_KIND_##kind},
#include "uncopy/dtype.def"
#undef DTYPE
};

_Static_assert(sizeof(rows) / sizeof(rows[0]) == DTYPE_COUNT,
               "DTYPE_COUNT is the number of rows in dtype.def");

bool dtype_is_valid(uncopy_dtype_t dtype)
{
    return (unsigned)dtype < DTYPE_COUNT;
}

dtype_kind_t dtype_kind(uncopy_dtype_t dtype)
{
    return rows[dtype].kind;
}

bool dtype_find(const char *name, size_t length, uncopy_dtype_t *out_dtype)
{
    for (int i = 0; i < DTYPE_COUNT; i++) {
        if (strlen(rows[i].name) == length && memcmp(rows[i].name, name, length) == 0) {
            *out_dtype = (uncopy_dtype_t)i;
            return true;
        }
    }
    return false;
}

const char *uncopy_dtype_name(uncopy_dtype_t dtype)
{
    return dtype_is_valid(dtype) ? rows[dtype].name : NULL;
}

size_t uncopy_dtype_size(uncopy_dtype_t dtype)
{
    return dtype_is_valid(dtype) ? rows[dtype].size_bytes : 0;
}
