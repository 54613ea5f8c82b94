/* Conformance of the pointwise kernels: every row of ops.def, every dtype that its rule takes, over
 * strides, tails, in-place operands and special values, against formulas written here in long
 * double and 64-bit integers. */
#include <math.h>
#include <stdlib.h>

#include "call.h"
#include "check.h"
#include "cpu/cpu.h"

enum { MAX_COUNT = 1100, STRIDE_ROOM = 3 };

/* ---- elements, decoded and rounded independently of the kernels ---- */

typedef struct value {
    long double real; /* of floats */
    uint64_t whole;   /* of integers and bool, sign-extended */
} value_t;

static bool is_float(uncopy_dtype_t dtype)
{
    return dtype_kind(dtype) == DTYPE_KIND_FLOAT;
}

static int mantissa_bits(uncopy_dtype_t dtype)
{
    return dtype == UNCOPY_DTYPE_BF16  ? 8
           : dtype == UNCOPY_DTYPE_F16 ? 11
           : dtype == UNCOPY_DTYPE_F32 ? 24
                                       : 53;
}

static int least_exponent(uncopy_dtype_t dtype)
{
    return dtype == UNCOPY_DTYPE_F16 ? -14 : dtype == UNCOPY_DTYPE_F64 ? -1022 : -126;
}

static long double greatest(uncopy_dtype_t dtype)
{
    int exponent = dtype == UNCOPY_DTYPE_F16 ? 16 : dtype == UNCOPY_DTYPE_F64 ? 1024 : 128;
    return ldexpl(1 - ldexpl(1, -mantissa_bits(dtype)), exponent);
}

/* Nearest value of dtype, ties to even. */
static long double round_real(long double x, uncopy_dtype_t dtype)
{
    if (isnan(x) || isinf(x) || x == 0) {
        return x;
    }
    int exponent = 0;
    (void)frexpl(x, &exponent);
    int scale = mantissa_bits(dtype) - exponent;
    int most = mantissa_bits(dtype) - 1 - least_exponent(dtype);
    scale = scale > most ? most : scale;
    long double rounded = ldexpl(rintl(ldexpl(x, scale)), -scale);
    return fabsl(rounded) > greatest(dtype) ? copysignl(INFINITY, x) : copysignl(rounded, x);
}

static long double decode_half(uint16_t bits, int mantissa, int bias)
{
    int field = (bits & 0x7fff) >> mantissa, all = (0x7fff >> mantissa);
    int fraction = bits & ((1 << mantissa) - 1);
    long double sign = bits & 0x8000 ? -1 : 1;
    if (field == all) {
        return fraction != 0 ? (long double)NAN : sign * (long double)INFINITY;
    }
    int shown = field == 0 ? fraction : fraction + (1 << mantissa);
    return sign * ldexpl(shown, (field == 0 ? 1 : field) - bias - mantissa);
}

static value_t read_element(const char *at, uncopy_dtype_t dtype)
{
    value_t value = {0, 0};
    uint64_t raw = 0;
    memcpy(&raw, at, uncopy_dtype_size(dtype));
    float narrow = 0;
    double wide = 0;
    memcpy(&narrow, &raw, sizeof(narrow));
    memcpy(&wide, &raw, sizeof(wide));
    int shift = 64 - 8 * (int)uncopy_dtype_size(dtype);
    switch (dtype) {
    case UNCOPY_DTYPE_F32:
        value.real = narrow;
        break;
    case UNCOPY_DTYPE_F64:
        value.real = wide;
        break;
    case UNCOPY_DTYPE_F16:
        value.real = decode_half((uint16_t)raw, 10, 15);
        break;
    case UNCOPY_DTYPE_BF16:
        value.real = decode_half((uint16_t)raw, 7, 127);
        break;
    default:
        value.whole = dtype_kind(dtype) == DTYPE_KIND_SIGNED
                          ? (uint64_t)((int64_t)(raw << shift) >> shift)
                          : raw;
    }
    return value;
}

/* ---- input values ---- */

static uint64_t random_state = 88172645463325252u;

