#include "element.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ir/text_number.h"

/* An element as a number: integer for bool and integers, real for floats, bytes for the rest. */
typedef struct element {
    dtype_kind_t kind;
    int64_t integer;
    double real;
    char bytes[16];
} element_t;

static bool is_whole(dtype_kind_t kind)
{
    return kind == DTYPE_KIND_BOOL || kind == DTYPE_KIND_SIGNED || kind == DTYPE_KIND_UNSIGNED;
}

static element_t get(uncopy_dtype_t dtype, const char *at)
{
    element_t element = {.kind = dtype_kind(dtype)};
    size_t size = uncopy_dtype_size(dtype);
    memcpy(element.bytes, at, size);
    if (is_whole(element.kind)) {
        memcpy(&element.integer, at, size);
        if (element.kind == DTYPE_KIND_SIGNED && size < 8) {
            int64_t sign = INT64_C(1) << (8 * size - 1);
            element.integer = (element.integer ^ sign) - sign;
        }
        element.real = (double)element.integer;
    } else if (element.kind == DTYPE_KIND_FLOAT) {
        element.real = number_decode(dtype, at);
    }
    return element;
}

static void set(uncopy_dtype_t dtype, char *at, const element_t *element)
{
    dtype_kind_t kind = dtype_kind(dtype);
    size_t size = uncopy_dtype_size(dtype);
    if (kind == DTYPE_KIND_FLOAT) {
        double real = is_whole(element->kind) ? (double)element->integer : element->real;
        number_encode(dtype, size == 8 ? real : (double)(float)real, at);
    } else if (kind == DTYPE_KIND_BOOL) {
        *at = is_whole(element->kind) ? element->integer != 0 : element->real != 0;
    } else if (is_whole(kind)) {
        int64_t integer = is_whole(element->kind) ? element->integer : (int64_t)element->real;
        memcpy(at, &integer, size);
    } else {
        memcpy(at, element->bytes, size);
    }
}

/* ---- bounds ---- */

int64_t element_count(const uncopy_bound_t *bound)
{
    int64_t count = 1;
    for (int32_t d = 0; d < bound->rank; d++) {
        count *= bound->sizes[d];
    }
    return count;
}

char *element_at(const uncopy_bound_t *bound, int64_t index)
{
    int64_t offset = 0;
    for (int32_t d = bound->rank - 1; d >= 0; d--) {
        offset += index % bound->sizes[d] * bound->strides[d];
        index /= bound->sizes[d];
    }
    return (char *)bound->data + offset * (int64_t)uncopy_dtype_size(bound->dtype);
}

int64_t element_extent(const uncopy_bound_t *bound)
{
    int64_t last = 0;
    if (element_count(bound) == 0) {
        return 0;
    }
    for (int32_t d = 0; d < bound->rank; d++) {
        last += (bound->sizes[d] - 1) * bound->strides[d];
    }
    return (last + 1) * (int64_t)uncopy_dtype_size(bound->dtype);
}

char *element_snapshot(const uncopy_bound_t *bound)
{
    int64_t count = element_count(bound);
    size_t size = uncopy_dtype_size(bound->dtype);
    char *copy = calloc((size_t)count + 1, size);
    for (int64_t i = 0; copy != NULL && i < count; i++) {
        memcpy(copy + (size_t)i * size, element_at(bound, i), size);
    }
    return copy;
}

bool element_is_equal(const uncopy_bound_t *a, const uncopy_bound_t *b)
{
    int64_t count = element_count(a);
    bool is_equal = a->dtype == b->dtype && count == element_count(b);
    for (int64_t i = 0; is_equal && i < count; i++) {
        is_equal = memcmp(element_at(a, i), element_at(b, i), uncopy_dtype_size(a->dtype)) == 0;
    }
    return is_equal;
}

bool element_is_close(const uncopy_bound_t *a, const uncopy_bound_t *b)
{
    int64_t count = element_count(a);
    bool is_close = a->dtype == b->dtype && count == element_count(b);
    for (int64_t i = 0; is_close && i < count; i++) {
        double left = get(a->dtype, element_at(a, i)).real;
        double right = get(b->dtype, element_at(b, i)).real;
        is_close = memcmp(element_at(a, i), element_at(b, i), uncopy_dtype_size(a->dtype)) == 0 ||
                   fabs(left - right) <= 1e-2 * fmax(fabs(left), fabs(right));
    }
    return is_close;
}

