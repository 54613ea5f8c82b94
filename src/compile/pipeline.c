/* The pipeline: the passes' only caller. */
#include <string.h>

#include "base/status.h"
#include "compile/compile.h"
#include "compile/passes.h"
#include "ir/verify.h"

/* Arguments planned without a call lie this far apart. */
enum { ASSUMED_GAP = 1 << 12 };

/* Values of the program's symbols at a call, or as assumed. */
static uncopy_status_t find_symbols(const ir_program_t *program, const uncopy_argument_t *arguments,
                                    plan_symbol_t *symbols, int64_t *values)
{
    for (size_t s = 0; s < program->num_symbols; s++) {
        const ir_symbol_t *symbol = &program->symbols[s];
        symbols[s] = (plan_symbol_t){symbol->argument, symbol->kind, symbol->dim, symbol->assumed};
        if (arguments == NULL && symbol->assumed < 0) {
            return status_fail(UNCOPY_ERROR_PROGRAM, "the symbol %s has no value: assume one",
                               symbol->name);
        }
        if (arguments != NULL &&
            !plan_symbol_read(&symbols[s], &arguments[symbol->argument], &symbols[s].value)) {
            const uncopy_argument_t *argument = &arguments[symbol->argument];
            return status_fail(UNCOPY_ERROR_ARGUMENT,
                               "argument %u is %s with %d dims, %s is its %s %d", symbol->argument,
                               uncopy_dtype_name(argument->dtype), argument->rank, symbol->name,
                               symbol->kind == UNCOPY_SYMBOL_VALUE ? "value" : "dim", symbol->dim);
        }
        values[s] = symbols[s].value;
    }
    return UNCOPY_OK;
}

/* Whether a call's argument is what the program says of it. */
static uncopy_status_t check_argument(const ir_program_t *program, const ir_extent_t *extents,
                                      uint32_t number, const uncopy_argument_t *argument)
{
    const ir_view_t *view = &program->views[program->storages[number].first_view];
    const ir_extent_t *extent = &extents[program->storages[number].first_view];
    if (argument->dtype != view->dtype || argument->rank != view->rank) {
        return status_fail(UNCOPY_ERROR_ARGUMENT,
                           "argument %u (%s) is %s with %d dims, planned for %s with %d", number,
                           view->name, uncopy_dtype_name(argument->dtype), argument->rank,
                           uncopy_dtype_name(view->dtype), view->rank);
    }
    int64_t row_major = 1;
    for (int32_t d = view->rank - 1; d >= 0; d--) {
        int64_t stride = argument->strides == NULL ? row_major : argument->strides[d];
        if (argument->sizes[d] != extent->span.sizes[d] ||
            (extent->span.sizes[d] > 1 && stride != extent->element_strides[d])) {
            return status_fail(
                UNCOPY_ERROR_ARGUMENT,
                "argument %u (%s), dim %d: size %lld stride %lld, planned for %lld and %lld",
                number, view->name, d, (long long)argument->sizes[d], (long long)stride,
                (long long)extent->span.sizes[d], (long long)extent->element_strides[d]);
        }
        row_major *= argument->sizes[d] > 1 ? argument->sizes[d] : 1;
    }
    return UNCOPY_OK;
}

/* Addresses that the assume lines give; everything else apart. A view within another argument's
 * bytes shares its storage. */
static void assume_addresses(const ir_program_t *program, const ir_extent_t *extents,
                             int64_t *addresses)
{
    size_t n = program->num_arguments;
    int64_t at = ASSUMED_GAP;
    for (size_t a = 0; a < n; a++) {
        int64_t first = 0;
        int64_t end = 0;
        span_hull(&extents[program->storages[a].first_view].span, &first, &end);
        addresses[a] = addresses[n + a] = at;
        at += (end + 2 * ASSUMED_GAP) / ASSUMED_GAP * ASSUMED_GAP;
    }
    for (size_t i = 0; i < program->num_assumptions; i++) {
        const ir_assumption_t *assumption = &program->assumptions[i];
        addresses[assumption->a] = addresses[assumption->b] + assumption->offset_bytes;
        addresses[n + assumption->a] = addresses[n + assumption->b];
    }
}