static uint64_t random_bits(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static uint64_t half_bits(uncopy_dtype_t dtype, unsigned which)
{
    static const uint16_t f16[] = {0,      0x8000, 0x3c00, 0xbc00, 0x7c00,
                                   0xfc00, 0x7e01, 0x7bff, 1,      0x83ff};
    static const uint16_t bf16[] = {0,      0x8000, 0x3f80, 0xbf80, 0x7f80,
                                    0xff80, 0x7fc1, 0x7f7f, 1,      0x807f};
    return dtype == UNCOPY_DTYPE_F16 ? f16[which] : bf16[which];
}

static uint64_t special_bits(uncopy_dtype_t dtype, unsigned which)
{
    static const double reals[] = {0.0, -0.0,           1,        -1,       INFINITY, -INFINITY,
                                   NAN, 0x1.fffffep127, 0x1p-149, -0x1p-130};
    double wide = reals[which];
    float narrow = (float)wide;
    uint64_t raw = 0;
    switch (dtype) {
    case UNCOPY_DTYPE_F32:
        memcpy(&raw, &narrow, sizeof(narrow));
        return raw;
    case UNCOPY_DTYPE_F64:
        memcpy(&raw, &wide, sizeof(wide));
        return raw;
    case UNCOPY_DTYPE_F16:
    case UNCOPY_DTYPE_BF16:
        return half_bits(dtype, which);
    default: {
        int bits = 8 * (int)uncopy_dtype_size(dtype);
        const uint64_t wholes[] = {0, 1, UINT64_MAX, UINT64_C(1) << (bits - 1),
                                   (UINT64_C(1) << (bits - 1)) - 1};
        return wholes[which % 5];
    }
    }
}

/* Half of the floats have moderate exponents, so that sums and products round; the rest are any
 * bits, or special. */
static uint64_t random_element(uncopy_dtype_t dtype)
{
    uint64_t bits = random_bits();
    if (dtype == UNCOPY_DTYPE_BOOL) {
        return bits >> 63;
    }
    if (bits % 8 == 0) {
        return special_bits(dtype, (unsigned)(bits >> 8) % 10);
    }
    uint64_t raw = random_bits();
    bool is_moderate = bits % 8 < 6;
    double wide = ldexp((double)(int64_t)raw, -62 + (int)(bits >> 16) % 8);
    float narrow = (float)wide;
    switch (dtype) {
    case UNCOPY_DTYPE_F64:
        memcpy(&raw, &wide, is_moderate ? sizeof(wide) : 0);
        return raw;
    case UNCOPY_DTYPE_F32:
        memcpy(&raw, &narrow, is_moderate ? sizeof(narrow) : 0);
        return raw;
    case UNCOPY_DTYPE_F16:
        return is_moderate ? (raw & 0x83ff) | (0x3000 + (raw >> 20 & 0x0c00)) : raw;
    case UNCOPY_DTYPE_BF16:
        return is_moderate ? (raw & 0x807f) | (0x3e00 + (raw >> 20 & 0x0180)) : raw;
    default:
        return raw;
    }
}

/* ---- the oracle ---- */

static long double fused(long double x, long double y, long double z, uncopy_dtype_t dtype)
{
    bool is_wide = dtype == UNCOPY_DTYPE_F64;
    return is_wide ? (long double)fma((double)x, (double)y, (double)z)
                   : (long double)fmaf((float)x, (float)y, (float)z);
}

static long double real_oracle(opcode_t opcode, const long double *x, long double alpha,
                               uncopy_dtype_t dtype)
{
    long double a = x[0], b = x[1];
    /* Of f64 a long double would round twice. */
    bool is_wide = dtype == UNCOPY_DTYPE_F64;
    switch (opcode) {
    case OPCODE_ADD:
        return fused(alpha, b, a, dtype);
    case OPCODE_SUB:
        return fused(-alpha, b, a, dtype);
    case OPCODE_MUL:
        return is_wide ? (double)a * (double)b : a * b;
    case OPCODE_DIV:
        return is_wide ? (double)a / (double)b : a / b;
    case OPCODE_MAXIMUM:
        return isnan(a) || isnan(b) ? (long double)NAN : a > b ? a : b;
    case OPCODE_MINIMUM:
        return isnan(a) || isnan(b) ? (long double)NAN : a < b ? a : b;
    case OPCODE_NEG:
        return -a;
    case OPCODE_ABS:
        return fabsl(a);
    case OPCODE_EXP:
        return expl(a);
    case OPCODE_LOG:
        return logl(a);
    case OPCODE_SQRT:
        return is_wide ? sqrt((double)a) : sqrtl(a);
    case OPCODE_RSQRT:
        return 1 / sqrtl(a);
    case OPCODE_RECIPROCAL:
        return is_wide ? 1 / (double)a : 1 / a;
    case OPCODE_SIN:
        return sinl(a);
    case OPCODE_COS:
        return cosl(a);
    case OPCODE_TANH:
        return tanhl(a);
    case OPCODE_SIGMOID:
        return 1 / (1 + expl(-a));
    case OPCODE_RELU:
        return a < 0 ? 0 : a;
    case OPCODE_FLOOR:
        return floorl(a);
    case OPCODE_CEIL:
        return ceill(a);
    default:
        return truncl(a);
    }
}

static bool compare_real(opcode_t opcode, long double a, long double b)
{
    switch (opcode) {
    case OPCODE_EQ:
        return a == b;
    case OPCODE_NE:
        return a != b;
    case OPCODE_LT:
        return a < b;
    case OPCODE_LE:
        return a <= b;
    case OPCODE_GT:
        return a > b;
    case OPCODE_GE:
        return a >= b;
    default:
        return a == 0;
    }
}

/* Whether a is below b, as values of dtype. */
static bool is_below(uint64_t a, uint64_t b, uncopy_dtype_t dtype)
{
    return dtype_kind(dtype) == DTYPE_KIND_SIGNED ? (int64_t)a < (int64_t)b : a < b;
}

static uint64_t whole_oracle(opcode_t opcode, const uint64_t *x, uint64_t alpha,
                             uncopy_dtype_t dtype)
{
    uint64_t a = x[0], b = x[1];
    bool below = is_below(a, b, dtype), above = is_below(b, a, dtype),
         is_negative = is_below(a, 0, dtype);
    switch (opcode) {
    case OPCODE_ADD:
        return a + alpha * b;
    case OPCODE_SUB:
        return a - alpha * b;
    case OPCODE_MUL:
        return a * b;
    case OPCODE_MAXIMUM:
        return below ? b : a;
    case OPCODE_MINIMUM:
        return above ? b : a;
    case OPCODE_NEG:
        return 0 - a;
    case OPCODE_ABS:
        return is_negative ? 0 - a : a;
    case OPCODE_RELU:
        return is_negative ? 0 : a;
    case OPCODE_EQ:
        return a == b;
    case OPCODE_NE:
        return a != b;
    case OPCODE_LT:
        return below;
    case OPCODE_LE:
        return !above;
    case OPCODE_GT:
        return above;
    case OPCODE_GE:
        return !below;
    case OPCODE_BITWISE_AND:
        return a & b;
    case OPCODE_BITWISE_OR:
        return a | b;
    case OPCODE_BITWISE_XOR:
        return a ^ b;
    case OPCODE_BITWISE_NOT:
        return dtype == UNCOPY_DTYPE_BOOL ? a == 0 : ~a;
    default:
        return a == 0;
    }
}

/* Units in the last place by which a result may differ; 0 for exact ones. rsqrt rounds twice. */
static double allowed_ulp(opcode_t opcode, uncopy_dtype_t dtype)
{
    switch (opcode) {
    case OPCODE_RSQRT:
        return dtype == UNCOPY_DTYPE_F64 || dtype == UNCOPY_DTYPE_F32 ? 2 : 1;
    case OPCODE_EXP:
    case OPCODE_LOG:
    case OPCODE_SIN:
    case OPCODE_COS:
    case OPCODE_TANH:
    case OPCODE_SIGMOID:
        return dtype == UNCOPY_DTYPE_F64 ? 3 : 1;
    default:
        return 0;
    }
}

static bool is_near(long double actual, long double exact, uncopy_dtype_t dtype, double ulp)
{
    long double wanted = round_real(exact, dtype);
    if (isnan(wanted) || isnan(actual)) {
        return isnan(wanted) && isnan(actual);
    }
    if (actual == wanted) {
        return actual != 0 || ulp != 0 || !signbit(actual) == !signbit(wanted);
    }
    if (ulp == 0 || isinf(wanted) || isinf(actual)) {
        /* At the edge of overflow either side may be right when ulps are allowed. */
        return ulp != 0 && fabsl(exact) > greatest(dtype) * 0.99L;
    }
    int exponent = 0;
    (void)frexpl(exact, &exponent);
    exponent = exponent - 1 < least_exponent(dtype) ? least_exponent(dtype) : exponent - 1;
    return fabsl(actual - exact) <= ulp * ldexpl(1, exponent - mantissa_bits(dtype) + 1);
}

/* ---- one case ---- */

typedef struct layout {
    const char *name;
    int64_t steps[4]; /* of the result and the reads, in elements of the last dim */
    bool is_in_place; /* the result is the last operand read whose dtype is the result's */
} layout_t;

static const layout_t layouts[] = {
    {"contiguous", {1, 1, 1, 1}, false}, {"stepped", {2, 3, 1, 2}, false},
    {"broadcast", {1, 0, 1, 0}, false},  {"reversed", {-1, 1, -1, -2}, false},
    {"in place", {1, 1, 1, 1}, true},    {"in place stepped", {2, 2, 2, 2}, true},
};

/* Operands with room on both sides, so that negative steps stay inside. */
static char storages[4][(2 * STRIDE_ROOM * MAX_COUNT + 2) * 8];
static char before[4][sizeof(storages[0])];

static char *origin(int operand, uncopy_dtype_t dtype)
{
    return storages[operand] + (int64_t)uncopy_dtype_size(dtype) * STRIDE_ROOM * MAX_COUNT;
}

static void randomize(int operand, uncopy_dtype_t dtype)
{
    size_t bytes = uncopy_dtype_size(dtype);
    for (size_t at = 0; at + bytes <= sizeof(storages[0]); at += bytes) {
        uint64_t element = random_element(dtype);
        memcpy(storages[operand] + at, &element, bytes);
    }
    memcpy(before[operand], storages[operand], sizeof(storages[0]));
}

static uncopy_dtype_t read_dtype(opcode_t opcode, int read, uncopy_dtype_t dtype)
{
    return opcode == OPCODE_WHERE && read == 0 ? UNCOPY_DTYPE_BOOL : dtype;
}

static bool element_is_right(const kernel_call_t *call, const char *at, const char *const *from,
                             uncopy_dtype_t dtype)
{
    opcode_t opcode = call->opcode;
    value_t values[3] = {{0, 0}, {0, 0}, {0, 0}};
    long double reals[3];
    uint64_t wholes[3];
    for (int i = 0; i < call->num_operands - 1; i++) {
        values[i] = read_element(from[i], call->operands[i + 1].dtype);
    }
    for (int i = 0; i < 3; i++) {
        reals[i] = values[i].real;
        wholes[i] = values[i].whole;
    }
    value_t result = read_element(at, call->operands[0].dtype);
    if (opcode == OPCODE_WHERE) {
        return memcmp(at, from[wholes[0] != 0 ? 1 : 2], uncopy_dtype_size(dtype)) == 0;
    }
    bool is_compare = op_row(opcode)->rule == OP_RULE_COMPARE;
    if (is_float(dtype) && is_compare) {
        return result.whole == compare_real(opcode, reals[0], reals[1]);
    }
    double alpha = call->attributes[0];
    if (is_float(dtype)) {
        long double exact = real_oracle(opcode, reals, round_real(alpha, dtype), dtype);
        bool is_half = dtype == UNCOPY_DTYPE_F16 || dtype == UNCOPY_DTYPE_BF16;
        /* Half types compute in f32 first. */
        long double computed = is_half && allowed_ulp(opcode, dtype) == 0
                                   ? round_real(exact, UNCOPY_DTYPE_F32)
                                   : exact;
        return is_near(result.real, computed, dtype, allowed_ulp(opcode, dtype));
    }
    char expected[8];
    uint64_t whole = whole_oracle(opcode, wholes, (uint64_t)(int64_t)alpha, dtype);
    memcpy(expected, &whole, sizeof(expected));
    return memcmp(at, expected, uncopy_dtype_size(call->operands[0].dtype)) == 0;
}

/* Which operand the result shares memory with, or 0 for none. */
static int shared_operand(const kernel_call_t *call, bool is_in_place)
{
    for (int i = call->num_operands - 1; is_in_place && i > 0; i--) {
        if (call->operands[i].dtype == call->operands[0].dtype) {
            return i;
        }
    }
    return 0;
}

/* A loop of rows by columns; rows are ROOM columns apart so that the dims do not merge, unless rows
 * is 1. */
static void check_case(opcode_t opcode, uncopy_dtype_t dtype, const layout_t *layout, int64_t rows,
                       int64_t columns, double alpha)
{
    const op_row_t *row = op_row(opcode);
    kernel_call_t call = {
        .opcode = opcode, .num_operands = 1 + row->num_reads, .rank = 2, .sizes = {rows, columns}};
    call.attributes[0] = alpha;
    call.operands[0].dtype = row->rule == OP_RULE_COMPARE ? UNCOPY_DTYPE_BOOL : dtype;
    char *data[4] = {NULL};
    for (int i = 0; i < call.num_operands; i++) {
        kernel_operand_t *operand = &call.operands[i];
        operand->dtype = i > 0 ? read_dtype(opcode, i - 1, dtype) : operand->dtype;
        int64_t bytes = (int64_t)uncopy_dtype_size(operand->dtype);
        operand->strides[1] = layout->steps[i] * bytes;
        operand->strides[0] = layout->steps[i] * (columns + 1) * bytes;
        randomize(i, operand->dtype);
        data[i] = origin(i, operand->dtype);
    }
    int shared = shared_operand(&call, layout->is_in_place);
    if (shared != 0) {
        call.operands[0] = call.operands[shared];
        data[0] = data[shared];
    }
    if (!CHECK(call_has_kernel(&call))) {
        return;
    }
    call_run(&call, data);
    int64_t num_wrong = 0;
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < columns; c++) {
            const char *from[3] = {NULL};
            for (int i = 1; i < call.num_operands; i++) {
                int64_t offset = r * call.operands[i].strides[0] + c * call.operands[i].strides[1];
                from[i - 1] = before[i] + (data[i] - storages[i]) + offset;
            }
            const char *at =
                data[0] + r * call.operands[0].strides[0] + c * call.operands[0].strides[1];
            num_wrong += !element_is_right(&call, at, from, dtype);
        }
    }
    if (!CHECK_EQUAL_I64(num_wrong, 0)) {
        printf("    %s, %s, %" PRId64 " by %" PRId64 ", alpha %g\n", cpu_kernel_name(&call),
               layout->name, rows, columns, alpha);
    }
}

