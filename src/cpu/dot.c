/* Matmul by dot products, for few rows and a right operand that is contiguous along k.
 *
 * The bits of one result element depend on its operands' values and on k alone: dot_body.h has the
 * order of the sums over DOT_DEPTH elements, and those are added in order. Which operand is taken
 * as the right one does not enter: a product's factors may be exchanged. f16 is widened into a
 * buffer first; the other dtypes are read where they lie.
 *
 * Stack: 64 KiB for f32 sums, 128 KiB for f64. */
#include "cpu/dot.h"

#include <string.h>

#include "cpu/matmul.h"
#include "cpu/table.h"

enum { MOST_ROWS_AT_ONCE = 4 };

typedef struct side {
    const char *data;
    int64_t count, stride, k_stride; /* strides: bytes */
} side_t;

typedef struct work {
    const table_t *table;
    kind_t kind;
    uncopy_dtype_t dtype;
    int64_t real_bytes;   /* of the compute type */
    dot_t const *choices; /* for 1, 2, 4 rows */
    bool is_widened;      /* the right operand goes through a buffer of the compute type */
    int64_t depth;
    side_t left, right;
    char *result;
    int64_t row_stride, column_stride;
} work_t;

typedef union packed {
    float f32[MOST_ROWS_AT_ONCE * DOT_DEPTH];
    double f64[MOST_ROWS_AT_ONCE * DOT_DEPTH];
} packed_t;

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t element_bytes(const kernel_call_t *call)
{
    return (int64_t)uncopy_dtype_size(call->operands[1].dtype);
}

bool matmul_is_dot(const kernel_call_t *call)
{
    int64_t m = call->sizes[call->rank - 2], n = call->sizes[call->rank - 1];
    int64_t k_stride = n >= m ? call->k_strides[1] : call->k_strides[0];
    return smaller(m, n) <= DOT_MOST_ROWS && call->k >= 2 * DOT_LANES &&
           k_stride == element_bytes(call);
}

/* Rows of the left operand from k on, each to its row of DOT_DEPTH, with zeros up to whole lanes
 * and for rows up to the count that is computed. */
static void pack(const work_t *work, char *to, int64_t row, int64_t rows, int64_t computed,
                 int64_t k, int64_t depth)
{
    load_t load = work->table->loads[work->kind][work->dtype];
    int64_t row_bytes = DOT_DEPTH * work->real_bytes;
    int64_t padded = (depth + DOT_LANES - 1) / DOT_LANES * DOT_LANES;
    const char *from = work->left.data + row * work->left.stride + k * work->left.k_stride;
    for (int64_t i = 0; i < computed; i++) {
        char *at = to + i * row_bytes;
        int64_t filled = i < rows ? depth : 0;
        if (filled != 0) {
            load(at, 1, from + i * work->left.stride, work->left.k_stride, depth);
        }
        memset(at + filled * work->real_bytes, 0, (size_t)((padded - filled) * work->real_bytes));
    }
}

/* Adds the products of the packed rows with DOT_COLUMNS columns. Those past the last one repeat
 * it. */
static void add_columns(const work_t *work, dot_t dot, char *sums, const char *packed,
                        int64_t column, int64_t k, int64_t depth)
{
    const side_t *right = &work->right;
    const char *from = right->data + column * right->stride + k * right->k_stride;
    int64_t left = right->count - column;
    if (left >= DOT_COLUMNS && !work->is_widened) {
        dot(sums, packed, from, right->stride, depth);
        return;
    }
    union {
        float f32[2 * DOT_COLUMNS * DOT_DEPTH];
        double f64[DOT_COLUMNS * DOT_DEPTH];
    } rows;
    int64_t bytes = work->is_widened ? work->real_bytes : (int64_t)uncopy_dtype_size(work->dtype);
    load_t load = work->table->loads[work->kind][work->dtype];
    for (int64_t j = 0; j < DOT_COLUMNS; j++) {
        char *to = (char *)&rows + j * depth * bytes;
        const char *at = from + smaller(j, left - 1) * right->stride;
        if (work->is_widened) {
            load(to, 1, at, right->k_stride, depth);
        } else {
            memcpy(to, at, (size_t)(depth * bytes));
        }
    }
    dot(sums, packed, (const char *)&rows, depth * bytes, depth);
}