void element_fill_pattern(const uncopy_bound_t *bound, int64_t seed)
{
    dtype_kind_t kind = dtype_kind(bound->dtype);
    int64_t lowest = kind == DTYPE_KIND_SIGNED || kind == DTYPE_KIND_FLOAT ? 2 : 0;
    int64_t count = element_count(bound);
    for (int64_t i = 0; i < count; i++) {
        int64_t value = (i * 3 + i / 5 + seed * 2) % (kind == DTYPE_KIND_BOOL ? 2 : 5) - lowest;
        element_t element = {.kind = DTYPE_KIND_SIGNED, .integer = value, .real = (double)value};
        memset(element.bytes, (int)value + 1, sizeof(element.bytes));
        set(bound->dtype, element_at(bound, i), &element);
    }
}

/* ---- one pointwise element ---- */

static double narrow(double value, uncopy_dtype_t dtype)
{
    return dtype == UNCOPY_DTYPE_F64 ? value : (double)(float)value;
}

static double larger(double a, double b)
{
    return isnan(a) || a > b ? a : b;
}

static double smaller(double a, double b)
{
    return isnan(a) || a < b ? a : b;
}

static double unary_real(opcode_t opcode, double a)
{
    switch (opcode) {
    case OPCODE_NEG:
        return -a;
    case OPCODE_ABS:
        return fabs(a);
    case OPCODE_EXP:
        return exp(a);
    case OPCODE_LOG:
        return log(a);
    case OPCODE_SQRT:
        return sqrt(a);
    case OPCODE_RSQRT:
        return 1 / sqrt(a);
    case OPCODE_RECIPROCAL:
        return 1 / a;
    case OPCODE_SIN:
        return sin(a);
    case OPCODE_COS:
        return cos(a);
    case OPCODE_TANH:
        return tanh(a);
    case OPCODE_SIGMOID:
        return 1 / (1 + exp(-a));
    case OPCODE_RELU:
        return isnan(a) || a > 0 ? a : 0;
    case OPCODE_FLOOR:
        return floor(a);
    case OPCODE_CEIL:
        return ceil(a);
    case OPCODE_TRUNC:
        return trunc(a);
    default:
        return a;
    }
}

static double binary_real(opcode_t opcode, uncopy_dtype_t dtype, double alpha, double a, double b)
{
    double scaled = alpha == 1 ? b : narrow(narrow(alpha, dtype) * b, dtype);
    switch (opcode) {
    case OPCODE_ADD:
        return a + scaled;
    case OPCODE_SUB:
        return a - scaled;
    case OPCODE_MUL:
        return a * b;
    case OPCODE_DIV:
        return a / b;
    case OPCODE_MAXIMUM:
        return larger(a, b);
    case OPCODE_MINIMUM:
        return smaller(a, b);
    default:
        return a;
    }
}

static int64_t whole(opcode_t opcode, bool is_bool, double alpha, int64_t a, int64_t b)
{
    uint64_t left = (uint64_t)a;
    uint64_t right = (uint64_t)b;
    uint64_t scale = (uint64_t)(int64_t)alpha;
    switch (opcode) {
    case OPCODE_ADD:
        return (int64_t)(left + scale * right);
    case OPCODE_SUB:
        return (int64_t)(left - scale * right);
    case OPCODE_MUL:
        return (int64_t)(left * right);
    case OPCODE_MAXIMUM:
        return a > b ? a : b;
    case OPCODE_MINIMUM:
        return a < b ? a : b;
    case OPCODE_NEG:
        return (int64_t)(0 - left);
    case OPCODE_ABS:
        return a < 0 ? (int64_t)(0 - left) : a;
    case OPCODE_RELU:
        return a > 0 ? a : 0;
    case OPCODE_BITWISE_AND:
        return a & b;
    case OPCODE_BITWISE_OR:
        return a | b;
    case OPCODE_BITWISE_XOR:
        return a ^ b;
    case OPCODE_BITWISE_NOT:
        return is_bool ? !a : ~a;
    default:
        return a;
    }
}

