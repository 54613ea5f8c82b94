/* Conformance of matmul: dtypes, shapes around every tile edge, all layouts of the operands,
 * batches; accuracy against sums in long double, and the same bits whatever the layout. */
#include <math.h>
#include <stdlib.h>

#include "call.h"
#include "check.h"
#include "cpu/cpu.h"
#include "cpu/dot.h"

static const uncopy_dtype_t dtypes[] = {UNCOPY_DTYPE_F32, UNCOPY_DTYPE_F64, UNCOPY_DTYPE_F16,
                                        UNCOPY_DTYPE_BF16};

static void convert(const float *from, char *to, uncopy_dtype_t dtype, int64_t count)
{
    kernel_call_t call = {.opcode = OPCODE_CONVERT, .num_operands = 2, .rank = 1, .sizes = {count}};
    call.operands[0] =
        (kernel_operand_t){.dtype = dtype, .strides = {(int64_t)uncopy_dtype_size(dtype)}};
    call.operands[1] = (kernel_operand_t){.dtype = UNCOPY_DTYPE_F32, .strides = {4}};
    char *data[2] = {to, (char *)(uintptr_t)from};
    call_run(&call, data);
}

static double *as_doubles(const char *elements, uncopy_dtype_t dtype, int64_t count)
{
    double *values = malloc((size_t)count * sizeof(double) + 1);
    kernel_call_t call = {.opcode = OPCODE_CONVERT, .num_operands = 2, .rank = 1, .sizes = {count}};
    call.operands[0] = (kernel_operand_t){.dtype = UNCOPY_DTYPE_F64, .strides = {8}};
    call.operands[1] =
        (kernel_operand_t){.dtype = dtype, .strides = {(int64_t)uncopy_dtype_size(dtype)}};
    char *data[2] = {(char *)values, (char *)(uintptr_t)elements};
    call_run(&call, data);
    return values;
}

typedef struct product {
    uncopy_dtype_t dtype;
    int64_t m, k, n;
    char *a, *b; /* contiguous [m, k] and [k, n] */
} product_t;

static char *random_matrix(uncopy_dtype_t dtype, int64_t count)
{
    static uint32_t state = 2463534242u;
    float *wide = malloc((size_t)count * sizeof(float) + 1);
    char *elements = malloc((size_t)count * 8 + 1);
    for (int64_t i = 0; i < count; i++) {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        wide[i] = (float)(int32_t)state * 0x1p-31f;
    }
    convert(wide, elements, dtype, count);
    free(wide);
    return elements;
}

/* A copy of a [rows, columns] matrix in memory of another layout. */
static char *relaid(const char *from, int64_t bytes, int64_t rows, int64_t columns,
                    const int64_t *strides)
{
    int64_t last =
        (rows > 0 ? rows - 1 : 0) * strides[0] + (columns > 0 ? columns - 1 : 0) * strides[1];
    char *to = calloc((size_t)(last + 1), (size_t)bytes);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < columns; c++) {
            memcpy(to + (r * strides[0] + c * strides[1]) * bytes, from + (r * columns + c) * bytes,
                   (size_t)bytes);
        }
    }
    return to;
}

/* Strides of layout 0 contiguous, 1 transposed, 2 padded rows, 3 with gaps everywhere. */
static void layout_strides(int layout, int64_t rows, int64_t columns, int64_t *out_strides)
{
    const int64_t all[4][2] = {{columns, 1}, {1, rows}, {columns + 5, 1}, {2 * columns + 3, 2}};
    memcpy(out_strides, all[layout], sizeof(all[layout]));
}

static void run_in_parts(const kernel_call_t *call, char *const *data, int num_parts)
{
    kernel_function_t function = cpu_find(call);
    int dim = call->sizes[0] > call->sizes[1] ? 0 : 1;
    int64_t size = call->sizes[dim];
    for (int i = 0; i < num_parts; i++) {
        int64_t first = size * i / num_parts, end = size * (i + 1) / num_parts;
        kernel_call_t part = *call;
        part.sizes[dim] = end - first;
        char *at[3];
        for (int j = 0; j < 3; j++) {
            at[j] = data[j] + first * call->operands[j].strides[dim];
        }
        function(&part, at);
    }
}

/* The result, contiguous, of the product with its operands and result laid out as told. num_parts
 * above 1: computed in so many parts along the longer dim of the result, by the kernel that the
 * whole call has. out_is_dot: whether by dot products, whose sums have another order. */
