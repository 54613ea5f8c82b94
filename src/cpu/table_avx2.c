/* The inner loops for x86-64 with AVX2 and FMA. */
#include "cpu/table.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <math.h>

#include "cpu/number.h"
#include "cpu/real.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx2,fma")
#endif

#define TABLE_NAME table_avx2
#define TABLE_TEXT "avx2"
#define TABLE_VECTOR_BYTES 32
#define TABLE_HAS_FMA 1
#include "cpu/table_body.inc"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
