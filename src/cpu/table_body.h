/* The inner loops of one table; the including file sets the target and TABLE_NAME, TABLE_TEXT,
 * TABLE_VECTOR_BYTES and TABLE_HAS_FMA. Not a header for anyone else.
 *
 * Every loop is written so that the compiler vectorises it; macros only repeat a loop over dtypes,
 * kinds and rows of pointwise.def. A loop's result may be exactly one of its operands, so no
 * pointer is restrict; VECTOR_LOOP says that iterations do not depend on each other. */
#include <stddef.h>

#include "cpu/number.h"
#include "cpu/real.h"
#include "cpu/table.h"

/* gcc does not know the pragma and needs -ffp-contract=off, which the build passes. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#endif

#if defined(__clang__)
/* Loops that call libm stay scalar, as do all without optimisation. */
#pragma clang diagnostic ignored "-Wpass-failed"
#define VECTOR_LOOP _Pragma("clang loop vectorize(assume_safety)")
#else
#define VECTOR_LOOP _Pragma("GCC ivdep")
#endif

/* ---- loads and stores ---- */

#define LOAD(kind, T, dtype, E, value)                                                             \
    static void load_##kind##_##dtype(void *to, int64_t step, const char *from, int64_t stride,    \
                                      int64_t count)                                               \
    {                                                                                              \
        T *out = to;                                                                               \
        if (stride == (int64_t)sizeof(E) && step == 1) {                                           \
            const E *in = (const E *)from;                                                         \
            VECTOR_LOOP                                                                            \
            for (int64_t i = 0; i < count; i++) {                                                  \
                const E x = in[i];                                                                 \
                out[i] = (T)(value);                                                               \
            }                                                                                      \
            return;                                                                                \
        }                                                                                          \
        for (int64_t i = 0; i < count; i++) {                                                      \
            const E x = *(const E *)(from + i * stride);                                           \
            out[i * step] = (T)(value);                                                            \
        }                                                                                          \
    }

#define STORE(kind, T, dtype, E, value)                                                            \
    static void store_##kind##_##dtype(char *to, int64_t stride, const void *from, int64_t count)  \
    {                                                                                              \
        const T *in = from;                                                                        \
        if (stride == (int64_t)sizeof(E)) {                                                        \
            E *out = (E *)to;                                                                      \
            VECTOR_LOOP                                                                            \
            for (int64_t i = 0; i < count; i++) {                                                  \
                const T x = in[i];                                                                 \
                out[i] = (E)(value);                                                               \
            }                                                                                      \
            return;                                                                                \
        }                                                                                          \
        for (int64_t i = 0; i < count; i++) {                                                      \
            const T x = in[i];                                                                     \
            *(E *)(to + i * stride) = (E)(value);                                                  \
        }                                                                                          \
    }

/* USE(kind, T, dtype, element type, value as T of element x) */
#define LOADS_OF_SHORT(USE, kind, T)                                                               \
    USE(kind, T, BOOL, any_u8, x != 0)                                                             \
    USE(kind, T, U8, any_u8, x)                                                                    \
    USE(kind, T, I8, any_i8, x)                                                                    \
    USE(kind, T, I16, any_i16, x)                                                                  \
    USE(kind, T, I32, any_i32, x)                                                                  \
    USE(kind, T, U16, any_u16, x)
#define LOADS_OF_WHOLES(USE, kind, T)                                                              \
    LOADS_OF_SHORT(USE, kind, T)                                                                   \
    USE(kind, T, I64, any_i64, x)                                                                  \
    USE(kind, T, U32, any_u32, x)                                                                  \
    USE(kind, T, U64, any_u64, x)
#define LOADS_OF_REALS(USE, kind, T)                                                               \
    USE(kind, T, F16, any_u16, number_from_f16(x))                                                 \
    USE(kind, T, BF16, any_u16, number_from_bf16(x))                                               \
    USE(kind, T, F32, any_f32, x)                                                                  \
    USE(kind, T, F64, any_f64, x)

