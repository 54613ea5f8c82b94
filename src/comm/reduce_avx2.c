/* The reduction loops for x86-64 with AVX2. */
#include <string.h>

#include "comm/reduce.h"

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx2,fma")
#endif

#define REDUCE_TABLE reduce_avx2
#define REDUCE_TEXT "avx2"
#include "comm/reduce_body.inc"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
