/* Numbers of a program as elements and as values of a compute kind. See convert.h; number.h has the
 * roundings. */
#include "cpu/convert.h"

#include <string.h>

#include "cpu/number.h"

static double as_real(const kernel_immediate_t *immediate)
{
    return immediate->is_integer ? (double)immediate->integer : immediate->number;
}

bool convert_is_zero(const kernel_immediate_t *immediate)
{
    return immediate->is_integer ? immediate->integer == 0 : immediate->number == 0;
}

static void store_complex(double value, uncopy_dtype_t dtype, char *out_element)
{
    float narrow = (float)value;
    uint16_t half = number_to_f16(narrow);
    switch (dtype) {
    case UNCOPY_DTYPE_C32:
        memcpy(out_element, &half, sizeof(half));
        return;
    case UNCOPY_DTYPE_C64:
        memcpy(out_element, &narrow, sizeof(narrow));
        return;
    default:
        memcpy(out_element, &value, sizeof(value));
    }
}

void convert_immediate(const kernel_immediate_t *immediate, uncopy_dtype_t dtype, char *out_element)
{
    memset(out_element, 0, uncopy_dtype_size(dtype));
    dtype_kind_t dtype_kind_ = dtype_kind(dtype);
    if (dtype_kind_ == DTYPE_KIND_OPAQUE) {
        return;
    }
    if (dtype_kind_ == DTYPE_KIND_COMPLEX) {
        store_complex(as_real(immediate), dtype, out_element);
        return;
    }
    bool is_exact =
        immediate->is_integer && table_kind(dtype) != KIND_F32 && table_kind(dtype) != KIND_F64;
    const double real = as_real(immediate);
    const void *from = is_exact ? (const void *)&immediate->integer : (const void *)&real;
    /* A bool tests the number; a kind of 64 bits holds every other integer exactly. */
    table_get()->stores[is_exact ? KIND_I64 : KIND_F64][dtype](out_element, 0, from, 1);
}

number_t convert_number(const kernel_immediate_t *immediate, uncopy_dtype_t dtype, kind_t kind,
                        bool is_opmath)
{
    number_t number = {.i64 = 0};
    if (is_opmath && kind == KIND_F32) {
        number.f32 = (float)as_real(immediate);
        return number;
    }
    char element[16];
    convert_immediate(immediate, dtype, element);
    table_get()->loads[kind][dtype](&number, 1, element, 0, 1);
    return number;
}
