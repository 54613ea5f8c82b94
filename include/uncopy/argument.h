/* One tensor of a caller, as it is at a call. Layout is part of the ABI. */
#ifndef UNCOPY_ARGUMENT_H
#define UNCOPY_ARGUMENT_H

#include <stdint.h>

#include "uncopy/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct uncopy_argument {
    void *data;            /* address of the first element */
    void *storage;         /* address of the storage's first byte; NULL: the same as data */
    int64_t storage_bytes; /* size of the storage; negative: trusted to hold every byte the program
                              takes */
    uncopy_dtype_t dtype;
    int32_t rank;
    const int64_t *sizes;   /* rank of them; borrowed for the call */
    const int64_t *strides; /* elements; borrowed for the call; NULL: row-major without gaps */
} uncopy_argument_t;

#ifdef __cplusplus
}
#endif

#endif