static void check_dtype(opcode_t opcode, uncopy_dtype_t dtype)
{
    static const int64_t shapes[][2] = {{1, 1}, {1, 7},   {1, 65}, {1, 1031},
                                        {3, 5}, {40, 17}, {0, 4},  {4, 0}};
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        for (size_t j = 0; j < sizeof(layouts) / sizeof(layouts[0]); j++) {
            check_case(opcode, dtype, &layouts[j], shapes[i][0], shapes[i][1], 1);
        }
    }
    if (op_row(opcode)->attributes[0] != '\0') {
        bool is_signed = dtype_kind(dtype) != DTYPE_KIND_UNSIGNED;
        check_case(opcode, dtype, &layouts[0], 1, 67, 3);
        check_case(opcode, dtype, &layouts[0], 1, 67, is_signed ? -1 : 2);
        check_case(opcode, dtype, &layouts[1], 1, 67, is_float(dtype) ? 0.3 : 7);
    }
}

static void every_row_gives_the_oracles_bits(void)
{
    int num_cases = 0;
    for (int opcode = 0; opcode < OPCODE_COUNT; opcode++) {
        const op_row_t *row = op_row((opcode_t)opcode);
        for (int dtype = 0; row->class_ == OP_CLASS_POINTWISE && dtype < DTYPE_COUNT; dtype++) {
            uncopy_dtype_t reads[3];
            for (int i = 0; i < row->num_reads; i++) {
                reads[i] = read_dtype((opcode_t)opcode, i, (uncopy_dtype_t)dtype);
            }
            uncopy_dtype_t result =
                row->rule == OP_RULE_COMPARE ? UNCOPY_DTYPE_BOOL : (uncopy_dtype_t)dtype;
            bool is_accepted = cpu_accepts((opcode_t)opcode, reads, (size_t)row->num_reads, result);
            CHECK_EQUAL_I64(is_accepted,
                            op_accepts((opcode_t)opcode, reads, (size_t)row->num_reads, result));
            if (is_accepted) {
                check_dtype((opcode_t)opcode, (uncopy_dtype_t)dtype);
                num_cases++;
            }
        }
    }
    CHECK(num_cases > 200);
}

