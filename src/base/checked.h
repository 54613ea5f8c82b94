/* Arithmetic on sizes that says when it overflows. Each returns false and leaves *out alone on
 * overflow. */
#ifndef BASE_CHECKED_H
#define BASE_CHECKED_H

#include <stdbool.h>
#include <stdint.h>

static inline bool checked_add(int64_t a, int64_t b, int64_t *out)
{
    int64_t sum = 0;
    if (__builtin_add_overflow(a, b, &sum)) {
        return false;
    }
    *out = sum;
    return true;
}

static inline bool checked_subtract(int64_t a, int64_t b, int64_t *out)
{
    int64_t difference = 0;
    if (__builtin_sub_overflow(a, b, &difference)) {
        return false;
    }
    *out = difference;
    return true;
}

static inline bool checked_multiply(int64_t a, int64_t b, int64_t *out)
{
    int64_t product = 0;
    if (__builtin_mul_overflow(a, b, &product)) {
        return false;
    }
    *out = product;
    return true;
}

#endif
