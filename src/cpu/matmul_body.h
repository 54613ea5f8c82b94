/* Matmul's inner loop, for one table; included by table_body.inc.
 *
 * total[i][j] += sum over k below depth of a[i][k] * b[k][j], for 1, 2, 4 or 8 rows i and columns j
 * (a multiple of MATMUL_COLUMN_STEP). The sum is taken from zero in the order of k, fused where the
 * machine can, then added once: no tile size enters the bits. a has rows of MATMUL_DEPTH elements,
 * b rows b_stride bytes apart; two vectors of columns are held at a time, so a cache line of bf16
 * is read once. Rows of b lie on pages of their own when b is big, too many for the processor to
 * foresee: the rows that come next are fetched meanwhile, except for one row of a, where the
 * fetches cost more than they bring. */
#include "cpu/matmul.h"

typedef float vector_f32 __attribute__((vector_size(TABLE_VECTOR_BYTES), aligned(4), may_alias));
typedef double vector_f64 __attribute__((vector_size(TABLE_VECTOR_BYTES), aligned(8), may_alias));
typedef float loose_f32 __attribute__((vector_size(TABLE_VECTOR_BYTES), aligned(1), may_alias));
typedef double loose_f64 __attribute__((vector_size(TABLE_VECTOR_BYTES), aligned(1), may_alias));
typedef uint32_t vector_u32 __attribute__((vector_size(TABLE_VECTOR_BYTES)));
typedef uint16_t vector_u16 __attribute__((vector_size(TABLE_VECTOR_BYTES / 2)));
typedef uint16_t loose_u16
    __attribute__((vector_size(TABLE_VECTOR_BYTES / 2), aligned(1), may_alias));

#define INLINE static inline __attribute__((always_inline))

INLINE vector_f32 fused_f32(vector_f32 x, vector_f32 y, vector_f32 z)
{
#if TABLE_VECTOR_BYTES == 64
    return _mm512_fmadd_ps(x, y, z);
#elif TABLE_VECTOR_BYTES == 32
    return _mm256_fmadd_ps(x, y, z);
#else
    return x * y + z;
#endif
}

INLINE vector_f64 fused_f64(vector_f64 x, vector_f64 y, vector_f64 z)
{
#if TABLE_VECTOR_BYTES == 64
    return _mm512_fmadd_pd(x, y, z);
#elif TABLE_VECTOR_BYTES == 32
    return _mm256_fmadd_pd(x, y, z);
#else
    return x * y + z;
#endif
}

INLINE vector_f32 get_f32(const char *from)
{
    return *(const loose_f32 *)from;
}

INLINE vector_f64 get_f64(const char *from)
{
    return *(const loose_f64 *)from;
}

INLINE vector_f32 get_bf16(const char *from)
{
    vector_u16 halves = *(const loose_u16 *)from;
    vector_u32 words = __builtin_convertvector(halves, vector_u32) << 16;
    return (vector_f32)words;
}

/* rows is a constant in every use, so that the sums live in registers. */
#define MULTIPLY(name, real, V, get, fused, b_bytes)                                             \
    INLINE void multiply_##name(const int rows, real *total, int64_t total_step, const real *a,  \
                                const char *b, int64_t b_stride, int64_t columns, int64_t depth) \
    {                                                                                            \
        const int64_t lanes = (int64_t)(sizeof(V) / sizeof(real));                               \
        for (int64_t j = 0; j < columns; j += 2 * lanes) {                                       \
            V sums[8][2];                                                                        \
            for (int i = 0; i < rows; i++) {                                                     \
                sums[i][0] = sums[i][1] = (V){0};                                                \
            }                                                                                    \
            const char *at = b + j * (b_bytes);                                                  \
            for (int64_t k = 0; k < depth; k++, at += b_stride) {                                \
                const V left = get(at), right = get(at + lanes * (b_bytes));                     \
                if (rows > 1) {                                                                  \
                    const char *next = at + MATMUL_SUM_DEPTH * b_stride;                         \
                    __builtin_prefetch(next, 0, 3);                                              \
                    __builtin_prefetch(next + lanes * (b_bytes), 0, 3);                          \
                }                                                                                \
                for (int i = 0; i < rows; i++) {                                                 \
                    const V factor = (V){0} + a[i * MATMUL_DEPTH + k];                           \
                    sums[i][0] = fused(factor, left, sums[i][0]);                                \
                    sums[i][1] = fused(factor, right, sums[i][1]);                               \
                }                                                                                \
            }                                                                                    \
            for (int i = 0; i < rows; i++) {                                                     \
                V *out = (V *)(total + i * total_step + j);                                      \
                out[0] += sums[i][0];                                                            \
                out[1] += sums[i][1];                                                            \
            }                                                                                    \
        }                                                                                        \
    }

#define MULTIPLY_ROWS(name, real, rows)                                                    \
    static void multiply_##name##_##rows(void *total, int64_t total_step, const void *a,   \
                                         const char *b, int64_t b_stride, int64_t columns, \
                                         int64_t depth)                                    \
    {                                                                                      \
        multiply_##name(rows, total, total_step, a, b, b_stride, columns, depth);          \
    }

MULTIPLY(f32, float, vector_f32, get_f32, fused_f32, 4)
MULTIPLY(bf16, float, vector_f32, get_bf16, fused_f32, 2)
MULTIPLY(f64, double, vector_f64, get_f64, fused_f64, 8)

MULTIPLY_ROWS(f32, float, 1)
MULTIPLY_ROWS(f32, float, 2)
MULTIPLY_ROWS(f32, float, 4)
MULTIPLY_ROWS(f32, float, 8)
MULTIPLY_ROWS(bf16, float, 1)
MULTIPLY_ROWS(bf16, float, 2)
MULTIPLY_ROWS(bf16, float, 4)
MULTIPLY_ROWS(bf16, float, 8)
MULTIPLY_ROWS(f64, double, 1)
MULTIPLY_ROWS(f64, double, 2)
MULTIPLY_ROWS(f64, double, 4)
MULTIPLY_ROWS(f64, double, 8)
