/* Shortest digits by trial: print with growing precision until the text reads back as the same
 * element. Small floats (f16, bf16) are converted here bit by bit, with one rounding. */
#include "ir/text_number.h"

#include <ctype.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DOUBLE_MANTISSA = 52, DOUBLE_BIAS = 1023, DOUBLE_EXPONENT_MASK = 0x7ff };

/* A float of at most 16 bits: bits of its exponent and of its mantissa. */
typedef struct small_float {
    int exponent_bits, mantissa_bits;
} small_float_t;

static const small_float_t half = {5, 10};
static const small_float_t brain = {8, 7};

static double decode_small(small_float_t format, uint16_t bits)
{
    int bias = (1 << (format.exponent_bits - 1)) - 1;
    int largest = (1 << format.exponent_bits) - 1;
    int exponent = (bits >> format.mantissa_bits) & largest;
    int mantissa = bits & ((1 << format.mantissa_bits) - 1);
    double sign = (bits & 0x8000u) != 0 ? -1.0 : 1.0;
    if (exponent == largest) {
        return mantissa != 0 ? copysign((double)NAN, sign) : sign * (double)INFINITY;
    }
    if (exponent == 0) {
        return sign * ldexp(mantissa, 1 - bias - format.mantissa_bits);
    }
    int whole = mantissa + (1 << format.mantissa_bits);
    return sign * ldexp(whole, exponent - bias - format.mantissa_bits);
}

static uint16_t encode_small(small_float_t format, double value)
{
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof(bits));
    uint16_t sign = (uint16_t)((bits >> 48) & 0x8000u);
    int exponent = (int)((bits >> DOUBLE_MANTISSA) & DOUBLE_EXPONENT_MASK);
    uint64_t mantissa = bits & ((UINT64_C(1) << DOUBLE_MANTISSA) - 1);
    uint64_t infinity = ((UINT64_C(1) << format.exponent_bits) - 1) << format.mantissa_bits;
    if (exponent == DOUBLE_EXPONENT_MASK) {
        uint64_t quiet = mantissa != 0 ? UINT64_C(1) << (format.mantissa_bits - 1) : 0;
        return (uint16_t)(sign | infinity | quiet);
    }
    int biased = exponent - DOUBLE_BIAS + (1 << (format.exponent_bits - 1)) - 1;
    int shift = DOUBLE_MANTISSA - format.mantissa_bits + (biased <= 0 ? 1 - biased : 0);
    if (exponent == 0 || shift > DOUBLE_MANTISSA + 1) {
        return sign;
    }
    uint64_t whole = mantissa | (UINT64_C(1) << DOUBLE_MANTISSA);
    uint64_t rest = whole & ((UINT64_C(1) << shift) - 1);
    uint64_t middle = UINT64_C(1) << (shift - 1);
    uint64_t kept = whole >> shift;
    kept += (rest > middle || (rest == middle && (kept & 1) != 0)) ? 1 : 0;
    /* The implicit bit of kept adds one to the exponent, and so does a carry out of rounding. */
    uint64_t result = kept + ((uint64_t)(biased > 0 ? biased - 1 : 0) << format.mantissa_bits);
    return (uint16_t)(sign | (result < infinity ? result : infinity));
}

static int64_t decode_signed(const void *element, size_t size)
{
    int64_t value = 0;
    if (size == 1) {
        value = *(const signed char *)element;
    } else if (size == 2) {
        int16_t narrow = 0;
        memcpy(&narrow, element, size);
        value = narrow;
    } else if (size == 4) {
        int32_t narrow = 0;
        memcpy(&narrow, element, size);
        value = narrow;
    } else {
        memcpy(&value, element, size);
    }
    return value;
}

static uint64_t decode_unsigned(const void *element, size_t size)
{
    int64_t value = decode_signed(element, size);
    return size == 8 ? (uint64_t)value : (uint64_t)value & ((UINT64_C(1) << (8 * size)) - 1);
}

static double decode_float(uncopy_dtype_t dtype, const void *element)
{
    if (dtype == UNCOPY_DTYPE_F32) {
        float value = 0;
        memcpy(&value, element, sizeof(value));
        return (double)value;
    }
    if (dtype == UNCOPY_DTYPE_F64) {
        double value = 0;
        memcpy(&value, element, sizeof(value));
        return value;
    }
    uint16_t bits = 0;
    memcpy(&bits, element, sizeof(bits));
    return decode_small(dtype == UNCOPY_DTYPE_F16 ? half : brain, bits);
}

