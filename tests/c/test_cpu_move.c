/* Conformance of copy, convert and fill: every dtype, strides of every kind, overlap that is exact,
 * and numbers out of range. */
#include <math.h>

#include "call.h"
#include "check.h"
#include "cpu/cpu.h"

enum { ROWS = 71, COLUMNS = 67, ROOM = 4 * ROWS * COLUMNS * 16 };

static char source[ROOM], result[ROOM], untouched[ROOM];

static void fill_source(void)
{
    uint32_t state = 12345;
    for (int i = 0; i < ROOM; i++) {
        state = state * 1664525u + 1013904223u;
        source[i] = (char)(state >> 24);
    }
    memset(untouched, 0x5a, sizeof(untouched));
}

typedef struct strides {
    int64_t to[2], from[2]; /* elements */
    const char *method;
} strides_t;

static void check_copy(uncopy_dtype_t dtype, const strides_t *strides, int64_t rows,
                       int64_t columns)
{
    int64_t bytes = (int64_t)uncopy_dtype_size(dtype);
    kernel_call_t call = {
        .opcode = OPCODE_COPY, .num_operands = 2, .rank = 2, .sizes = {rows, columns}};
    call.operands[0].dtype = call.operands[1].dtype = dtype;
    for (int d = 0; d < 2; d++) {
        call.operands[0].strides[d] = strides->to[d] * bytes;
        call.operands[1].strides[d] = strides->from[d] * bytes;
    }
    memcpy(result, untouched, sizeof(result));
    char *data[2] = {result + ROOM / 2, source + ROOM / 2};
    kernel_function_t kernel = cpu_find(&call);
    if (!CHECK(kernel != NULL)) {
        return;
    }
    if (rows == ROWS && columns == COLUMNS) {
        CHECK_EQUAL_TEXT(cpu_kernel_name(&call), strides->method);
    }
    kernel(&call, data);
    /* What the copy wrote is undone while it is compared; then nothing else may have changed. */
    int64_t num_wrong = 0;
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < columns; c++) {
            char *to = data[0] + (r * strides->to[0] + c * strides->to[1]) * bytes;
            const char *from = data[1] + (r * strides->from[0] + c * strides->from[1]) * bytes;
            num_wrong += memcmp(to, from, (size_t)bytes) != 0;
            memset(to, 0x5a, (size_t)bytes);
        }
    }
    CHECK_EQUAL_I64(num_wrong, 0);
    CHECK(memcmp(result, untouched, sizeof(result)) == 0);
}

static void copies_reach_every_element_and_nothing_else(void)
{
    static const strides_t all[] = {
        {{COLUMNS, 1}, {COLUMNS, 1}, "copy.rows"},
        {{COLUMNS + 3, 1}, {COLUMNS + 1, 1}, "copy.rows"},
        {{COLUMNS, 1}, {1, ROWS}, "copy.blocks"},
        {{COLUMNS, 1}, {1, -ROWS}, "copy.blocks"},
        {{COLUMNS + 5, 1}, {2, 2 * ROWS}, "copy.blocks"},
        {{1, ROWS}, {COLUMNS, 1}, "copy.blocks"},
        {{2 * COLUMNS, 2}, {1, ROWS + 2}, "copy.blocks"},
        {{1, ROWS}, {1, ROWS}, "copy.rows"},
        {{COLUMNS, 1}, {0, 1}, "copy.rows"},
        {{COLUMNS, 1}, {1, 0}, "copy.elements"},
        {{COLUMNS, 1}, {0, 0}, "copy.elements"},
        {{COLUMNS, 1}, {-COLUMNS, -1}, "copy.elements"},
        {{-2 * COLUMNS, -2}, {COLUMNS, 1}, "copy.elements"},
    };
    static const int64_t shapes[][2] = {{ROWS, COLUMNS}, {1, 1}, {3, 5}, {1, 67},
                                        {64, 64},        {9, 1}, {0, 3}, {3, 0}};
    for (int dtype = 0; dtype < DTYPE_COUNT; dtype++) {
        for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
            for (size_t j = 0; j < sizeof(shapes) / sizeof(shapes[0]); j++) {
                check_copy((uncopy_dtype_t)dtype, &all[i], shapes[j][0], shapes[j][1]);
            }
        }
    }
}

