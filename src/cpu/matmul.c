/* Batched matmul of f32, f64, f16 and bf16 operands of any strides.
 *
 * The bits of one result element depend on its operands' values and on k alone: products are summed
 * 16 at a time in the order of k, those sums are added in order over 256, and these in order over
 * the rest, all in f32 (f64 for f64), with one rounding at the store. Shapes, strides, the cut into
 * tiles and who computes a tile do not enter. (Tables with fused multiplication differ from the
 * portable one.)
 *
 * For a tile of result columns and at most 64 rows, k is walked in steps of MATMUL_DEPTH: that part
 * of the left operand is packed into rows of the compute type, that of the right operand into a
 * panel, columns contiguous, and the table's loop adds their product to the tile's sums. A right
 * operand whose columns are contiguous is not packed when at most 8 rows use it: it streams through
 * the loop, bf16 widened in registers. When the result has fewer columns than rows and at most 8,
 * the roles of the operands are exchanged.
 *
 * A thread pool can hand out tiles: tile_run depends on nothing but its columns and rows. Stack:
 * 112 KiB. */
#include "cpu/matmul.h"

#include <string.h>

#include "cpu/dot.h"
#include "cpu/table.h"
#include "cpu/transpose.h"

enum {
    SUM_BYTES = 32768,  /* of each of the two levels of sums */
    PANEL_COLUMNS = 64, /* of a packed panel */
    PACK_COLUMNS = 8,   /* packed at a time */
    LINE_BYTES = 64,    /* of a cache line */
    STREAM_ROWS = 8,    /* rows up to which the right operand is not packed */
    BLOCK_ROWS = 64,    /* rows that use one packed panel */
};

/* One side of a product without batch dims: rows (or columns) and k. */
typedef struct side {
    const char *data;
    int64_t stride, k_stride; /* bytes */
} side_t;

typedef struct product {
    const table_t *table;
    kind_t kind;
    uncopy_dtype_t dtype;
    int64_t real_bytes; /* of the compute type */
    int64_t
        /* of an element of a packed panel: bf16 stays bf16, the rest is of the compute type */
        panel_bytes;
    load_t pack; /* an element of the right operand to the panel's type */
    multiply_t const *choices;
    int64_t rows, columns, depth;
    side_t left, right;
    char *result;
    int64_t row_stride, column_stride;
} product_t;

typedef union real_buffer {
    float f32[SUM_BYTES / sizeof(float)];
    double f64[SUM_BYTES / sizeof(double)];
} real_buffer_t;

typedef union left_buffer {
    float f32[BLOCK_ROWS * MATMUL_DEPTH];
    double f64[BLOCK_ROWS / 2 * MATMUL_DEPTH];
} left_buffer_t;

/* Sums, the packed operands and the place of one tile. */
typedef struct tile {
    int64_t row, rows, column, columns, padded_columns;
    bool is_streamed;
    real_buffer_t near, far; /* sums over MATMUL_FLUSH_DEPTH and over all: rows of padded_columns */
    real_buffer_t panel;
    left_buffer_t left;
} tile_t;