static char *multiply(const product_t *product, int layout_a, int layout_b, int layout_result,
                      int num_parts, bool *out_is_dot)
{
    int64_t bytes = (int64_t)uncopy_dtype_size(product->dtype), m = product->m, k = product->k,
            n = product->n;
    int64_t a_strides[2], b_strides[2], strides[2];
    layout_strides(layout_a, m, k, a_strides);
    layout_strides(layout_b, k, n, b_strides);
    layout_strides(layout_result, m, n, strides);
    char *a = relaid(product->a, bytes, m, k, a_strides),
         *b = relaid(product->b, bytes, k, n, b_strides);
    char *out = calloc((size_t)(m * n * 2 + m * 3 + n + 1) * 2, (size_t)bytes);
    kernel_call_t call = {
        .opcode = OPCODE_MATMUL, .num_operands = 3, .rank = 2, .sizes = {m, n}, .k = k};
    call.operands[0] = (kernel_operand_t){.dtype = product->dtype,
                                          .strides = {strides[0] * bytes, strides[1] * bytes}};
    call.operands[1] =
        (kernel_operand_t){.dtype = product->dtype, .strides = {a_strides[0] * bytes, 0}};
    call.operands[2] =
        (kernel_operand_t){.dtype = product->dtype, .strides = {0, b_strides[1] * bytes}};
    call.k_strides[0] = a_strides[1] * bytes;
    call.k_strides[1] = b_strides[0] * bytes;
    char *data[3] = {out, a, b};
    *out_is_dot = matmul_is_dot(&call);
    run_in_parts(&call, data, num_parts);
    char *result = calloc((size_t)(m * n + 1), (size_t)bytes);
    for (int64_t i = 0; i < m * n; i++) {
        memcpy(result + i * bytes, out + (i / n * strides[0] + i % n * strides[1]) * bytes,
               (size_t)bytes);
    }
    free(a);
    free(b);
    free(out);
    return result;
}

static double least_unit(uncopy_dtype_t dtype)
{
    return dtype == UNCOPY_DTYPE_F64   ? 0x1p-53
           : dtype == UNCOPY_DTYPE_F32 ? 0x1p-24
           : dtype == UNCOPY_DTYPE_F16 ? 0x1p-11
                                       : 0x1p-8;
}

/* Each element within the rounding of the result and of blocked sums: unit * |c| + sum unit * sum
 * |a b|. */
static void check_values(const product_t *product, const char *result)
{
    int64_t m = product->m, k = product->k, n = product->n, num_wrong = 0;
    double sum_unit = product->dtype == UNCOPY_DTYPE_F64 ? 0x1p-53 : 0x1p-24;
    double *a = as_doubles(product->a, product->dtype, m * k);
    double *b = as_doubles(product->b, product->dtype, k * n);
    double *c = as_doubles(result, product->dtype, m * n);
    for (int64_t i = 0; i < m * n; i++) {
        long double exact = 0, size = 0;
        for (int64_t j = 0; j < k; j++) {
            long double term = (long double)a[i / n * k + j] * b[j * n + i % n];
            exact += term;
            size += fabsl(term);
        }
        long double error = fabsl((long double)c[i] - exact);
        num_wrong +=
            !(error <= 1.01L * least_unit(product->dtype) * fabsl(exact) + 8 * sum_unit * size +
                           1e-7L * (product->dtype == UNCOPY_DTYPE_F16));
    }
    free(a);
    free(b);
    free(c);
    CHECK_EQUAL_I64(num_wrong, 0);
}

/* Values are right, and the bits the same for every layout and cut by the same method. */
static void check_product(uncopy_dtype_t dtype, int64_t m, int64_t k, int64_t n,
                          bool has_all_layouts)
{
    product_t product = {dtype, m, k, n, random_matrix(dtype, m * k), random_matrix(dtype, k * n)};
    int64_t bytes = m * n * (int64_t)uncopy_dtype_size(dtype);
    char *firsts[2] = {NULL, NULL};
    for (int i = 0; i < (has_all_layouts ? 64 : 16); i++) {
        bool is_dot;
        char *other = multiply(&product, i % 4, i / 4 % 4, i / 16, 1 + i % 3, &is_dot);
        if (firsts[is_dot] == NULL) {
            check_values(&product, other);
            firsts[is_dot] = other;
            continue;
        }
        if (!CHECK(memcmp(firsts[is_dot], other, (size_t)bytes) == 0)) {
            printf("    layouts %d %d %d of %s %d %d %d\n", i % 4, i / 4 % 4, i / 16,
                   uncopy_dtype_name(dtype), (int)m, (int)k, (int)n);
        }
        free(other);
    }
    free(firsts[0]);
    free(firsts[1]);
    free(product.a);
    free(product.b);
}

static void every_shape_is_right_in_every_layout(void)
{
    static const int64_t shapes[][3] = {{2, 8, 16},   {1, 1, 1},   {3, 17, 33},  {9, 65, 31},
                                        {1, 300, 40}, {8, 16, 64}, {66, 70, 65}, {40, 100, 3},
                                        {70, 257, 1}, {5, 0, 4},   {4, 2100, 7}, {7, 2049, 30},
                                        {2, 32, 9}};
    for (size_t d = 0; d < 4; d++) {
        for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
            check_product(dtypes[d], shapes[i][0], shapes[i][1], shapes[i][2], true);
        }
        check_product(dtypes[d], 8, 530, 1100, false);
    }
}