static void many_dims_are_walked_in_any_order(void)
{
    /* A result of 3 x 5 x 4 x 6, contiguous; the source has the dims in the order 2, 0, 3, 1. */
    static int16_t from[360], to[360];
    static const int64_t sizes[4] = {3, 5, 4, 6}, from_strides[4] = {30, 1, 90, 5};
    for (int i = 0; i < 360; i++) {
        from[i] = (int16_t)i;
    }
    kernel_call_t call = {.opcode = OPCODE_COPY, .num_operands = 2, .rank = 4};
    call.operands[0].dtype = call.operands[1].dtype = UNCOPY_DTYPE_I16;
    int64_t stride = 2;
    for (int d = 3; d >= 0; d--) {
        call.sizes[d] = sizes[d];
        call.operands[0].strides[d] = stride;
        call.operands[1].strides[d] = from_strides[d] * 2;
        stride *= sizes[d];
    }
    char *data[2] = {(char *)to, (char *)from};
    call_run(&call, data);
    int num_wrong = 0;
    for (int i = 0; i < 360; i++) {
        int64_t at = i / 120 * from_strides[0] + i / 24 % 5 * from_strides[1] +
                     i / 6 % 4 * from_strides[2] + i % 6 * from_strides[3];
        num_wrong += to[i] != from[at];
    }
    CHECK_EQUAL_I64(num_wrong, 0);
}

static void a_copy_onto_itself_changes_nothing(void)
{
    float values[6] = {1, 2, 3, 4, 5, 6};
    kernel_call_t call = {.opcode = OPCODE_COPY, .num_operands = 2, .rank = 1, .sizes = {6}};
    call.operands[0] = (kernel_operand_t){.dtype = UNCOPY_DTYPE_F32, .strides = {4}};
    call.operands[1] = call.operands[0];
    char *data[2] = {(char *)values, (char *)values};
    call_run(&call, data);
    for (int i = 0; i < 6; i++) {
        CHECK(values[i] == (float)(i + 1));
    }
}

/* ---- convert ---- */

static kernel_call_t convert_call(uncopy_dtype_t from, uncopy_dtype_t to, int64_t count)
{
    kernel_call_t call = {.opcode = OPCODE_CONVERT, .num_operands = 2, .rank = 1, .sizes = {count}};
    call.operands[0] = (kernel_operand_t){.dtype = to, .strides = {(int64_t)uncopy_dtype_size(to)}};
    call.operands[1] =
        (kernel_operand_t){.dtype = from, .strides = {(int64_t)uncopy_dtype_size(from)}};
    return call;
}

static int64_t converted_double(double value, uncopy_dtype_t to)
{
    int64_t element = 0;
    kernel_call_t call = convert_call(UNCOPY_DTYPE_F64, to, 1);
    char *data[2] = {(char *)&element, (char *)&value};
    call_run(&call, data);
    return element;
}

static void floats_out_of_range_convert_as_on_x86(void)
{
    CHECK_EQUAL_I64(converted_double(-1.9, UNCOPY_DTYPE_I64), -1);
    CHECK_EQUAL_I64(converted_double(9.3e18, UNCOPY_DTYPE_I64), INT64_MIN);
    CHECK_EQUAL_I64(converted_double(NAN, UNCOPY_DTYPE_I64), INT64_MIN);
    CHECK_EQUAL_I64(converted_double(2147483648.0, UNCOPY_DTYPE_I32), 0x80000000);
    CHECK_EQUAL_I64(converted_double(-2147483648.9, UNCOPY_DTYPE_I32), 0x80000000);
    CHECK_EQUAL_I64(converted_double(300.7, UNCOPY_DTYPE_U8), 44);
    CHECK_EQUAL_I64(converted_double(-1, UNCOPY_DTYPE_U8), 255);
    CHECK_EQUAL_I64(converted_double(-2147483649.0, UNCOPY_DTYPE_U8), 255);
    CHECK_EQUAL_I64(converted_double(-2147483649.0, UNCOPY_DTYPE_U16), 0);
    CHECK_EQUAL_I64(converted_double(-129, UNCOPY_DTYPE_I8), 127);
    CHECK_EQUAL_I64(converted_double(4294967808.0, UNCOPY_DTYPE_U32), 512);
    CHECK_EQUAL_I64(converted_double(1e19, UNCOPY_DTYPE_U64),
                    (int64_t)UINT64_C(10000000000000000000));
    CHECK_EQUAL_I64(converted_double(INFINITY, UNCOPY_DTYPE_U64), 0);
    CHECK_EQUAL_I64(converted_double(-1, UNCOPY_DTYPE_U64), -1);
    CHECK_EQUAL_I64(converted_double(NAN, UNCOPY_DTYPE_BOOL), 1);
    CHECK_EQUAL_I64(converted_double(1e-320, UNCOPY_DTYPE_BOOL), 1);
    CHECK_EQUAL_I64(converted_double(-0.0, UNCOPY_DTYPE_BOOL), 0);
}

