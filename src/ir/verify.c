/* The verifier, and its rules about parts: v1, v2 and v12. Those about single operations, v3 to v11
 * and v13, stand in verify_operation.c; those about the order of operations, v14 to v17, in
 * verify_order.c.
 *
 *   v1  what is named exists; a storage's first view starts its storage; a symbol stands for a dim
 *       of an argument, or for the value of an i64 argument without dims
 *   v2  a view has 0 to 12 dims and a dtype; its numbers are not below zero and its bytes countable
 *   v3  an operation has the operands that its row says: reads, results, and returns for externs
 *       alone
 *   v4  a fill reads a number; other rows that are not pointwise, and the condition of a where,
 *       read views
 *   v5  dtypes are what the row's rule takes; a number with a fraction stands beside floats alone
 *   v6  operands of pointwise operations and moves have exactly the result's sizes; a broadcast is
 *       spelled by a view of stride 0
 *   v7  matmul: [m,k] by [k,n] into [m,n], or all three with one batch dim before
 *   v8  the result of a row or collective lists no byte twice
 *   v9  a collective has a group, a row has none, an extern may have one
 *   v10 a collective's source and destination have element counts that belong together
 *   v11 constants are not written
 *   v12 views of scratch, fresh and constant storages lie inside them
 *   v13 attributes and effects are such as the operation has
 *
 * Shapes, v7, v8, v10 and v12 need numbers. Cost is linear, apart from v8 (span_is_injective). */
#include "ir/verify.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/checked.h"
#include "base/status.h"
#include "ir/verify_parts.h"

/* ---- words ---- */

uncopy_status_t verify_fail(const verifier_t *verifier, const char *rule, const char *format, ...)
{
    char words[700];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(words, sizeof(words), format, arguments);
    va_end(arguments);
    if (verifier->operation >= verifier->program->num_operations) {
        return status_fail(UNCOPY_ERROR_PROGRAM, "%s: %s", rule, words);
    }
    const ir_operation_t *operation = &verifier->program->operations[verifier->operation];
    return status_fail(UNCOPY_ERROR_PROGRAM, "%s: operation %zu, %s%s%s (%.120s:%d): %s", rule,
                       verifier->operation, op_row(operation->opcode)->name,
                       operation->target == NULL ? "" : " ",
                       operation->target == NULL ? "" : operation->target,
                       operation->file == NULL ? "?" : operation->file, operation->line, words);
}

static size_t show_list(char *shown, size_t at, char open, const int64_t *numbers, int32_t count,
                        char close)
{
    for (int32_t i = 0; i <= count && at + 1 < VERIFY_SHOWN_BYTES; i++) {
        char mark = i == 0 ? open : ',';
        int written = i < count ? snprintf(shown + at, VERIFY_SHOWN_BYTES - at, "%c%lld", mark,
                                           (long long)numbers[i])
                                : snprintf(shown + at, VERIFY_SHOWN_BYTES - at, "%s%c",
                                           count == 0 ? (open == '[' ? "[" : "(") : "", close);
        at += written > 0 ? (size_t)written : 0;
    }
    return at < VERIFY_SHOWN_BYTES ? at : VERIFY_SHOWN_BYTES - 1;
}

const char *verify_show(const verifier_t *verifier, uncopy_view_t view,
                        char shown[VERIFY_SHOWN_BYTES])
{
    const ir_view_t *known = &verifier->program->views[view];
    int start = snprintf(shown, VERIFY_SHOWN_BYTES, "%.60s %s", known->name,
                         uncopy_dtype_name(known->dtype));
    if (verifier->extents != NULL && start > 0) {
        const ir_extent_t *extent = &verifier->extents[view];
        const span_t *span = &extent->span;
        size_t at = show_list(shown, (size_t)start, '[', span->sizes, span->rank, ']');
        at = show_list(shown, at, '(', extent->element_strides, span->rank, ')');
        (void)snprintf(shown + at, VERIFY_SHOWN_BYTES - at, " +%lld", (long long)span->start);
    }
    return shown;
}

/* ---- parts ---- */

static bool dim_exists(const ir_program_t *program, uncopy_dim_t dim)
{
    return dim >= 0 || (uint64_t)(-(dim + 1)) < program->num_expressions;
}