double number_decode(uncopy_dtype_t dtype, const void *element)
{
    size_t size = uncopy_dtype_size(dtype);
    switch (dtype_kind(dtype)) {
    case DTYPE_KIND_BOOL:
    case DTYPE_KIND_UNSIGNED:
        return (double)decode_unsigned(element, size);
    case DTYPE_KIND_SIGNED:
        return (double)decode_signed(element, size);
    case DTYPE_KIND_FLOAT:
        return decode_float(dtype, element);
    case DTYPE_KIND_COMPLEX:
    case DTYPE_KIND_OPAQUE:
        break;
    }
    return 0;
}

void number_encode(uncopy_dtype_t dtype, double value, void *element)
{
    if (dtype == UNCOPY_DTYPE_F64) {
        memcpy(element, &value, sizeof(value));
    } else if (dtype == UNCOPY_DTYPE_F32) {
        float narrow = (float)value;
        memcpy(element, &narrow, sizeof(narrow));
    } else {
        uint16_t bits = encode_small(dtype == UNCOPY_DTYPE_F16 ? half : brain, value);
        memcpy(element, &bits, sizeof(bits));
    }
}

/* snprintf and strtod use the locale's decimal point; the language's is a dot. */
static void use_point(char *digits, char from, char to)
{
    for (; *digits != '\0'; digits++) {
        *digits = *digits == from ? to : *digits;
    }
}

static char locale_point(void)
{
    const struct lconv *conventions = localeconv();
    return conventions->decimal_point[0];
}

static void format_digits(double value, int precision, char buffer[NUMBER_TEXT_BYTES])
{
    (void)snprintf(buffer, NUMBER_TEXT_BYTES - 3, "%.*g", precision, value);
    use_point(buffer, locale_point(), '.');
    if (strpbrk(buffer, ".e") == NULL) {
        memcpy(buffer + strlen(buffer), ".0", 3);
    }
}

static bool format_special(double value, char buffer[NUMBER_TEXT_BYTES])
{
    if (isfinite(value)) {
        return false;
    }
    (void)snprintf(buffer, NUMBER_TEXT_BYTES, "%c%s", signbit(value) ? '-' : '+',
                   isnan(value) ? "nan" : "inf");
    return true;
}

void number_format(double value, char buffer[NUMBER_TEXT_BYTES])
{
    if (format_special(value, buffer)) {
        return;
    }
    double read = 0;
    for (int precision = 1; precision <= 17; precision++) {
        format_digits(value, precision, buffer);
        bool is_negative = buffer[0] == '-';
        const char *digits = buffer + (is_negative ? 1 : 0);
        if (number_parse(digits, strlen(digits), is_negative, &read) && read == value) {
            return;
        }
    }
}

static bool reads_back(uncopy_dtype_t dtype, const void *element, const char *words)
{
    unsigned char read[16] = {0};
    bool is_negative = words[0] == '-';
    const char *digits = words + (is_negative || words[0] == '+' ? 1 : 0);
    return number_parse_element(dtype, digits, strlen(digits), is_negative, read) &&
           memcmp(read, element, uncopy_dtype_size(dtype)) == 0;
}

static bool format_float_element(uncopy_dtype_t dtype, const void *element,
                                 char buffer[NUMBER_TEXT_BYTES])
{
    double value = number_decode(dtype, element);
    if (format_special(value, buffer)) {
        return reads_back(dtype, element, buffer);
    }
    for (int precision = 1; precision <= 17; precision++) {
        format_digits(value, precision, buffer);
        if (reads_back(dtype, element, buffer)) {
            return true;
        }
    }
    return false;
}

static void format_bits(uncopy_dtype_t dtype, const void *element, char buffer[NUMBER_TEXT_BYTES])
{
    const unsigned char *bytes = element;
    size_t size = uncopy_dtype_size(dtype);
    memcpy(buffer, "0x", 3);
    for (size_t i = 0; i < size; i++) {
        (void)snprintf(buffer + 2 + 2 * i, 3, "%02x", bytes[size - 1 - i]);
    }
}

void number_format_element(uncopy_dtype_t dtype, const void *element,
                           char buffer[NUMBER_TEXT_BYTES])
{
    size_t size = uncopy_dtype_size(dtype);
    dtype_kind_t kind = dtype_kind(dtype);
    if (kind == DTYPE_KIND_SIGNED) {
        (void)snprintf(buffer, NUMBER_TEXT_BYTES, "%lld", (long long)decode_signed(element, size));
    } else if (kind == DTYPE_KIND_UNSIGNED ||
               (kind == DTYPE_KIND_BOOL && decode_unsigned(element, size) <= 1)) {
        (void)snprintf(buffer, NUMBER_TEXT_BYTES, "%llu",
                       (unsigned long long)decode_unsigned(element, size));
    } else if (kind != DTYPE_KIND_FLOAT || !format_float_element(dtype, element, buffer)) {
        format_bits(dtype, element, buffer);
    }
}

