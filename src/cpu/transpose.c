/* Transposition of a block in cache. See transpose.h. Vectors of 16 bytes exist on every machine we
 * know; where they do not, the compiler makes them of smaller ones. */
#include "cpu/transpose.h"

#include <string.h>

typedef uint32_t quad_t __attribute__((vector_size(16)));
typedef uint32_t loose_quad_t __attribute__((vector_size(16), aligned(1), may_alias));
typedef uint16_t octet_t __attribute__((vector_size(16)));
typedef uint16_t loose_octet_t __attribute__((vector_size(16), aligned(1), may_alias));

static void transpose_4x4(char *to, int64_t to_stride, const char *from, int64_t from_stride)
{
    quad_t rows[4];
    for (int i = 0; i < 4; i++) {
        rows[i] = *(const loose_quad_t *)(from + i * from_stride);
    }
    quad_t low_a = __builtin_shufflevector(rows[0], rows[1], 0, 4, 1, 5);
    quad_t low_b = __builtin_shufflevector(rows[2], rows[3], 0, 4, 1, 5);
    quad_t high_a = __builtin_shufflevector(rows[0], rows[1], 2, 6, 3, 7);
    quad_t high_b = __builtin_shufflevector(rows[2], rows[3], 2, 6, 3, 7);
    *(loose_quad_t *)to = __builtin_shufflevector(low_a, low_b, 0, 1, 4, 5);
    *(loose_quad_t *)(to + to_stride) = __builtin_shufflevector(low_a, low_b, 2, 3, 6, 7);
    *(loose_quad_t *)(to + 2 * to_stride) = __builtin_shufflevector(high_a, high_b, 0, 1, 4, 5);
    *(loose_quad_t *)(to + 3 * to_stride) = __builtin_shufflevector(high_a, high_b, 2, 3, 6, 7);
}

/* Three rounds of interleaving vector i with vector i + 4 transpose eight vectors of eight. */
static void transpose_8x8(char *to, int64_t to_stride, const char *from, int64_t from_stride)
{
    octet_t rows[8], mixed[8];
    for (int i = 0; i < 8; i++) {
        rows[i] = *(const loose_octet_t *)(from + i * from_stride);
    }
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 4; i++) {
            mixed[2 * i] = __builtin_shufflevector(rows[i], rows[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
            mixed[2 * i + 1] =
                __builtin_shufflevector(rows[i], rows[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
        }
        memcpy(rows, mixed, sizeof(rows));
    }
    for (int i = 0; i < 8; i++) {
        *(loose_octet_t *)(to + i * to_stride) = rows[i];
    }
}

static void transpose_elements(int64_t bytes, char *to, int64_t to_stride, const char *from,
                               int64_t from_stride, int64_t rows, int64_t columns)
{
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < columns; c++) {
            memcpy(to + c * to_stride + r * bytes, from + r * from_stride + c * bytes,
                   (size_t)bytes);
        }
    }
}

typedef void (*square_t)(char *to, int64_t to_stride, const char *from, int64_t from_stride);

static void transpose_squares(square_t square, int64_t side, int64_t bytes, char *to,
                              int64_t to_stride, const char *from, int64_t from_stride,
                              int64_t rows, int64_t columns)
{
    int64_t whole_rows = rows / side * side, whole_columns = columns / side * side;
    for (int64_t r = 0; r < whole_rows; r += side) {
        for (int64_t c = 0; c < whole_columns; c += side) {
            square(to + c * to_stride + r * bytes, to_stride, from + r * from_stride + c * bytes,
                   from_stride);
        }
    }
    transpose_elements(bytes, to + whole_columns * to_stride, to_stride,
                       from + whole_columns * bytes, from_stride, whole_rows,
                       columns - whole_columns);
    transpose_elements(bytes, to + whole_rows * bytes, to_stride, from + whole_rows * from_stride,
                       from_stride, rows - whole_rows, columns);
}

void transpose_block(int64_t element_bytes, char *to, int64_t to_stride, const char *from,
                     int64_t from_stride, int64_t rows, int64_t columns)
{
    switch (element_bytes) {
    case 1:
        transpose_elements(1, to, to_stride, from, from_stride, rows, columns);
        return;
    case 2:
        transpose_squares(transpose_8x8, 8, 2, to, to_stride, from, from_stride, rows, columns);
        return;
    case 4:
        transpose_squares(transpose_4x4, 4, 4, to, to_stride, from, from_stride, rows, columns);
        return;
    case 8:
        transpose_elements(8, to, to_stride, from, from_stride, rows, columns);
        return;
    default:
        transpose_elements(element_bytes, to, to_stride, from, from_stride, rows, columns);
    }
}