static uncopy_status_t check_view_parts(const verifier_t *verifier, size_t v)
{
    const ir_program_t *program = verifier->program;
    const ir_view_t *view = &program->views[v];
    if (view->storage >= program->num_storages || !dim_exists(program, view->offset_bytes)) {
        return verify_fail(verifier, "v1", "view %s has storage %u of %zu, or no such offset",
                           view->name, view->storage, program->num_storages);
    }
    if (view->rank < 0 || view->rank > SPAN_MAX_RANK || !dtype_is_valid(view->dtype)) {
        return verify_fail(verifier, "v2", "view %s has %d dims and dtype %d", view->name,
                           view->rank, (int)view->dtype);
    }
    for (int32_t d = 0; d < view->rank; d++) {
        if (!dim_exists(program, view->sizes[d]) || !dim_exists(program, view->strides[d])) {
            return verify_fail(verifier, "v1", "dim %d of view %s names no expression", d,
                               view->name);
        }
    }
    return UNCOPY_OK;
}

static uncopy_status_t check_storage(const verifier_t *verifier, size_t s)
{
    const ir_program_t *program = verifier->program;
    const ir_storage_t *storage = &program->storages[s];
    if (storage->first_view >= program->num_views ||
        program->views[storage->first_view].storage != s ||
        program->views[storage->first_view].offset_bytes != 0 ||
        program->views[storage->first_view].is_from_storage) {
        return verify_fail(verifier, "v1", "storage %zu: its first view does not start it", s);
    }
    bool is_argument = storage->kind == IR_STORAGE_ARGUMENT;
    if (is_argument != (s < program->num_arguments)) {
        return verify_fail(verifier, "v1", "storage %s: arguments come before other storages",
                           program->views[storage->first_view].name);
    }
    return UNCOPY_OK;
}

static uncopy_status_t check_expression(const verifier_t *verifier, size_t e)
{
    const ir_program_t *program = verifier->program;
    const ir_expression_t *expression = &program->expressions[e];
    if (expression->is_symbol) {
        if (expression->symbol >= program->num_symbols) {
            return verify_fail(verifier, "v1", "expression %zu names symbol %u of %zu", e,
                               expression->symbol, program->num_symbols);
        }
        return UNCOPY_OK;
    }
    /* Expressions name earlier ones only, which makes their evaluation end. */
    uncopy_dim_t earliest = -(uncopy_dim_t)e;
    if (expression->a < earliest || expression->b < earliest) {
        return verify_fail(verifier, "v1", "expression %zu names one that is not before it", e);
    }
    return UNCOPY_OK;
}

static uncopy_status_t check_symbol(const verifier_t *verifier, size_t s)
{
    const ir_program_t *program = verifier->program;
    const ir_symbol_t *symbol = &program->symbols[s];
    if (symbol->argument >= program->num_arguments) {
        return verify_fail(verifier, "v1", "symbol %s: there is no argument %u", symbol->name,
                           symbol->argument);
    }
    const ir_view_t *view = &program->views[program->storages[symbol->argument].first_view];
    if (symbol->kind == UNCOPY_SYMBOL_VALUE) {
        if (view->dtype != UNCOPY_DTYPE_I64 || view->rank != 0) {
            return verify_fail(verifier, "v1", "symbol %s: argument %u is no i64 without dims",
                               symbol->name, symbol->argument);
        }
        return UNCOPY_OK;
    }
    if (symbol->dim < 0 || symbol->dim >= view->rank) {
        return verify_fail(verifier, "v1", "symbol %s: there is no dim %d of an argument %u",
                           symbol->name, symbol->dim, symbol->argument);
    }
    return UNCOPY_OK;
}