static void empty_results_are_left_alone(void)
{
    kernel_call_t call = {
        .opcode = OPCODE_MATMUL, .num_operands = 3, .rank = 2, .sizes = {0, 4}, .k = 3};
    for (int i = 0; i < 3; i++) {
        call.operands[i].dtype = UNCOPY_DTYPE_F32;
    }
    char *data[3] = {NULL, NULL, NULL};
    call_run(&call, data);
    CHECK(!cpu_prefers_host_matmul(&call));
}

/* Two batch dims, one of them broadcast on the right. */
static void batches_take_their_own_operands(void)
{
    enum { B = 2, C = 3, M = 2, K = 5, N = 4 };
    static float a[B][C][M][K], b[C][K][N], out[B][C][M][N];
    for (int i = 0; i < B * C * M * K; i++) {
        (&a[0][0][0][0])[i] = (float)(i % 7);
    }
    for (int i = 0; i < C * K * N; i++) {
        (&b[0][0][0])[i] = (float)(i % 5);
    }
    kernel_call_t call = {
        .opcode = OPCODE_MATMUL, .num_operands = 3, .rank = 4, .sizes = {B, C, M, N}, .k = K};
    const int64_t strides[3][4] = {
        {C * M * N, M * N, N, 1}, {C * M * K, M * K, K, 0}, {0, K * N, 0, 1}};
    for (int i = 0; i < 3; i++) {
        call.operands[i].dtype = UNCOPY_DTYPE_F32;
        for (int d = 0; d < 4; d++) {
            call.operands[i].strides[d] = strides[i][d] * 4;
        }
    }
    call.k_strides[0] = 4;
    call.k_strides[1] = N * 4;
    char *data[3] = {(char *)out, (char *)a, (char *)b};
    call_run(&call, data);
    int num_wrong = 0;
    for (int i = 0; i < B * C * M * N; i++) {
        int batch = i / (C * M * N), c = i / (M * N) % C, m = i / N % M, n = i % N;
        float exact = 0;
        for (int k = 0; k < K; k++) {
            exact += a[batch][c][m][k] * b[c][k][n];
        }
        num_wrong += out[batch][c][m][n] != exact;
    }
    CHECK_EQUAL_I64(num_wrong, 0);
    CHECK_EQUAL_TEXT(cpu_kernel_name(&call), "matmul.gemv.f32");
}

/* Infinity times zero, a NaN, and a sum that overflows f16 only when stored. */
static void special_values_pass_through(void)
{
    float a[2][3] = {{INFINITY, 1, 2}, {NAN, 0, 0}}, b[3][1] = {{0}, {1}, {1}}, out[2] = {0, 0};
    kernel_call_t call = {
        .opcode = OPCODE_MATMUL, .num_operands = 3, .rank = 2, .sizes = {2, 1}, .k = 3};
    const int64_t strides[3][2] = {{4, 4}, {12, 0}, {0, 4}};
    for (int i = 0; i < 3; i++) {
        call.operands[i].dtype = UNCOPY_DTYPE_F32;
        memcpy(call.operands[i].strides, strides[i], sizeof(strides[i]));
    }
    call.k_strides[0] = 4;
    call.k_strides[1] = 4;
    char *data[3] = {(char *)out, (char *)a, (char *)b};
    call_run(&call, data);
    CHECK(isnan(out[0]) && isnan(out[1]));
    a[0][0] = 5;
    call_run(&call, data);
    CHECK(out[0] == 3);
}

/* Blocked sums: the error's root mean square over 4096 products stays below two units of f32,
 * relative to the result's. */
/* By both methods: layout 1 of the right operand is contiguous along k. */
static void long_sums_stay_accurate(void)
{
    enum { K = 4096, N = 64 };
    product_t product = {UNCOPY_DTYPE_F32,
                         1,
                         K,
                         N,
                         random_matrix(UNCOPY_DTYPE_F32, K),
                         random_matrix(UNCOPY_DTYPE_F32, K * N)};
    const float *a = (const float *)(void *)product.a, *b = (const float *)(void *)product.b;
    for (int layout = 0; layout < 2; layout++) {
        bool is_dot;
        char *result = multiply(&product, 0, layout, 0, 1, &is_dot);
        CHECK(is_dot == (layout == 1));
        double errors = 0, squares = 0;
        for (int n = 0; n < N; n++) {
            double exact = 0;
            for (int k = 0; k < K; k++) {
                exact += (double)a[k] * (double)b[k * N + n];
            }
            double error = (double)((const float *)(void *)result)[n] - exact;
            errors += error * error;
            squares += exact * exact;
        }
        CHECK(sqrt(errors / squares) < 0x1p-22);
        free(result);
    }
    free(product.a);
    free(product.b);
}

int main(void)
{
    every_shape_is_right_in_every_layout();
    empty_results_are_left_alone();
    batches_take_their_own_operands();
    special_values_pass_through();
    long_sums_stay_accurate();
    return check_finish("cpu_matmul");
}