/* A transposed operand: result rows contiguous, the read's columns contiguous, more than one block
 * each way. */
static void transposed_operands_meet_the_right_element(void)
{
    enum { ROWS = 37, COLUMNS = 70 };
    static float a[COLUMNS][ROWS], b[ROWS][COLUMNS], sum[ROWS][COLUMNS];
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        (&a[0][0])[i] = (float)i;
        (&b[0][0])[i] = (float)(3 * i);
    }
    kernel_call_t call = {
        .opcode = OPCODE_ADD, .num_operands = 3, .rank = 2, .sizes = {ROWS, COLUMNS}};
    call.attributes[0] = 1;
    const int64_t strides[3][2] = {{COLUMNS * 4, 4}, {4, ROWS * 4}, {COLUMNS * 4, 4}};
    for (int i = 0; i < 3; i++) {
        call.operands[i].dtype = UNCOPY_DTYPE_F32;
        memcpy(call.operands[i].strides, strides[i], sizeof(strides[i]));
    }
    char *data[3] = {(char *)sum, (char *)a, (char *)b};
    call_run(&call, data);
    int num_wrong = 0;
    for (int r = 0; r < ROWS; r++) {
        for (int c = 0; c < COLUMNS; c++) {
            num_wrong += sum[r][c] != a[c][r] + b[r][c];
        }
    }
    CHECK_EQUAL_I64(num_wrong, 0);
}

