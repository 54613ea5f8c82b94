/* Reductions of elements against references in wider arithmetic: every dtype and reduction, values
 * that round, NaN, infinity, subnormals, any length, each instruction set this machine has. */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "checks.h"
#include "comm/reduce.h"

enum { NUM = 3001, MOST_RANKS = 5 };

static uint64_t state = 88172645463325252U;

static uint64_t next_random(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

/* ---------------------------------------------------------------- f16 and bf16 by definition */

static double value_of_f16(uint16_t half)
{
    int exponent = half >> 10 & 31, fraction = half & 1023;
    double sign = (half & 0x8000) != 0 ? -1 : 1;
    if (exponent == 31) {
        return fraction != 0 ? NAN : sign * INFINITY;
    }
    return sign * (exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, exponent - 25));
}

static double value_of_bf16(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof(value));
    return (double)value;
}

/* The candidate nearest to an f32 value, ties to even: a search, slow and plain. */
static uint16_t nearest_f16(float value)
{
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    double size = fabs((double)value);
    if (isnan(value)) {
        return (uint16_t)(sign | 0x7E00);
    }
    if (size >= 65520) {
        return (uint16_t)(sign | 0x7C00);
    }
    uint16_t low = 0, high = 0x7BFF;
    while (low < high) { /* the largest not above */
        uint16_t middle = (uint16_t)((low + high + 1) / 2);
        if (value_of_f16(middle) <= size) {
            low = middle;
        } else {
            high = (uint16_t)(middle - 1);
        }
    }
    double below = size - value_of_f16(low);
    double above = (low == 0x7BFF ? 65536 : value_of_f16((uint16_t)(low + 1))) - size;
    bool goes_up = above < below || (above == below && (low & 1) != 0);
    return (uint16_t)(sign | (low + goes_up));
}

static uint16_t nearest_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    uint16_t low = (uint16_t)(bits >> 16);
    uint32_t rest = bits & 0xFFFF;
    if (isnan(value)) {
        return (uint16_t)(low | 0x40);
    }
    return (uint16_t)(low + (rest > 0x8000 || (rest == 0x8000 && (low & 1) != 0)));
}

/* ---------------------------------------------------------------- the reference */

static float combine_f32(float a, float b, uncopy_reduction_t reduction)
{
    switch (reduction) {
    case UNCOPY_REDUCE_PRODUCT:
        return a * b;
    case UNCOPY_REDUCE_MIN:
        return isnan(a) || isnan(b) ? NAN : (b < a ? b : a);
    case UNCOPY_REDUCE_MAX:
        return isnan(a) || isnan(b) ? NAN : (b > a ? b : a);
    default:
        return a + b;
    }
}

static double combine_f64(double a, double b, uncopy_reduction_t reduction)
{
    switch (reduction) {
    case UNCOPY_REDUCE_PRODUCT:
        return a * b;
    case UNCOPY_REDUCE_MIN:
        return isnan(a) || isnan(b) ? NAN : (b < a ? b : a);
    case UNCOPY_REDUCE_MAX:
        return isnan(a) || isnan(b) ? NAN : (b > a ? b : a);
    default:
        return a + b;
    }
}

static int64_t wrap(int64_t value, uncopy_dtype_t dtype)
{
    switch (dtype) {
    case UNCOPY_DTYPE_I8:
        return (int8_t)value;
    case UNCOPY_DTYPE_U8:
        return (uint8_t)value;
    case UNCOPY_DTYPE_I16:
        return (int16_t)value;
    case UNCOPY_DTYPE_I32:
        return (int32_t)value;
    case UNCOPY_DTYPE_BOOL:
        return value != 0;
    default:
        return value;
    }
}

static int64_t combine_i64(int64_t a, int64_t b, uncopy_reduction_t reduction, uncopy_dtype_t dtype)
{
    bool is_bool = dtype == UNCOPY_DTYPE_BOOL;
    switch (reduction) {
    case UNCOPY_REDUCE_PRODUCT:
        return wrap((int64_t)((uint64_t)a * (uint64_t)b), dtype);
    case UNCOPY_REDUCE_MIN:
        return a < b ? a : b;
    case UNCOPY_REDUCE_MAX:
        return a > b ? a : b;
    case UNCOPY_REDUCE_BAND:
        return a & b;
    case UNCOPY_REDUCE_BOR:
        return a | b;
    case UNCOPY_REDUCE_BXOR:
        return a ^ b;
    default:
        return is_bool ? (a | b) : wrap((int64_t)((uint64_t)a + (uint64_t)b), dtype);
    }
}

