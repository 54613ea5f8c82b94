/* The reduction loops for x86-64 with AVX-512 (F, BW, VL, DQ). */
#include <string.h>

#include "comm/reduce.h"

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push( \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma")
#endif

#define REDUCE_TABLE reduce_avx512
#define REDUCE_TEXT "avx512"
#include "comm/reduce_body.inc"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
