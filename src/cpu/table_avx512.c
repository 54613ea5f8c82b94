/* The inner loops for x86-64 with AVX-512 (F, BW, VL, DQ). */
#include "cpu/table.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <math.h>

#include "cpu/number.h"
#include "cpu/real.h"

#if defined(__clang__)
#pragma clang attribute push( \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma")
#endif

#define TABLE_NAME table_avx512
#define TABLE_TEXT "avx512"
#define TABLE_VECTOR_BYTES 64
#define TABLE_HAS_FMA 1
#include "cpu/table_body.inc"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