static int64_t integer_at(const char *memory, size_t i, uncopy_dtype_t dtype)
{
    const void *at = memory + i * uncopy_dtype_size(dtype);
    switch (dtype) {
    case UNCOPY_DTYPE_I8:
        return *(const int8_t *)at;
    case UNCOPY_DTYPE_I16:
        return *(const int16_t *)at;
    case UNCOPY_DTYPE_I32:
        return *(const int32_t *)at;
    case UNCOPY_DTYPE_I64:
        return *(const int64_t *)at;
    case UNCOPY_DTYPE_BOOL:
        return *(const uint8_t *)at != 0;
    default:
        return *(const uint8_t *)at;
    }
}

static float f32_at(const char *memory, size_t i, uncopy_dtype_t dtype)
{
    const char *at = memory + i * uncopy_dtype_size(dtype);
    uint16_t half = 0;
    float value = 0;
    if (dtype == UNCOPY_DTYPE_F32) {
        memcpy(&value, at, sizeof(value));
        return value;
    }
    memcpy(&half, at, sizeof(half));
    return (float)(dtype == UNCOPY_DTYPE_F16 ? value_of_f16(half) : value_of_bf16(half));
}

static bool is_same_f32(float actual, float expected)
{
    return (isnan(actual) && isnan(expected)) || memcmp(&actual, &expected, sizeof(actual)) == 0;
}

static bool is_right_float(const char *result, const char *const *sources, int32_t n, size_t i,
                           uncopy_dtype_t dtype, uncopy_reduction_t reduction)
{
    float value = f32_at(sources[0], i, dtype);
    for (int32_t p = 1; p < n; p++) {
        value = combine_f32(value, f32_at(sources[p], i, dtype), reduction);
    }
    value *= reduction == UNCOPY_REDUCE_AVG ? 1.0F / (float)n : 1.0F;
    if (dtype == UNCOPY_DTYPE_F32) {
        return is_same_f32(f32_at(result, i, dtype), value);
    }
    uint16_t half = dtype == UNCOPY_DTYPE_F16 ? nearest_f16(value) : nearest_bf16(value);
    uint16_t actual;
    memcpy(&actual, result + i * 2, sizeof(actual));
    return actual == half || (isnan(value) && isnan(f32_at(result, i, dtype)));
}

static bool is_right_f64(const char *result, const char *const *sources, int32_t n, size_t i,
                         uncopy_reduction_t reduction)
{
    const double *of_first = (const void *)sources[0], *of_result = (const void *)result;
    double value = of_first[i];
    for (int32_t p = 1; p < n; p++) {
        value = combine_f64(value, ((const double *)(const void *)sources[p])[i], reduction);
    }
    value *= reduction == UNCOPY_REDUCE_AVG ? 1.0 / n : 1.0;
    return (isnan(value) && isnan(of_result[i])) ||
           memcmp(&value, &of_result[i], sizeof(value)) == 0;
}

static bool is_right(const char *result, const char *const *sources, int32_t n, size_t i,
                     uncopy_dtype_t dtype, uncopy_reduction_t reduction)
{
    if (dtype == UNCOPY_DTYPE_F64) {
        return is_right_f64(result, sources, n, i, reduction);
    }
    if (dtype == UNCOPY_DTYPE_F32 || dtype == UNCOPY_DTYPE_F16 || dtype == UNCOPY_DTYPE_BF16) {
        return is_right_float(result, sources, n, i, dtype, reduction);
    }
    int64_t value = integer_at(sources[0], i, dtype);
    for (int32_t p = 1; p < n; p++) {
        value = combine_i64(value, integer_at(sources[p], i, dtype), reduction, dtype);
    }
    int64_t actual =
        dtype == UNCOPY_DTYPE_BOOL ? *(const uint8_t *)(result + i) : integer_at(result, i, dtype);
    return actual == value;
}

/* ---------------------------------------------------------------- the runs */

/* Any bits for one element in four: NaN, infinity, subnormals; else numbers of like size, so that
 * sums round. */
static void fill(char *memory, uncopy_dtype_t dtype)
{
    size_t width = uncopy_dtype_size(dtype);
    for (size_t i = 0; i < NUM; i++) {
        uint64_t bits = next_random();
        if (next_random() % 4 != 0) {
            double number = ((double)(next_random() % 2000001) - 1000000) / 997;
            float single = (float)number;
            if (dtype == UNCOPY_DTYPE_F64) {
                memcpy(&bits, &number, sizeof(bits));
            } else if (dtype == UNCOPY_DTYPE_F32) {
                memcpy(&bits, &single, sizeof(single));
            } else if (dtype == UNCOPY_DTYPE_F16) {
                bits = nearest_f16(single);
            } else if (dtype == UNCOPY_DTYPE_BF16) {
                bits = nearest_bf16(single);
            }
        }
        memcpy(memory + i * width, &bits, width);
    }
}