static uncopy_status_t find_addresses(const ir_program_t *program, const ir_extent_t *extents,
                                      const uncopy_argument_t *arguments, int64_t *addresses)
{
    size_t n = program->num_arguments;
    if (arguments == NULL) {
        assume_addresses(program, extents, addresses);
        return UNCOPY_OK;
    }
    for (size_t a = 0; a < n; a++) {
        TRY(check_argument(program, extents, (uint32_t)a, &arguments[a]));
        const void *storage =
            arguments[a].storage == NULL ? arguments[a].data : arguments[a].storage;
        addresses[a] = (int64_t)(intptr_t)arguments[a].data;
        addresses[n + a] = (int64_t)(intptr_t)storage;
    }
    return UNCOPY_OK;
}

static uncopy_status_t run_passes(unit_t *unit, plan_t *plan)
{
    unsigned off = unit->options->passes_off;
    if ((off & UNCOPY_PASS_NORMALISE) == 0) {
        TRY(normalise_run(unit));
    }
    if ((off & UNCOPY_PASS_ELIDE) == 0) {
        TRY(elide_run(unit));
    }
    TRY(order_run(unit));
    return lower_run(unit, plan);
}

static uncopy_status_t check_strict(const plan_t *plan, unsigned strict)
{
    if ((strict & UNCOPY_STRICT_COPIES) != 0 && plan->num_copies > 0) {
        const uncopy_copy_t *copy = &plan->copies[0];
        return status_fail(UNCOPY_ERROR_STRICT,
                           "%s: %zu cop%s would stay; the first moves %lld bytes (%s:%d), %s: %s",
                           plan->name, plan->num_copies, plan->num_copies == 1 ? "y" : "ies",
                           (long long)copy->bytes, copy->file == NULL ? "?" : copy->file,
                           copy->line, copy->reason, copy->words);
    }
    for (size_t i = 0; (strict & UNCOPY_STRICT_EXTERNS) != 0 && i < plan->num_instructions; i++) {
        const plan_instruction_t *at = &plan->instructions[i];
        if (at->kind == PLAN_HOST_CALL) {
            return status_fail(UNCOPY_ERROR_STRICT, "%s: %s (%s:%d) would run on the host's kernel",
                               plan->name,
                               at->target == NULL ? op_row(at->opcode)->name : at->target,
                               at->file == NULL ? "?" : at->file, at->line);
        }
    }
    return UNCOPY_OK;
}

static uncopy_status_t plan_with(arena_t *arena, const uncopy_allocator_t *allocator,
                                 const ir_program_t *program, const target_t *target,
                                 const uncopy_options_t *options,
                                 const uncopy_argument_t *arguments, plan_t *plan)
{
    int64_t *values = arena_allocate(arena, program->num_symbols, sizeof(*values));
    int64_t *addresses = arena_allocate(arena, program->num_arguments * 2, sizeof(*addresses));
    plan->num_symbols = program->num_symbols;
    plan->symbols = arena_allocate(&plan->arena, plan->num_symbols, sizeof(*plan->symbols));
    if (values == NULL || addresses == NULL || plan->symbols == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    ir_values_t found;
    TRY(find_symbols(program, arguments, plan->symbols, values));
    TRY(ir_evaluate(program, values, arena, &found));
    const ir_extent_t *extents = found.extents;
    plan->num_numbers = program->num_numbers;
    plan->numbers =
        arena_copy(&plan->arena, found.numbers, plan->num_numbers, sizeof(*plan->numbers));
    if (plan->numbers == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    TRY(ir_verify(program, extents));
    TRY(find_addresses(program, extents, arguments, addresses));
    unit_t unit;
    uncopy_status_t status =
        unit_init(&unit, allocator, program, extents, target, options, addresses);
    if (status == UNCOPY_OK) {
        status = run_passes(&unit, plan);
    }
    unit_release(&unit);
    return status == UNCOPY_OK ? check_strict(plan, options->strict) : status;
}

uncopy_status_t compile_plan(const uncopy_allocator_t *allocator, const ir_program_t *program,
                             const target_t *target, const uncopy_options_t *options,
                             const uncopy_argument_t *arguments, size_t num_arguments, plan_t *plan)
{
    if (arguments != NULL && num_arguments != program->num_arguments) {
        return status_fail(UNCOPY_ERROR_ARGUMENT, "%s takes %zu arguments, found %zu",
                           program->name, program->num_arguments, num_arguments);
    }
    *plan = (plan_t){0};
    arena_init(&plan->arena, allocator);
    arena_t arena;
    arena_init(&arena, allocator);
    uncopy_status_t status =
        plan_with(&arena, allocator, program, target, options, arguments, plan);
    arena_release(&arena);
    if (status != UNCOPY_OK) {
        plan_release(plan);
    }
    return status;
}