/* One multiplication of bf16 by 0.3: the second operand's number keeps f32's precision, the first's
 * is rounded. */
static void immediates_enter_in_the_compute_type_or_rounded(void)
{
    uint16_t one_third = 0x3eab, result = 0;
    kernel_call_t call = {.opcode = OPCODE_MUL, .num_operands = 3, .rank = 1, .sizes = {1}};
    for (int i = 0; i < 3; i++) {
        call.operands[i].dtype = UNCOPY_DTYPE_BF16;
    }
    float value = ldexpf(0xab, -9);
    for (int immediate = 1; immediate <= 2; immediate++) {
        call.operands[1].is_immediate = immediate == 1;
        call.operands[2].is_immediate = immediate == 2;
        call.operands[immediate].immediate.number = 0.3;
        char *data[3] = {(char *)&result, (char *)&one_third, (char *)&one_third};
        call_run(&call, data);
        long double factor =
            immediate == 2 ? (long double)0.3f : round_real(0.3L, UNCOPY_DTYPE_BF16);
        long double wanted =
            round_real(round_real(value * factor, UNCOPY_DTYPE_F32), UNCOPY_DTYPE_BF16);
        CHECK(read_element((const char *)&result, UNCOPY_DTYPE_BF16).real == wanted);
    }
}

static void what_no_kernel_takes_is_refused(void)
{
    kernel_call_t call = {.opcode = OPCODE_ADD, .num_operands = 3, .rank = 1, .sizes = {4}};
    for (int i = 0; i < 3; i++) {
        call.operands[i].dtype = UNCOPY_DTYPE_C64;
    }
    CHECK(!call_has_kernel(&call));
    CHECK_EQUAL_TEXT(cpu_kernel_name(&call), "none");
    for (int i = 0; i < 3; i++) {
        call.operands[i].dtype = UNCOPY_DTYPE_F32;
    }
    CHECK_EQUAL_TEXT(cpu_kernel_name(&call), "add.f32");
    CHECK(cpu_cost_ns(&call) > 0);
    call.num_operands = 2;
    CHECK(!call_has_kernel(&call));
    call.opcode = OPCODE_ALL_GATHER;
    CHECK(!call_has_kernel(&call));
}

int main(void)
{
    every_row_gives_the_oracles_bits();
    transposed_operands_meet_the_right_element();
    immediates_enter_in_the_compute_type_or_rounded();
    what_no_kernel_takes_is_refused();
    return check_finish("cpu_pointwise");
}