static void check_runs(const reduce_table_t *table, uncopy_dtype_t dtype,
                       uncopy_reduction_t reduction)
{
    static char memory[MOST_RANKS + 2][NUM * 8 + 64];
    static const size_t counts[] = {1, 7, 63, 1024, 1025, NUM - 5};
    for (int32_t n = 1; n <= MOST_RANKS; n++) {
        const char *sources[MOST_RANKS];
        for (int32_t p = 0; p < n; p++) {
            fill(memory[p], dtype);
            sources[p] = memory[p] + (size_t)(p % 3) * uncopy_dtype_size(dtype);
        }
        size_t count = counts[next_random() % 6];
        size_t bytes = count * uncopy_dtype_size(dtype);
        memset(memory[MOST_RANKS], 0xEE, bytes + 16);
        memset(memory[MOST_RANKS + 1], 0xEE, bytes + 16);
        reduce_run_t run = {.reduction = reduction,
                            .sources = sources,
                            .num_sources = n,
                            .destination = memory[MOST_RANKS],
                            .copy = memory[MOST_RANKS + 1],
                            .count = count};
        table->of_dtype[dtype](&run);
        bool all_right = true;
        for (size_t i = 0; i < count; i++) {
            all_right = all_right && is_right(run.destination, sources, n, i, dtype, reduction);
        }
        if (!CHECK(all_right)) {
            printf("    %s of %d x %zu %s, %s\n", uncopy_reduction_name(reduction), n, count,
                   uncopy_dtype_name(dtype), table->name);
        }
        CHECK(memcmp(run.destination, run.copy, bytes) == 0);
        CHECK(memory[MOST_RANKS][bytes] == (char)0xEE);
        /* in place of the last source */
        memcpy(memory[MOST_RANKS], run.copy, bytes);
        run.destination = NULL;
        run.copy = memory[n - 1] + (size_t)((n - 1) % 3) * uncopy_dtype_size(dtype);
        table->of_dtype[dtype](&run);
        CHECK(memcmp(run.copy, memory[MOST_RANKS], bytes) == 0);
    }
}

static void check_table(const reduce_table_t *table)
{
    int32_t num_pairs = 0;
    for (int dtype = 0; dtype < 20; dtype++) {
        for (int reduction = 0; reduction < 8; reduction++) {
            if (reduce_is_supported((uncopy_dtype_t)dtype, (uncopy_reduction_t)reduction)) {
                check_runs(table, (uncopy_dtype_t)dtype, (uncopy_reduction_t)reduction);
                num_pairs++;
            }
        }
    }
    CHECK_EQUAL_I64(num_pairs, 4 * 5 + 6 * 7);
}

/* All 65536 values go through f32 and come back. */
static void every_half_survives(const reduce_table_t *table, uncopy_dtype_t dtype)
{
    static uint16_t values[65536], results[65536];
    for (uint32_t i = 0; i < 65536; i++) {
        values[i] = (uint16_t)i;
    }
    const char *source = (const char *)values;
    reduce_run_t run = {
        .sources = &source, .num_sources = 1, .destination = (char *)results, .count = 65536};
    table->of_dtype[dtype](&run);
    int32_t num_wrong = 0;
    for (uint32_t i = 0; i < 65536; i++) {
        bool is_nan =
            isnan(dtype == UNCOPY_DTYPE_F16 ? value_of_f16(values[i]) : value_of_bf16(values[i]));
        bool stays_nan =
            isnan(dtype == UNCOPY_DTYPE_F16 ? value_of_f16(results[i]) : value_of_bf16(results[i]));
        num_wrong += is_nan ? !stays_nan : results[i] != values[i];
    }
    CHECK_EQUAL_I64(num_wrong, 0);
}

int main(void)
{
    const reduce_table_t *tables[3] = {&reduce_portable};
    int32_t num_tables = 1;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        tables[num_tables++] = &reduce_avx2;
    }
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
        tables[num_tables++] = &reduce_avx512;
    }
#endif
    for (int32_t i = 0; i < num_tables; i++) {
        printf("instruction set: %s\n", tables[i]->name);
        check_table(tables[i]);
        every_half_survives(tables[i], UNCOPY_DTYPE_F16);
        every_half_survives(tables[i], UNCOPY_DTYPE_BF16);
    }
    CHECK(!reduce_is_supported(UNCOPY_DTYPE_C64, UNCOPY_REDUCE_SUM));
    CHECK(!reduce_is_supported(UNCOPY_DTYPE_I32, UNCOPY_REDUCE_AVG));
    CHECK(!reduce_is_supported(UNCOPY_DTYPE_F32, UNCOPY_REDUCE_BXOR));
    return checks_finish("comm_reduce");
}
