/* Element types of tensors. Threads: safe, no state. */
#ifndef UNCOPY_DTYPE_H
#define UNCOPY_DTYPE_H

#include <stddef.h>

#include "uncopy/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum uncopy_dtype {
#define DTYPE(name, value, text, bytes, kind) UNCOPY_DTYPE_##name = (value),
#include "uncopy/dtype.def"
#undef DTYPE
} uncopy_dtype_t;

/* Text name as in the text language ("bf16"), NULL for a value that is no dtype. Static storage. */
UNCOPY_API const char *uncopy_dtype_name(uncopy_dtype_t dtype);

/* Bytes of one element, 0 for a value that is no dtype. */
UNCOPY_API size_t uncopy_dtype_size(uncopy_dtype_t dtype);

#ifdef __cplusplus
}
#endif

#endif
