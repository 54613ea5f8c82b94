/* From dims to numbers. Expressions name only earlier expressions, so values fill one table in
 * order; cost is linear in expressions and views. */
#include "base/checked.h"
#include "base/status.h"
#include "ir/program.h"

static int64_t floor_divide(int64_t a, int64_t b)
{
    int64_t quotient = a / b;
    return quotient - ((a % b != 0) && ((a < 0) != (b < 0)));
}

static bool apply(uncopy_expression_kind_t kind, int64_t a, int64_t b, int64_t *out)
{
    switch (kind) {
    case UNCOPY_EXPRESSION_ADD:
        return checked_add(a, b, out);
    case UNCOPY_EXPRESSION_SUBTRACT:
        return checked_subtract(a, b, out);
    case UNCOPY_EXPRESSION_MULTIPLY:
        return checked_multiply(a, b, out);
    case UNCOPY_EXPRESSION_MINIMUM:
        *out = a < b ? a : b;
        return true;
    case UNCOPY_EXPRESSION_MAXIMUM:
        *out = a > b ? a : b;
        return true;
    case UNCOPY_EXPRESSION_FLOOR_DIVIDE:
    case UNCOPY_EXPRESSION_MODULO:
        if (b == 0 || (a == INT64_MIN && b == -1)) {
            return false;
        }
        *out = kind == UNCOPY_EXPRESSION_MODULO ? a - floor_divide(a, b) * b : floor_divide(a, b);
        return true;
    }
    return false;
}

static int64_t value_of(const int64_t *values, uncopy_dim_t dim)
{
    return dim >= 0 ? dim : values[-(dim + 1)];
}

static uncopy_status_t evaluate_expressions(const ir_program_t *program,
                                            const int64_t *symbol_values, int64_t *values)
{
    for (size_t e = 0; e < program->num_expressions; e++) {
        const ir_expression_t *expression = &program->expressions[e];
        if (expression->is_symbol) {
            values[e] = symbol_values[expression->symbol];
            continue;
        }
        int64_t a = value_of(values, expression->a);
        int64_t b = value_of(values, expression->b);
        if (!apply(expression->kind, a, b, &values[e])) {
            return status_fail(UNCOPY_ERROR_PROGRAM,
                               "expression %zu has no value: operands %lld and %lld", e,
                               (long long)a, (long long)b);
        }
    }
    return UNCOPY_OK;
}

/* Fills extent; false on a negative number or overflow of any byte position. */
static bool evaluate_view(const ir_view_t *view, const int64_t *values, ir_extent_t *extent)
{
    int64_t element_bytes = (int64_t)uncopy_dtype_size(view->dtype);
    span_t *span = &extent->span;
    span->rank = view->rank;
    span->element_bytes = element_bytes;
    span->start = value_of(values, view->offset_bytes);
    int64_t end = 0;
    int64_t count = element_bytes;
    bool is_fine = span->start >= 0 && checked_add(span->start, element_bytes, &end);
    for (int32_t d = 0; d < view->rank; d++) {
        int64_t size = value_of(values, view->sizes[d]);
        int64_t stride = value_of(values, view->strides[d]);
        int64_t reach = 0;
        span->sizes[d] = size;
        extent->element_strides[d] = stride;
        is_fine = is_fine && size >= 0 && stride >= 0 &&
                  checked_multiply(stride, element_bytes, &span->strides[d]) &&
                  checked_multiply(span->strides[d], size > 0 ? size - 1 : 0, &reach) &&
                  checked_add(end, reach, &end) &&
                  checked_multiply(count, size > 0 ? size : 1, &count);
    }
    return is_fine;
}

uncopy_status_t ir_evaluate(const ir_program_t *program, const int64_t *symbol_values,
                            arena_t *arena, ir_values_t *out_values)
{
    int64_t *values = arena_allocate(arena, program->num_expressions, sizeof(*values));
    ir_extent_t *extents = arena_allocate(arena, program->num_views, sizeof(*extents));
    int64_t *numbers = arena_allocate(arena, program->num_numbers, sizeof(*numbers));
    if (values == NULL || extents == NULL || numbers == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    TRY(evaluate_expressions(program, symbol_values, values));
    for (size_t v = 0; v < program->num_views; v++) {
        if (!evaluate_view(&program->views[v], values, &extents[v])) {
            return status_fail(UNCOPY_ERROR_PROGRAM,
                               "view %s: a size, stride or offset is below zero or too large",
                               program->views[v].name);
        }
    }
    for (size_t n = 0; n < program->num_numbers; n++) {
        numbers[n] = value_of(values, program->numbers[n]);
    }
    *out_values = (ir_values_t){extents, numbers};
    return UNCOPY_OK;
}