/* Every f16 and every bf16 to f32 and back is the same bits, NaN apart. */
static void halves_survive_the_way_through_f32(void)
{
    static uint16_t halves[65536], back[65536];
    static float wide[65536];
    for (int i = 0; i < 65536; i++) {
        halves[i] = (uint16_t)i;
    }
    for (int kind = 0; kind < 2; kind++) {
        uncopy_dtype_t dtype = kind == 0 ? UNCOPY_DTYPE_F16 : UNCOPY_DTYPE_BF16;
        int mantissa = kind == 0 ? 10 : 7, bias = kind == 0 ? 15 : 127;
        kernel_call_t up = convert_call(dtype, UNCOPY_DTYPE_F32, 65536);
        kernel_call_t down = convert_call(UNCOPY_DTYPE_F32, dtype, 65536);
        char *up_data[2] = {(char *)wide, (char *)halves},
             *down_data[2] = {(char *)back, (char *)wide};
        call_run(&up, up_data);
        call_run(&down, down_data);
        int num_wrong = 0;
        for (int i = 0; i < 65536; i++) {
            int field = (i & 0x7fff) >> mantissa, fraction = i & ((1 << mantissa) - 1);
            bool is_nan = field == 0x7fff >> mantissa && fraction != 0;
            if (is_nan) {
                num_wrong += !isnan(wide[i]);
                continue;
            }
            double shown = ldexp(field == 0 ? fraction : fraction + (1 << mantissa),
                                 (field == 0 ? 1 : field) - bias - mantissa);
            shown = field == 0x7fff >> mantissa ? INFINITY : shown;
            num_wrong += (double)wide[i] != (i & 0x8000 ? -shown : shown) || back[i] != halves[i];
        }
        CHECK_EQUAL_I64(num_wrong, 0);
    }
}

/* Between two neighbouring halves: below the middle down, above up, the middle to the even one. */
static void floats_round_to_the_nearest_half(void)
{
    for (int kind = 0; kind < 2; kind++) {
        uncopy_dtype_t dtype = kind == 0 ? UNCOPY_DTYPE_F16 : UNCOPY_DTYPE_BF16;
        uint32_t last = kind == 0 ? 0x7bff : 0x7f7f;
        int num_wrong = 0;
        for (uint32_t i = 0; i <= last; i++) {
            uint16_t pair[2] = {(uint16_t)i, (uint16_t)(i + 1)};
            float wide[2], middle[3];
            kernel_call_t up = convert_call(dtype, UNCOPY_DTYPE_F32, 2);
            char *up_data[2] = {(char *)wide, (char *)pair};
            call_run(&up, up_data);
            double upper = i < last ? (double)wide[1] : ldexp(1, kind == 0 ? 16 : 128);
            middle[1] = (float)((double)wide[0] / 2 + upper / 2);
            middle[0] = nextafterf(middle[1], 0);
            middle[2] = nextafterf(middle[1], INFINITY);
            uint16_t rounded[3];
            kernel_call_t down = convert_call(UNCOPY_DTYPE_F32, dtype, 3);
            char *down_data[2] = {(char *)rounded, (char *)middle};
            call_run(&down, down_data);
            num_wrong +=
                rounded[0] != i || rounded[1] != (i % 2 == 0 ? i : i + 1) || rounded[2] != i + 1;
        }
        CHECK_EQUAL_I64(num_wrong, 0);
    }
}

static void integers_wrap_and_widen(void)
{
    int64_t from[3] = {-1, INT64_MAX, 0x1234567890abcdef};
    uint16_t narrow[3];
    kernel_call_t call = convert_call(UNCOPY_DTYPE_I64, UNCOPY_DTYPE_U16, 3);
    char *data[2] = {(char *)narrow, (char *)from};
    call_run(&call, data);
    CHECK(narrow[0] == 0xffff && narrow[1] == 0xffff && narrow[2] == 0xcdef);
    int8_t small[2] = {-5, 7};
    uint64_t wide[2];
    kernel_call_t widen = convert_call(UNCOPY_DTYPE_I8, UNCOPY_DTYPE_U64, 2);
    char *widen_data[2] = {(char *)wide, (char *)small};
    call_run(&widen, widen_data);
    CHECK(wide[0] == UINT64_MAX - 4 && wide[1] == 7);
}