/* USE(kind, T, dtype, element type, value as element of x of type T) */
#define STORES_OF_WHOLES LOADS_OF_WHOLES
#define STORES_OF_REALS(USE, kind, T)                                                              \
    USE(kind, T, BOOL, any_u8, x != 0)                                                             \
    USE(kind, T, U8, any_u8, number_to_i64(x))                                                     \
    USE(kind, T, I8, any_i8, number_to_i32(x))                                                     \
    USE(kind, T, I16, any_i16, number_to_i32(x))                                                   \
    USE(kind, T, I32, any_i32, number_to_i32(x))                                                   \
    USE(kind, T, I64, any_i64, number_to_i64(x))                                                   \
    USE(kind, T, U16, any_u16, number_to_i32(x))                                                   \
    USE(kind, T, U32, any_u32, number_to_i64(x))                                                   \
    USE(kind, T, U64, any_u64, number_to_u64(x))                                                   \
    USE(kind, T, F16, any_u16, number_to_f16((float)x))                                            \
    USE(kind, T, BF16, any_u16, number_to_bf16((float)x))                                          \
    USE(kind, T, F32, any_f32, x)                                                                  \
    USE(kind, T, F64, any_f64, x)

LOADS_OF_WHOLES(LOAD, F32, any_f32)
LOADS_OF_REALS(LOAD, F32, any_f32)
LOADS_OF_WHOLES(LOAD, F64, any_f64)
LOADS_OF_REALS(LOAD, F64, any_f64)
LOADS_OF_SHORT(LOAD, I32, any_i32)
LOADS_OF_WHOLES(LOAD, I64, any_i64)
LOADS_OF_WHOLES(LOAD, U64, any_u64)
LOAD(BOOL, any_u8, BOOL, any_u8, x != 0)
LOAD(RAW, any_u16, U16, any_u16, x)

STORES_OF_REALS(STORE, F32, any_f32)
STORES_OF_REALS(STORE, F64, any_f64)
STORES_OF_WHOLES(STORE, I32, any_i32)
STORES_OF_WHOLES(STORE, I64, any_i64)
STORES_OF_WHOLES(STORE, U64, any_u64)
STORE(BOOL, any_u8, BOOL, any_u8, x != 0)

/* ---- rows of pointwise.def ---- */

#define ROW(kind, NAME, T, element, scalar_field, formula)                                         \
    static void row_##kind##_##NAME(void *result, const void *const *reads,                        \
                                    const number_t *scalar, int64_t count)                         \
    {                                                                                              \
        element *out = result;                                                                     \
        const element *in_a = reads[0], *in_b = reads[1], *in_c = reads[2];                        \
        const T s = scalar->scalar_field;                                                          \
        (void)s;                                                                                   \
        VECTOR_LOOP                                                                                \
        for (int64_t i = 0; i < count; i++) {                                                      \
            const T a = in_a[i], b = in_b[i], c = in_c[i];                                         \
            (void)a, (void)b, (void)c;                                                             \
            out[i] = (T)(formula);                                                                 \
        }                                                                                          \
    }

#define NONE 0

/* A multiplication by one is exact: the test keeps the common case off a slow function. */
#if TABLE_HAS_FMA
#define FUSED(x, y, z) FN(fma)((x), (y), (z))
#else
#define FUSED(x, y, z)                                                                             \
    ((x) == 1 ? (z) + (y) : (x) == -1 ? (z) - (y) : FN(fma)((x), (y), (z)))
#endif

#define FN(name) real_f32_##name
#define POINTWISE(NAME, reals, wholes, truths) ROW(F32, NAME, float, any_f32, f32, reals)
#include "cpu/pointwise.def"
#undef POINTWISE
#undef FN

#define FN(name) real_f64_##name
#define POINTWISE(NAME, reals, wholes, truths) ROW(F64, NAME, double, any_f64, f64, reals)
#include "cpu/pointwise.def"
#undef POINTWISE
#undef FN

#define PLUS(x, y) ((WHOLE)((uint64_t)(x) + (uint64_t)(y)))
#define MINUS(x, y) ((WHOLE)((uint64_t)(x) - (uint64_t)(y)))
#define TIMES(x, y) ((WHOLE)((uint64_t)(x) * (uint64_t)(y)))
#define WHOLE int32_t
#define POINTWISE(NAME, reals, wholes, truths) ROW(I32, NAME, int32_t, any_i32, i32, wholes)
#include "cpu/pointwise.def"
#undef POINTWISE
#undef WHOLE