/* Whether the opcode compares; *out is the answer. */
static bool compare(opcode_t opcode, double a, double b, int64_t *out)
{
    switch (opcode) {
    case OPCODE_EQ:
        *out = a == b;
        return true;
    case OPCODE_NE:
        *out = a != b;
        return true;
    case OPCODE_LT:
        *out = a < b;
        return true;
    case OPCODE_LE:
        *out = a <= b;
        return true;
    case OPCODE_GT:
        *out = a > b;
        return true;
    case OPCODE_GE:
        *out = a >= b;
        return true;
    case OPCODE_LOGICAL_NOT:
        *out = a == 0;
        return true;
    default:
        return false;
    }
}

static element_t pointwise(opcode_t opcode, uncopy_dtype_t dtype, const element_t *operands,
                           size_t num_operands, double alpha)
{
    element_t a = operands[0];
    element_t b = operands[num_operands > 1 ? 1 : 0];
    element_t result = {.kind = DTYPE_KIND_BOOL};
    if (opcode == OPCODE_WHERE) {
        return a.integer != 0 ? operands[1] : operands[2];
    }
    if (compare(opcode, a.real, b.real, &result.integer)) {
        return result;
    }
    result.kind = a.kind;
    if (is_whole(a.kind)) {
        result.integer = whole(opcode, a.kind == DTYPE_KIND_BOOL, alpha, a.integer, b.integer);
    } else {
        result.real = num_operands > 1 ? binary_real(opcode, dtype, alpha, a.real, b.real)
                                       : unary_real(opcode, a.real);
    }
    return result;
}

/* ---- rows ---- */

/* A number as it enters the row: in the compute type, or rounded to the dtype. */
static element_t immediate(opcode_t opcode, uncopy_dtype_t dtype, const uncopy_operand_t *number)
{
    element_t element = {.kind = dtype_kind(dtype), .real = narrow(number->number, dtype)};
    element.integer = number->is_integer ? number->integer : (int64_t)number->number;
    bool is_rounded = (op_row(opcode)->flags & OP_FLAG_OPMATH) == 0;
    if (element.kind == DTYPE_KIND_FLOAT && is_rounded) {
        char bytes[16];
        number_encode(dtype, number->number, bytes);
        element.real = number_decode(dtype, bytes);
    }
    return element;
}

/* The dtype that the views among the operands have; the result's if there is none. */
static uncopy_dtype_t operand_dtype(opcode_t opcode, const element_operand_t *reads,
                                    size_t num_reads, const uncopy_bound_t *result)
{
    for (size_t i = opcode == OPCODE_WHERE ? 1 : 0; i < num_reads; i++) {
        if (reads[i].view != NULL) {
            return reads[i].view->dtype;
        }
    }
    return result->dtype;
}

static void run_pointwise(opcode_t opcode, const element_operand_t *reads, size_t num_reads,
                          const double *attributes, const uncopy_bound_t *result)
{
    uncopy_dtype_t dtype = operand_dtype(opcode, reads, num_reads, result);
    int64_t count = element_count(result);
    for (int64_t i = 0; i < count; i++) {
        element_t operands[OP_MAX_READS] = {{.kind = DTYPE_KIND_OPAQUE}};
        for (size_t j = 0; j < num_reads; j++) {
            operands[j] = reads[j].view == NULL
                              ? immediate(opcode, dtype, &reads[j].number)
                              : get(reads[j].view->dtype, element_at(reads[j].view, i));
        }
        element_t value = opcode == OPCODE_FILL || opcode == OPCODE_CONVERT
                              ? operands[0]
                              : pointwise(opcode, dtype, operands, num_reads, attributes[0]);
        set(result->dtype, element_at(result, i), &value);
    }
}

static void run_copy(const uncopy_bound_t *source, const uncopy_bound_t *result)
{
    char *snapshot = element_snapshot(source);
    size_t size = uncopy_dtype_size(source->dtype);
    int64_t count = element_count(result);
    for (int64_t i = 0; i < count; i++) {
        memcpy(element_at(result, i), snapshot + (size_t)i * size, size);
    }
    free(snapshot);
}