static uncopy_status_t check_ends(const verifier_t *verifier)
{
    const ir_program_t *program = verifier->program;
    for (size_t i = 0; i < program->num_outputs; i++) {
        if (program->outputs[i] >= program->num_views) {
            return verify_fail(verifier, "v1", "output %zu names view %u of %zu", i,
                               program->outputs[i], program->num_views);
        }
    }
    for (size_t i = 0; i < program->num_numbers; i++) {
        if (!dim_exists(program, program->numbers[i])) {
            return verify_fail(verifier, "v1", "number %zu names no expression", i);
        }
    }
    for (size_t i = 0; i < program->num_assumptions; i++) {
        if (program->assumptions[i].a >= program->num_arguments ||
            program->assumptions[i].b >= program->num_arguments) {
            return verify_fail(verifier, "v1", "assumption %zu is not about arguments", i);
        }
    }
    return UNCOPY_OK;
}

static uncopy_status_t check_parts(const verifier_t *verifier)
{
    const ir_program_t *program = verifier->program;
    for (size_t v = 0; v < program->num_views; v++) {
        TRY(check_view_parts(verifier, v));
    }
    for (size_t s = 0; s < program->num_storages; s++) {
        TRY(check_storage(verifier, s));
    }
    for (size_t e = 0; e < program->num_expressions; e++) {
        TRY(check_expression(verifier, e));
    }
    for (size_t s = 0; s < program->num_symbols; s++) {
        TRY(check_symbol(verifier, s));
    }
    return check_ends(verifier);
}

/* v2: numbers of views; v12: inside their storages. */
static uncopy_status_t check_view_numbers(const verifier_t *verifier, uncopy_view_t v)
{
    const ir_program_t *program = verifier->program;
    const span_t *span = &verifier->extents[v].span;
    const ir_storage_t *storage = &program->storages[program->views[v].storage];
    char shown[VERIFY_SHOWN_BYTES];
    int64_t bytes = span->element_bytes;
    bool is_fine = span->start >= 0;
    for (int32_t d = 0; d < span->rank; d++) {
        int64_t size = span->sizes[d];
        is_fine = is_fine && size >= 0 && span->strides[d] >= 0 &&
                  checked_multiply(bytes, size > 1 ? size : 1, &bytes);
    }
    if (!is_fine) {
        return verify_fail(verifier, "v2", "%s: below zero, or too many bytes",
                           verify_show(verifier, v, shown));
    }
    if (storage->kind == IR_STORAGE_ARGUMENT || span_count(span) == 0) {
        return UNCOPY_OK;
    }
    int64_t first = 0;
    int64_t end = 0;
    int64_t room_first = 0;
    int64_t room_end = 0;
    span_hull(span, &first, &end);
    span_hull(&verifier->extents[storage->first_view].span, &room_first, &room_end);
    if (end > room_end) {
        return verify_fail(verifier, "v12", "%s ends at byte %lld, its storage %s at %lld",
                           verify_show(verifier, v, shown), (long long)end,
                           program->views[storage->first_view].name, (long long)room_end);
    }
    return UNCOPY_OK;
}

/* ---- the whole ---- */

uncopy_status_t ir_verify(const ir_program_t *program, const ir_extent_t *extents)
{
    verifier_t verifier = {program, extents, program->num_operations};
    TRY(check_parts(&verifier));
    for (size_t v = 0; extents != NULL && v < program->num_views; v++) {
        TRY(check_view_numbers(&verifier, (uncopy_view_t)v));
    }
    for (size_t i = 0; i < program->num_operations; i++) {
        verifier.operation = i;
        TRY(verify_operation(&verifier, &program->operations[i]));
    }
    return verify_order(program, extents);
}

static uncopy_status_t verify_with_values(const ir_program_t *program, arena_t *arena)
{
    int64_t *values = arena_allocate(arena, program->num_symbols, sizeof(*values));
    ir_values_t found;
    if (values == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    for (size_t s = 0; s < program->num_symbols; s++) {
        values[s] = program->symbols[s].assumed;
        if (values[s] < 0) {
            return ir_verify(program, NULL);
        }
    }
    verifier_t verifier = {program, NULL, program->num_operations};
    TRY(check_parts(&verifier));
    TRY(ir_evaluate(program, values, arena, &found));
    return ir_verify(program, found.extents);
}

uncopy_status_t ir_verify_assumed(const ir_program_t *program)
{
    arena_t arena;
    arena_init(&arena, program->arena.allocator);
    uncopy_status_t status = verify_with_values(program, &arena);
    arena_release(&arena);
    return status;
}