static int64_t round_up(int64_t value, int64_t step)
{
    return (value + step - 1) / step * step;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Index into a table's row choices for a group of rows, and the rows that the choice computes. */
static int row_choice(int64_t rows)
{
    return rows > 4 ? 3 : rows > 2 ? 2 : rows > 1 ? 1 : 0;
}

static int64_t padded_rows(int64_t rows)
{
    return rows >= 8 ? round_up(rows, 8) : INT64_C(1) << row_choice(rows);
}

/* Packs depth elements along k of the rows of the left operand, each to its row of MATMUL_DEPTH;
 * rows up to the padded count are zero. */
static void pack_left(const product_t *product, tile_t *tile, int64_t k, int64_t depth)
{
    char *to = (char *)&tile->left;
    load_t load = product->table->loads[product->kind][product->dtype];
    const side_t *left = &product->left;
    const char *from = left->data + tile->row * left->stride + k * left->k_stride;
    int64_t row_bytes = MATMUL_DEPTH * product->real_bytes;
    if (left->k_stride == (int64_t)uncopy_dtype_size(product->dtype) || tile->rows == 1) {
        for (int64_t i = 0; i < tile->rows; i++) {
            load(to + i * row_bytes, 1, from + i * left->stride, left->k_stride, depth);
        }
    } else {
        for (int64_t i = 0; i < depth; i++) {
            load(to + i * product->real_bytes, MATMUL_DEPTH, from + i * left->k_stride,
                 left->stride, tile->rows);
        }
    }
    int64_t padding = padded_rows(tile->rows) - tile->rows;
    memset(to + tile->rows * row_bytes, 0, (size_t)(padding * row_bytes));
}

/* Eight columns at a time are transposed into the panel, converted on the way where the panel is of
 * another type. The same columns of the next panel are fetched meanwhile: too many rows are walked
 * for the processor to foresee it. */
static void pack_transposed(const product_t *product, const tile_t *tile, const char *from,
                            int64_t depth)
{
    char *to = (char *)&tile->panel;
    int64_t bytes = product->panel_bytes, row_bytes = tile->padded_columns * bytes;
    load_t load = product->table->loads[product->kind][product->dtype];
    bool is_converted = bytes != (int64_t)uncopy_dtype_size(product->dtype);
    for (int64_t j = 0; j < tile->columns; j += PACK_COLUMNS) {
        char converted[PACK_COLUMNS * MATMUL_DEPTH * sizeof(float)];
        int64_t count = smaller(tile->columns - j, PACK_COLUMNS), stride = product->right.stride;
        const char *lines = from + j * stride;
        for (int64_t i = 0; i < count; i++) {
            for (int64_t line = 0; line < depth * bytes; line += LINE_BYTES) {
                __builtin_prefetch(lines + i * stride + depth * bytes + line, 0, 2);
            }
            if (is_converted) {
                load(converted + i * depth * bytes, 1, lines + i * stride, product->right.k_stride,
                     depth);
            }
        }
        transpose_block(bytes, to + j * bytes, row_bytes, is_converted ? converted : lines,
                        is_converted ? depth * bytes : stride, count, depth);
    }
}

/* Packs depth rows of the tile's columns of the right operand; padded columns are zero. */
static void pack_right(const product_t *product, tile_t *tile, int64_t k, int64_t depth)
{
    char *to = (char *)&tile->panel;
    const side_t *right = &product->right;
    const char *from = right->data + tile->column * right->stride + k * right->k_stride;
    int64_t bytes = product->panel_bytes, row_bytes = tile->padded_columns * bytes;
    if (tile->padded_columns != tile->columns) {
        memset(to, 0, (size_t)(depth * row_bytes));
    }
    if (right->k_stride == (int64_t)uncopy_dtype_size(product->dtype)) {
        pack_transposed(product, tile, from, depth);
        return;
    }
    for (int64_t i = 0; i < depth; i++) {
        product->pack(to + i * row_bytes, 1, from + i * right->k_stride, right->stride,
                      tile->columns);
    }
}

/* near += left * right over depth elements of k, in steps of MATMUL_SUM_DEPTH. */
static void multiply_panel(const product_t *product, tile_t *tile, const char *right,
                           int64_t right_stride, int64_t depth)
{
    int64_t bytes = product->real_bytes;
    for (int64_t i = 0; i < tile->rows; i += 8) {
        multiply_t multiply = product->choices[row_choice(tile->rows - i)];
        char *sums = (char *)&tile->near + i * tile->padded_columns * bytes;
        const char *left = (const char *)&tile->left + i * MATMUL_DEPTH * bytes;
        for (int64_t k = 0; k < depth; k += MATMUL_SUM_DEPTH) {
            multiply(sums, tile->padded_columns, left + k * bytes, right + k * right_stride,
                     right_stride, tile->padded_columns, smaller(depth - k, MATMUL_SUM_DEPTH));
        }
    }
}

/* far += near; near = 0. */
static void flush_sums(const product_t *product, tile_t *tile)
{
    int64_t count = tile->rows * tile->padded_columns;
    if (product->kind == KIND_F64) {
        for (int64_t i = 0; i < count; i++) {
            tile->far.f64[i] += tile->near.f64[i];
            tile->near.f64[i] = 0;
        }
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        tile->far.f32[i] += tile->near.f32[i];
        tile->near.f32[i] = 0;
    }
}

static void store_sums(const product_t *product, const tile_t *tile)
{
    store_t store = product->table->stores[product->kind][product->dtype];
    for (int64_t i = 0; i < tile->rows; i++) {
        store(product->result + (tile->row + i) * product->row_stride +
                  tile->column * product->column_stride,
              product->column_stride,
              (const char *)&tile->far + i * tile->padded_columns * product->real_bytes,
              tile->columns);
    }
}

/* One tile of the result from start to end. The tile's place is set. */
static void tile_run(const product_t *product, tile_t *tile)
{
    size_t sum_bytes =
        (size_t)(padded_rows(tile->rows) * tile->padded_columns * product->real_bytes);
    memset(&tile->near, 0, sum_bytes);
    memset(&tile->far, 0, sum_bytes);
    for (int64_t k = 0; k < product->depth; k += MATMUL_DEPTH) {
        int64_t depth = smaller(product->depth - k, MATMUL_DEPTH);
        pack_left(product, tile, k, depth);
        if (tile->is_streamed) {
            const side_t *right = &product->right;
            multiply_panel(product, tile,
                           right->data + tile->column * right->stride + k * right->k_stride,
                           right->k_stride, depth);
        } else {
            pack_right(product, tile, k, depth);
            multiply_panel(product, tile, (const char *)&tile->panel,
                           tile->padded_columns * product->panel_bytes, depth);
        }
        if ((k + depth) % MATMUL_FLUSH_DEPTH == 0 || k + depth == product->depth) {
            flush_sums(product, tile);
        }
    }
    store_sums(product, tile);
}

/* Whether the right operand can be read in place: contiguous columns, in a type that the loop
 * widens itself. */
static bool may_stream(const product_t *product)
{
    return product->rows <= STREAM_ROWS && product->dtype != UNCOPY_DTYPE_F16 &&
           product->right.stride == (int64_t)uncopy_dtype_size(product->dtype);
}

static void product_run(const product_t *product)
{
    tile_t tile;
    int64_t most_rows = product->kind == KIND_F64 ? BLOCK_ROWS / 2 : BLOCK_ROWS;
    bool is_streamed = may_stream(product);
    int64_t sums = SUM_BYTES / product->real_bytes;
    int64_t whole = is_streamed ? sums / padded_rows(product->rows) : PANEL_COLUMNS;
    whole = is_streamed && whole > 1024 ? 1024 : whole;
    for (tile.column = 0; tile.column < product->columns; tile.column += tile.columns) {
        int64_t left = product->columns - tile.column;
        int64_t aligned = left / MATMUL_COLUMN_STEP * MATMUL_COLUMN_STEP;
        tile.is_streamed = is_streamed && aligned > 0;
        tile.columns = smaller(tile.is_streamed ? aligned : left, whole);
        tile.padded_columns = round_up(tile.columns, MATMUL_COLUMN_STEP);
        for (tile.row = 0; tile.row < product->rows; tile.row += most_rows) {
            tile.rows = smaller(product->rows - tile.row, most_rows);
            tile_run(product, &tile);
        }
    }
}

/* The product of one batch element's two sides, roles exchanged where the result is tall and
 * narrow. */
static void product_prepare(const kernel_call_t *call, product_t *product)
{
    int32_t m = call->rank - 2, n = call->rank - 1;
    const kernel_operand_t *operands = call->operands;
    product->table = table_get();
    product->dtype = operands[0].dtype;
    product->kind = table_kind(product->dtype);
    product->real_bytes = product->kind == KIND_F64 ? 8 : 4;
    bool is_bf16 = product->dtype == UNCOPY_DTYPE_BF16;
    product->panel_bytes = is_bf16 ? 2 : product->real_bytes;
    product->pack =
        is_bf16 ? product->table->gather_16 : product->table->loads[product->kind][product->dtype];
    product->choices = is_bf16                     ? product->table->multiply_bf16
                       : product->kind == KIND_F64 ? product->table->multiply_f64
                                                   : product->table->multiply_f32;
    product->depth = call->k;
    bool is_exchanged = call->sizes[n] <= STREAM_ROWS && call->sizes[n] < call->sizes[m];
    int32_t rows = is_exchanged ? n : m, columns = is_exchanged ? m : n;
    product->rows = call->sizes[rows];
    product->columns = call->sizes[columns];
    product->row_stride = operands[0].strides[rows];
    product->column_stride = operands[0].strides[columns];
    side_t a = {NULL, operands[1].strides[m], call->k_strides[0]};
    side_t b = {NULL, operands[2].strides[n], call->k_strides[1]};
    product->left = is_exchanged ? b : a;
    product->right = is_exchanged ? a : b;
}

bool matmul_is_empty(const kernel_call_t *call)
{
    for (int32_t d = 0; d < call->rank; d++) {
        if (call->sizes[d] == 0) {
            return true;
        }
    }
    return false;
}

bool matmul_next_batch(const kernel_call_t *call, int64_t *index, char **at)
{
    for (int32_t d = call->rank - 3; d >= 0; d--) {
        bool has_more = ++index[d] < call->sizes[d];
        int64_t steps = has_more ? 1 : 1 - call->sizes[d];
        for (int32_t i = 0; i < 3; i++) {
            at[i] += steps * call->operands[i].strides[d];
        }
        if (has_more) {
            return true;
        }
        index[d] = 0;
    }
    return false;
}

void matmul_run(const kernel_call_t *call, char *const *data)
{
    if (matmul_is_empty(call)) {
        return;
    }
    product_t product;
    product_prepare(call, &product);
    bool is_exchanged = product.rows != call->sizes[call->rank - 2];
    int64_t index[SPAN_MAX_RANK] = {0};
    char *at[3] = {data[0], data[1], data[2]};
    do {
        product.result = at[0];
        product.left.data = at[is_exchanged ? 2 : 1];
        product.right.data = at[is_exchanged ? 1 : 2];
        product_run(&product);
    } while (matmul_next_batch(call, index, at));
}

bool matmul_is_gemv(const kernel_call_t *call)
{
    return smaller(call->sizes[call->rank - 2], call->sizes[call->rank - 1]) <= STREAM_ROWS;
}

/* ---- choice between this and the host's ---- */

/* Own kernels win where the call is small against the host's fixed cost, and where few rows meet a
 * big right operand. Limits are elements of the right operand, or products (that times rows), from
 * the tables of docs/kernels.md: one thread beside one. */
enum {
    SMALL_PRODUCTS = 1 << 15,
    HALF_PRODUCTS = 1 << 19,
    SMALL = 1 << 16,
    HALF = 1 << 17,
    MEDIUM = 1 << 20,
    BIG = 1 << 22,
};

/* MKL holds back on processors that are not Intel's. */
static bool has_slow_mkl(void)
{
#if defined(__x86_64__)
    return !__builtin_cpu_is("intel");
#else
    return true;
#endif
}

/* By dot products: see matmul_is_dot. */
static bool dot_prefers_host(uncopy_dtype_t dtype, int64_t rows, double elements)
{
    switch (dtype) {
    case UNCOPY_DTYPE_BF16:
        return rows > 2 && elements > (rows > 4 ? SMALL : HALF) && (rows > 4 || elements < BIG);
    case UNCOPY_DTYPE_F16:
        return rows == 1 && elements >= MEDIUM;
    case UNCOPY_DTYPE_F64:
        return rows > 4;
    default:
        return false;
    }
}

/* Otherwise; the right operand of few rows streams, that of more is packed. */
static bool panel_prefers_host(const product_t *product, double elements)
{
    bool is_streamed = may_stream(product), is_one = product->rows == 1;
    bool is_transposed = product->right.stride != (int64_t)uncopy_dtype_size(product->dtype);
    switch (product->dtype) {
    case UNCOPY_DTYPE_BF16:
        if (is_streamed) {
            return product->rows > 4 && elements < BIG && elements > SMALL;
        }
        return elements * (double)product->rows > HALF_PRODUCTS || elements > HALF;
    case UNCOPY_DTYPE_F32:
        return is_streamed ? is_one && elements >= MEDIUM : is_one || !has_slow_mkl();
    case UNCOPY_DTYPE_F64:
        return is_streamed ? is_one && elements >= MEDIUM : is_transposed || !has_slow_mkl();
    default:
        return false;
    }
}

bool matmul_prefers_host(const kernel_call_t *call)
{
    if (matmul_is_empty(call) || call->k == 0) {
        return false;
    }
    product_t product;
    product_prepare(call, &product);
    double elements = (double)product.columns * (double)product.depth;
    if (elements * (double)product.rows <= SMALL_PRODUCTS) {
        return false;
    }
    return matmul_is_dot(call) ? dot_prefers_host(product.dtype, product.rows, elements)
                               : panel_prefers_host(&product, elements);
}