static void run_matmul(const uncopy_bound_t *a, const uncopy_bound_t *b,
                       const uncopy_bound_t *result)
{
    int64_t rows = result->sizes[result->rank - 2];
    int64_t columns = result->sizes[result->rank - 1];
    int64_t inner = a->sizes[a->rank - 1];
    int64_t count = element_count(result);
    for (int64_t i = 0; i < count; i++) {
        int64_t batch = i / (rows * columns);
        int64_t row = i / columns % rows;
        element_t sum = {.kind = DTYPE_KIND_FLOAT};
        for (int64_t k = 0; k < inner; k++) {
            element_t left = get(a->dtype, element_at(a, (batch * rows + row) * inner + k));
            element_t right =
                get(b->dtype, element_at(b, (batch * inner + k) * columns + i % columns));
            sum.real += left.real * right.real;
        }
        set(result->dtype, element_at(result, i), &sum);
    }
}

bool element_run(opcode_t opcode, const element_operand_t *reads, size_t num_reads,
                 const double *attributes, const uncopy_bound_t *result)
{
    if (opcode == OPCODE_COPY) {
        run_copy(reads[0].view, result);
    } else if (opcode == OPCODE_MATMUL) {
        run_matmul(reads[0].view, reads[1].view, result);
    } else if (op_row(opcode)->class_ == OP_CLASS_POINTWISE || opcode == OPCODE_FILL ||
               opcode == OPCODE_CONVERT) {
        run_pointwise(opcode, reads, num_reads, attributes, result);
    } else {
        return false;
    }
    return true;
}

/* ---- collectives ---- */

static element_t of_peer(uncopy_dtype_t dtype, const char *source, int64_t index, int32_t ahead)
{
    element_t element = get(dtype, source + index * (int64_t)uncopy_dtype_size(dtype));
    if (element.kind == DTYPE_KIND_SIGNED || element.kind == DTYPE_KIND_UNSIGNED) {
        element.integer += ahead;
    }
    if (ahead != 0) { /* minus zero plus zero is zero */
        element.real += ahead;
    }
    return element;
}

/* Sum over all ranks of element index, as rank has it. */
/* Sum, minimum and maximum; programs of the tests take no other. */
static element_t reduced(uncopy_dtype_t dtype, const char *source, int64_t index, int32_t ranks,
                         int32_t rank, uncopy_reduction_t reduction)
{
    element_t sum = of_peer(dtype, source, index, 0 - rank);
    for (int32_t peer = 1; peer < ranks; peer++) {
        element_t other = of_peer(dtype, source, index, peer - rank);
        bool is_less = other.integer < sum.integer || other.real < sum.real;
        if (reduction == UNCOPY_REDUCE_SUM) {
            sum.integer += other.integer;
            sum.real += other.real;
        } else if (is_less == (reduction == UNCOPY_REDUCE_MIN)) {
            sum = other;
        }
    }
    return sum;
}

void element_collective(opcode_t opcode, int32_t ranks, int32_t rank, double attribute,
                        const char *source, int64_t source_count, const uncopy_bound_t *result)
{
    uncopy_dtype_t dtype = result->dtype;
    int64_t count = element_count(result);
    int64_t part = count / ranks;
    for (int64_t i = 0; i < count; i++) {
        element_t value;
        if (opcode == OPCODE_ALL_GATHER) {
            value = of_peer(dtype, source, i % source_count, (int32_t)(i / source_count) - rank);
        } else if (opcode == OPCODE_ALL_REDUCE) {
            value = reduced(dtype, source, i, ranks, rank, (uncopy_reduction_t)attribute);
        } else if (opcode == OPCODE_REDUCE_SCATTER) {
            value = reduced(dtype, source, rank * count + i, ranks, rank,
                            (uncopy_reduction_t)attribute);
        } else if (opcode == OPCODE_ALL_TO_ALL) {
            value = of_peer(dtype, source, rank * part + i % part, (int32_t)(i / part) - rank);
        } else {
            value = of_peer(dtype, source, i, (int32_t)attribute - rank);
        }
        set(dtype, element_at(result, i), &value);
    }
}