static void every_pair_of_real_dtypes_converts_small_integers_exactly(void)
{
    for (int from = 0; from < DTYPE_COUNT; from++) {
        for (int to = 0; to < DTYPE_COUNT; to++) {
            kernel_call_t call = convert_call((uncopy_dtype_t)from, (uncopy_dtype_t)to, 2);
            bool is_real = dtype_kind((uncopy_dtype_t)from) < DTYPE_KIND_COMPLEX &&
                           dtype_kind((uncopy_dtype_t)to) < DTYPE_KIND_COMPLEX;
            CHECK_EQUAL_I64(call_has_kernel(&call), is_real);
            if (!is_real) {
                continue;
            }
            uint8_t start[2] = {0, 1}, end[2] = {9, 9};
            char a[2][8], b[2][8];
            kernel_call_t steps[3] = {convert_call(UNCOPY_DTYPE_U8, (uncopy_dtype_t)from, 2), call,
                                      convert_call((uncopy_dtype_t)to, UNCOPY_DTYPE_U8, 2)};
            char *data[3][2] = {
                {(char *)a, (char *)start}, {(char *)b, (char *)a}, {(char *)end, (char *)b}};
            for (int i = 0; i < 3; i++) {
                call_run(&steps[i], data[i]);
            }
            CHECK(end[0] == 0 && end[1] == 1);
        }
    }
}

/* ---- fill ---- */

static void fills_write_the_number_of_every_dtype(void)
{
    static const struct {
        uncopy_dtype_t dtype;
        uint64_t bits;
    } of_minus_one[] = {
        {UNCOPY_DTYPE_BOOL, 1},         {UNCOPY_DTYPE_U8, 0xff},
        {UNCOPY_DTYPE_I16, 0xffff},     {UNCOPY_DTYPE_F16, 0xbc00},
        {UNCOPY_DTYPE_BF16, 0xbf80},    {UNCOPY_DTYPE_F32, 0xbf800000},
        {UNCOPY_DTYPE_I64, UINT64_MAX}, {UNCOPY_DTYPE_F64, UINT64_C(0xbff0000000000000)},
        {UNCOPY_DTYPE_C32, 0xbc00},     {UNCOPY_DTYPE_C64, 0xbf800000},
        {UNCOPY_DTYPE_U64, UINT64_MAX}, {UNCOPY_DTYPE_C128, UINT64_C(0xbff0000000000000)},
    };
    for (size_t i = 0; i < sizeof(of_minus_one) / sizeof(of_minus_one[0]); i++) {
        int64_t bytes = (int64_t)uncopy_dtype_size(of_minus_one[i].dtype);
        for (int step = 1; step <= 2; step++) {
            enum { COUNT = 3000 };
            kernel_call_t call = {
                .opcode = OPCODE_FILL, .num_operands = 2, .rank = 1, .sizes = {COUNT}};
            call.operands[0] =
                (kernel_operand_t){.dtype = of_minus_one[i].dtype, .strides = {step * bytes}};
            call.operands[1] = (kernel_operand_t){.dtype = of_minus_one[i].dtype,
                                                  .is_immediate = true,
                                                  .immediate = {-1.0, -1, step == 1}};
            char *data[2] = {result, NULL};
            memset(result, 0x5a, sizeof(result));
            call_run(&call, data);
            char element[16] = {0};
            memcpy(element, &of_minus_one[i].bits, 8);
            int num_wrong = 0;
            for (int j = 0; j < COUNT; j++) {
                num_wrong += memcmp(result + j * step * bytes, element, (size_t)bytes) != 0;
            }
            CHECK_EQUAL_I64(num_wrong, 0);
            CHECK(result[step * bytes * COUNT] == 0x5a);
        }
    }
}

static void an_opaque_dtype_is_filled_with_zero_alone(void)
{
    kernel_call_t call = {.opcode = OPCODE_FILL, .num_operands = 2, .rank = 1, .sizes = {8}};
    call.operands[0] = (kernel_operand_t){.dtype = UNCOPY_DTYPE_F8E5M2, .strides = {1}};
    call.operands[1] = (kernel_operand_t){.dtype = UNCOPY_DTYPE_F8E5M2, .is_immediate = true};
    CHECK(call_has_kernel(&call));
    call.operands[1].immediate.number = 1;
    CHECK(!call_has_kernel(&call));
}

int main(void)
{
    fill_source();
    copies_reach_every_element_and_nothing_else();
    many_dims_are_walked_in_any_order();
    a_copy_onto_itself_changes_nothing();
    floats_out_of_range_convert_as_on_x86();
    halves_survive_the_way_through_f32();
    floats_round_to_the_nearest_half();
    integers_wrap_and_widen();
    every_pair_of_real_dtypes_converts_small_integers_exactly();
    fills_write_the_number_of_every_dtype();
    an_opaque_dtype_is_filled_with_zero_alone();
    return check_finish("cpu_move");
}
