/* Inner loops of the products whose right operand is contiguous along k, for one table; included by
 * table_body.inc after matmul_body.h.
 *
 * sums[i][j] += sum over k below depth of a[i][k] * b[j][k], for 1, 2 or 4 rows i and
 * DOT_COLUMNS columns j. Element k goes to lane k % DOT_LANES; DOT_NEAR_DEPTH products lie behind
 * one addition to a lane's far sum; the lanes are joined 8, 4, 2, 1 apart. So the bits depend on
 * depth alone, and are those of every table that fuses. a has rows of DOT_DEPTH elements, filled
 * with zeros to a multiple of DOT_LANES; b rows b_stride bytes apart. The columns after these are
 * fetched meanwhile. */
#include "cpu/dot.h"

enum { DOT_LINE_BYTES = 64 }; /* of a cache line */

#define DOT_PARTS(V, real) ((int)(DOT_LANES * sizeof(real) / sizeof(V)))

#if TABLE_VECTOR_BYTES == 64
#define DOT_STEP(rows) 4 /* columns whose sums fit into registers */
#else
#define DOT_STEP(rows) ((rows) == 1 ? 4 : 2)
#endif

/* Sums of the step columns from one, in lanes, over depth, added to the far sums. */
#define DOT(name, real, V, get, fused, b_bytes)                                                  \
    INLINE void dot_near_##name(const int rows, const int step, V *far, const real *a,           \
                                const char *b, int64_t b_stride, int64_t depth)                  \
    {                                                                                            \
        enum { PARTS = DOT_PARTS(V, real), WIDTH = (int)(sizeof(V) / sizeof(real)) };            \
        V near[4 * 4 * PARTS];                                                                   \
        for (int i = 0; i < rows * step * PARTS; i++) {                                          \
            near[i] = (V){0};                                                                    \
        }                                                                                        \
        for (int64_t k = 0; k < depth; k += DOT_LANES) {                                         \
            for (int p = 0; p < PARTS; p++) {                                                    \
                V factors[4];                                                                    \
                for (int i = 0; i < rows; i++) {                                                 \
                    factors[i] = *(const V *)(a + i * DOT_DEPTH + k + p * WIDTH);                \
                }                                                                                \
                for (int j = 0; j < step; j++) {                                                 \
                    const V column = get(b + j * b_stride + (k + p * WIDTH) * (b_bytes));        \
                    for (int i = 0; i < rows; i++) {                                             \
                        V *sum = &near[(i * step + j) * PARTS + p];                              \
                        *sum = fused(factors[i], column, *sum);                                  \
                    }                                                                            \
                }                                                                                \
            }                                                                                    \
            for (int j = 0; j < step && k * (b_bytes) % DOT_LINE_BYTES == 0; j++) {              \
                const char *next = b + (j + step) * b_stride + k * (b_bytes);                    \
                for (int at = 0; at < DOT_LANES * (b_bytes); at += DOT_LINE_BYTES) {             \
                    __builtin_prefetch(next + at, 0, 3);                                         \
                }                                                                                \
            }                                                                                    \
        }                                                                                        \
        for (int i = 0; i < rows * step * PARTS; i++) {                                          \
            far[i] += near[i];                                                                   \
        }                                                                                        \
    }                                                                                            \
    INLINE real dot_join_##name(const V *lanes)                                                  \
    {                                                                                            \
        real each[DOT_LANES];                                                                    \
        memcpy(each, lanes, sizeof(each));                                                       \
        for (int distance = DOT_LANES / 2; distance > 0; distance /= 2) {                        \
            for (int i = 0; i < distance; i++) {                                                 \
                each[i] += each[i + distance];                                                   \
            }                                                                                    \
        }                                                                                        \
        return each[0];                                                                          \
    }                                                                                            \
    INLINE void dot_columns_##name(const int rows, const int step, real *sums, const real *a,    \
                                   const char *b, int64_t b_stride, int64_t depth)               \
    {                                                                                            \
        enum { PARTS = DOT_PARTS(V, real) };                                                     \
        V far[4 * 4 * PARTS];                                                                    \
        for (int i = 0; i < rows * step * PARTS; i++) {                                          \
            far[i] = (V){0};                                                                     \
        }                                                                                        \
        const int64_t whole = depth / DOT_LANES * DOT_LANES;                                     \
        for (int64_t k = 0; k < whole; k += DOT_NEAR_DEPTH) {                                    \
            int64_t part = whole - k < DOT_NEAR_DEPTH ? whole - k : DOT_NEAR_DEPTH;              \
            dot_near_##name(rows, step, far, a + k, b + k * (b_bytes), b_stride, part);          \
        }                                                                                        \
        if (whole < depth) {                                                                     \
            char rest[8 * DOT_LANES * (b_bytes)] = {0}; /* and what would be fetched */          \
            for (int j = 0; j < step; j++) {                                                     \
                memcpy(rest + j * DOT_LANES * (b_bytes), b + j * b_stride + whole * (b_bytes),   \
                       (size_t)((depth - whole) * (b_bytes)));                                   \
            }                                                                                    \
            dot_near_##name(rows, step, far, a + whole, rest, DOT_LANES * (b_bytes), DOT_LANES); \
        }                                                                                        \
        for (int i = 0; i < rows; i++) {                                                         \
            for (int j = 0; j < step; j++) {                                                     \
                sums[i * DOT_COLUMNS + j] += dot_join_##name(far + (i * step + j) * PARTS);      \
            }                                                                                    \
        }                                                                                        \
    }

#define DOT_ROWS(name, real, rows, b_bytes)                                                     \
    static void dot_##name##_##rows(void *sums, const void *a, const char *b, int64_t b_stride, \
                                    int64_t depth)                                              \
    {                                                                                           \
        for (int j = 0; j < DOT_COLUMNS; j += DOT_STEP(rows)) {                                 \
            dot_columns_##name(rows, DOT_STEP(rows), (real *)sums + j, a, b + j * b_stride,     \
                               b_stride, depth);                                                \
        }                                                                                       \
    }

DOT(f32, float, vector_f32, get_f32, fused_f32, 4)
DOT(bf16, float, vector_f32, get_bf16, fused_f32, 2)
DOT(f64, double, vector_f64, get_f64, fused_f64, 8)

DOT_ROWS(f32, float, 1, 4)
DOT_ROWS(f32, float, 2, 4)
DOT_ROWS(f32, float, 4, 4)
DOT_ROWS(bf16, float, 1, 2)
DOT_ROWS(bf16, float, 2, 2)
DOT_ROWS(bf16, float, 4, 2)
DOT_ROWS(f64, double, 1, 8)
DOT_ROWS(f64, double, 2, 8)
DOT_ROWS(f64, double, 4, 8)