static void store(const work_t *work, const char *sums, int64_t row, int64_t rows, int64_t column)
{
    store_t put = work->table->stores[work->kind][work->dtype];
    int64_t columns = smaller(work->right.count - column, DOT_COLUMNS);
    for (int64_t i = 0; i < rows; i++) {
        put(work->result + (row + i) * work->row_stride + column * work->column_stride,
            work->column_stride, sums + i * DOT_COLUMNS * work->real_bytes, columns);
    }
}

/* Rows of the result: whole columns at a time where k fits into one packed part, else sums of a
 * stretch of columns are kept while k is walked. */
static void run_rows(const work_t *work, int64_t row, int64_t rows)
{
    enum { STRETCH = 64 }; /* columns */
    union {
        float f32[STRETCH * MOST_ROWS_AT_ONCE];
        double f64[STRETCH * MOST_ROWS_AT_ONCE];
    } sums;
    packed_t packed;
    int choice = rows > 2 ? 2 : rows > 1 ? 1 : 0;
    dot_t dot = work->choices[choice];
    int64_t computed = INT64_C(1) << choice;
    int64_t group_bytes = MOST_ROWS_AT_ONCE * DOT_COLUMNS * work->real_bytes;
    bool fits = work->depth <= DOT_DEPTH;
    if (fits) {
        pack(work, (char *)&packed, row, rows, computed, 0, work->depth);
    }
    for (int64_t from = 0; from < work->right.count; from += STRETCH) {
        int64_t end = smaller(work->right.count, from + STRETCH);
        memset(&sums, 0, sizeof(sums));
        for (int64_t k = 0; k < work->depth; k += DOT_DEPTH) {
            int64_t depth = smaller(work->depth - k, DOT_DEPTH);
            if (!fits) {
                pack(work, (char *)&packed, row, rows, computed, k, depth);
            }
            for (int64_t j = from; j < end; j += DOT_COLUMNS) {
                char *at = (char *)&sums + (j - from) / DOT_COLUMNS * group_bytes;
                add_columns(work, dot, at, (const char *)&packed, j, k, depth);
            }
        }
        for (int64_t j = from; j < end; j += DOT_COLUMNS) {
            store(work, (char *)&sums + (j - from) / DOT_COLUMNS * group_bytes, row, rows, j);
        }
    }
}

/* The operand that is contiguous along k is the right one; where both are, the longer. */
static void prepare(const kernel_call_t *call, work_t *work, bool *out_is_exchanged)
{
    int32_t m = call->rank - 2, n = call->rank - 1;
    const kernel_operand_t *operands = call->operands;
    int64_t bytes = element_bytes(call);
    bool a_fits = call->k_strides[0] == bytes, b_fits = call->k_strides[1] == bytes;
    bool is_exchanged = a_fits && (!b_fits || call->sizes[m] > call->sizes[n]);
    work->table = table_get();
    work->dtype = operands[0].dtype;
    work->kind = table_kind(work->dtype);
    work->real_bytes = work->kind == KIND_F64 ? 8 : 4;
    work->is_widened = work->dtype == UNCOPY_DTYPE_F16;
    work->choices = work->dtype == UNCOPY_DTYPE_BF16 ? work->table->dot_bf16
                    : work->kind == KIND_F64         ? work->table->dot_f64
                                                     : work->table->dot_f32;
    work->depth = call->k;
    side_t a = {NULL, call->sizes[m], operands[1].strides[m], call->k_strides[0]};
    side_t b = {NULL, call->sizes[n], operands[2].strides[n], call->k_strides[1]};
    work->left = is_exchanged ? b : a;
    work->right = is_exchanged ? a : b;
    work->row_stride = operands[0].strides[is_exchanged ? n : m];
    work->column_stride = operands[0].strides[is_exchanged ? m : n];
    *out_is_exchanged = is_exchanged;
}

void matmul_dot_run(const kernel_call_t *call, char *const *data)
{
    if (matmul_is_empty(call)) {
        return;
    }
    work_t work;
    bool is_exchanged;
    prepare(call, &work, &is_exchanged);
    int64_t index[SPAN_MAX_RANK] = {0};
    char *at[3] = {data[0], data[1], data[2]};
    do {
        work.result = at[0];
        work.left.data = at[is_exchanged ? 2 : 1];
        work.right.data = at[is_exchanged ? 1 : 2];
        for (int64_t row = 0; row < work.left.count; row += MOST_ROWS_AT_ONCE) {
            run_rows(&work, row, smaller(work.left.count - row, MOST_ROWS_AT_ONCE));
        }
    } while (matmul_next_batch(call, index, at));
}