static bool is_word(const char *digits, size_t length, const char *word)
{
    return strlen(word) == length && memcmp(digits, word, length) == 0;
}

bool number_parse(const char *digits, size_t length, bool is_negative, double *out_value)
{
    char copy[NUMBER_TEXT_BYTES];
    double value = 0;
    if (is_word(digits, length, "inf")) {
        value = (double)INFINITY;
    } else if (is_word(digits, length, "nan")) {
        value = (double)NAN;
    } else {
        bool is_decimal = length > 0 && length < sizeof(copy) && isdigit((unsigned char)digits[0]);
        for (size_t i = 0; is_decimal && i < length; i++) {
            is_decimal = isdigit((unsigned char)digits[i]) || strchr(".eE+-", digits[i]) != NULL;
        }
        if (!is_decimal || memchr(digits, '\0', length) != NULL) {
            return false;
        }
        memcpy(copy, digits, length);
        copy[length] = '\0';
        use_point(copy, '.', locale_point());
        char *end = NULL;
        value = strtod(copy, &end);
        if (end != copy + length) {
            return false;
        }
    }
    *out_value = is_negative ? -value : value;
    return true;
}

static bool parse_unsigned(const char *digits, size_t length, uint64_t *out_value)
{
    uint64_t value = 0;
    for (size_t i = 0; i < length; i++) {
        if (!isdigit((unsigned char)digits[i]) || __builtin_mul_overflow(value, 10u, &value) ||
            __builtin_add_overflow(value, (uint64_t)(digits[i] - '0'), &value)) {
            return false;
        }
    }
    *out_value = value;
    return length > 0;
}

bool number_parse_integer(const char *digits, size_t length, bool is_negative, int64_t *out_value)
{
    uint64_t magnitude = 0;
    uint64_t limit = (uint64_t)INT64_MAX + (is_negative ? 1 : 0);
    if (!parse_unsigned(digits, length, &magnitude) || magnitude > limit) {
        return false;
    }
    *out_value = is_negative ? (int64_t)(0 - magnitude) : (int64_t)magnitude;
    return true;
}

static int hex_digit(char digit)
{
    if (isdigit((unsigned char)digit)) {
        return digit - '0';
    }
    int letter = tolower((unsigned char)digit);
    return letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
}

static bool parse_bits(uncopy_dtype_t dtype, const char *digits, size_t length,
                       unsigned char *element)
{
    size_t size = uncopy_dtype_size(dtype);
    if (length == 0 || length > 2 * size) {
        return false;
    }
    memset(element, 0, size);
    for (size_t i = 0; i < length; i++) {
        int nibble = hex_digit(digits[length - 1 - i]);
        if (nibble < 0) {
            return false;
        }
        element[i / 2] = (unsigned char)(element[i / 2] | (nibble << (4 * (i % 2))));
    }
    return true;
}

/* Whether a magnitude with its sign is a value of an integer dtype or bool. */
static bool integer_fits(uncopy_dtype_t dtype, uint64_t magnitude, bool is_negative)
{
    size_t bits = 8 * uncopy_dtype_size(dtype);
    switch (dtype_kind(dtype)) {
    case DTYPE_KIND_BOOL:
        return magnitude <= 1 && !is_negative;
    case DTYPE_KIND_UNSIGNED:
        return (magnitude == 0 || !is_negative) && (bits == 64 || magnitude >> bits == 0);
    case DTYPE_KIND_SIGNED:
        return magnitude <= (UINT64_C(1) << (bits - 1)) - (is_negative ? 0 : 1);
    case DTYPE_KIND_FLOAT:
    case DTYPE_KIND_COMPLEX:
    case DTYPE_KIND_OPAQUE:
        break;
    }
    return false;
}

bool number_parse_element(uncopy_dtype_t dtype, const char *digits, size_t length, bool is_negative,
                          void *out_element)
{
    if (length > 2 && digits[0] == '0' && digits[1] == 'x') {
        return !is_negative && parse_bits(dtype, digits + 2, length - 2, out_element);
    }
    if (dtype_kind(dtype) == DTYPE_KIND_FLOAT) {
        double value = 0;
        if (!number_parse(digits, length, is_negative, &value)) {
            return false;
        }
        number_encode(dtype, value, out_element);
        return true;
    }
    uint64_t magnitude = 0;
    if (!parse_unsigned(digits, length, &magnitude) ||
        !integer_fits(dtype, magnitude, is_negative)) {
        return false;
    }
    uint64_t value = is_negative ? 0 - magnitude : magnitude;
    memcpy(out_element, &value, uncopy_dtype_size(dtype)); /* little-endian, as all supported */
    return true;
}