#define WHOLE int64_t
#define POINTWISE(NAME, reals, wholes, truths) ROW(I64, NAME, int64_t, any_i64, i64, wholes)
#include "cpu/pointwise.def"
#undef POINTWISE
#undef WHOLE

#define WHOLE uint64_t
#define POINTWISE(NAME, reals, wholes, truths) ROW(U64, NAME, uint64_t, any_u64, u64, wholes)
#include "cpu/pointwise.def"
#undef POINTWISE

#define POINTWISE(NAME, reals, wholes, truths) ROW(BOOL, NAME, uint8_t, any_u8, boolean, truths)
#include "cpu/pointwise.def"
#undef POINTWISE

/* ---- matmul ---- */

#include "cpu/matmul_body.h"

/* ---- the table ---- */

#define LOAD_ENTRY(kind, T, dtype, E, value) [UNCOPY_DTYPE_##dtype] = load_##kind##_##dtype,
#define STORE_ENTRY(kind, T, dtype, E, value) [UNCOPY_DTYPE_##dtype] = store_##kind##_##dtype,

const table_t TABLE_NAME = {
    .name = TABLE_TEXT,
    .loads = {
        [KIND_F32] = {LOADS_OF_WHOLES(LOAD_ENTRY, F32, ) LOADS_OF_REALS(LOAD_ENTRY, F32, )},
        [KIND_F64] = {LOADS_OF_WHOLES(LOAD_ENTRY, F64, ) LOADS_OF_REALS(LOAD_ENTRY, F64, )},
        [KIND_I32] = {LOADS_OF_SHORT(LOAD_ENTRY, I32, )},
        [KIND_I64] = {LOADS_OF_WHOLES(LOAD_ENTRY, I64, )},
        [KIND_U64] = {LOADS_OF_WHOLES(LOAD_ENTRY, U64, )},
        [KIND_BOOL] = {LOAD_ENTRY(BOOL, , BOOL, , )},
    },
    .stores = {
        [KIND_F32] = {STORES_OF_REALS(STORE_ENTRY, F32, )},
        [KIND_F64] = {STORES_OF_REALS(STORE_ENTRY, F64, )},
        [KIND_I32] = {STORES_OF_WHOLES(STORE_ENTRY, I32, )},
        [KIND_I64] = {STORES_OF_WHOLES(STORE_ENTRY, I64, )},
        [KIND_U64] = {STORES_OF_WHOLES(STORE_ENTRY, U64, )},
        [KIND_BOOL] = {STORE_ENTRY(BOOL, , BOOL, , )},
    },
    .rows = {
#define POINTWISE(NAME, reals, wholes, truths) [OPCODE_##NAME] = row_F32_##NAME,
        [KIND_F32] = {
#include "cpu/pointwise.def"
        },
#undef POINTWISE
#define POINTWISE(NAME, reals, wholes, truths) [OPCODE_##NAME] = row_F64_##NAME,
        [KIND_F64] = {
#include "cpu/pointwise.def"
        },
#undef POINTWISE
#define POINTWISE(NAME, reals, wholes, truths) [OPCODE_##NAME] = row_I32_##NAME,
        [KIND_I32] = {
#include "cpu/pointwise.def"
        },
#undef POINTWISE
#define POINTWISE(NAME, reals, wholes, truths) [OPCODE_##NAME] = row_I64_##NAME,
        [KIND_I64] = {
#include "cpu/pointwise.def"
        },
#undef POINTWISE
#define POINTWISE(NAME, reals, wholes, truths) [OPCODE_##NAME] = row_U64_##NAME,
        [KIND_U64] = {
#include "cpu/pointwise.def"
        },
#undef POINTWISE
#define POINTWISE(NAME, reals, wholes, truths) [OPCODE_##NAME] = row_BOOL_##NAME,
        [KIND_BOOL] = {
#include "cpu/pointwise.def"
        },
#undef POINTWISE
    },
    .gather_16 = load_RAW_U16,
    .multiply_f32 = {multiply_f32_1, multiply_f32_2, multiply_f32_4, multiply_f32_8},
    .multiply_bf16 = {multiply_bf16_1, multiply_bf16_2, multiply_bf16_4, multiply_bf16_8},
    .multiply_f64 = {multiply_f64_1, multiply_f64_2, multiply_f64_4, multiply_f64_8},
};
