/* Making and passing failures. status_fail words a failure once, where its cause is known; TRY
 * passes it up. */
#ifndef BASE_STATUS_H
#define BASE_STATUS_H

#include <stddef.h>

#include "uncopy/status.h"

/* Stores the words for this thread and returns code. */
uncopy_status_t status_fail(uncopy_status_t code, const char *format, ...)
    __attribute__((format(printf, 2, 3), cold));

/* Failure of an allocation of size_bytes for what. */
uncopy_status_t status_no_memory(size_t size_bytes, const char *what) __attribute__((cold));

/* Returns from the calling function with the status of expr unless it is UNCOPY_OK. */
#define TRY(expr)                            \
    do {                                     \
        uncopy_status_t try_status = (expr); \
        if (try_status != UNCOPY_OK) {       \
            return try_status;               \
        }                                    \
    } while (0)

#endif
