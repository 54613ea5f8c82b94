/* Building a program: appending to its arrays, with what can be checked of each part alone.
 * ir_verify checks the rest, with numbers. */
#include "ir/program.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/status.h"

enum { NAME_TABLE_FIRST_SIZE = 64, NAME_LIMIT = 200 };

uncopy_status_t ir_program_init(ir_program_t *program, const uncopy_allocator_t *allocator,
                                const char *name)
{
    *program = (ir_program_t){0};
    arena_init(&program->arena, allocator);
    if (name == NULL || name[0] == '\0' || strlen(name) > NAME_LIMIT) {
        return status_fail(UNCOPY_ERROR_ARGUMENT, "a program needs a name of 1 to %d bytes",
                           NAME_LIMIT);
    }
    program->name = arena_copy_text(&program->arena, name, strlen(name));
    return program->name == NULL ? UNCOPY_ERROR_MEMORY : UNCOPY_OK;
}

void ir_program_release(ir_program_t *program)
{
    arena_release(&program->arena);
}

/* ---- names ---- */

static size_t hash_name(const char *name, size_t length)
{
    uint64_t hash = 1469598103934665603u; /* FNV-1a */
    for (size_t i = 0; i < length; i++) {
        hash = (hash ^ (unsigned char)name[i]) * 1099511628211u;
    }
    return (size_t)hash;
}

static size_t find_slot(const ir_program_t *program, const char *name, size_t length)
{
    size_t mask = program->name_table_size - 1;
    size_t slot = hash_name(name, length) & mask;
    while (program->name_table[slot] != 0) {
        const char *other = program->views[program->name_table[slot] - 1].name;
        if (strlen(other) == length && memcmp(other, name, length) == 0) {
            break;
        }
        slot = (slot + 1) & mask;
    }
    return slot;
}

uncopy_view_t ir_find_view(const ir_program_t *program, const char *name, size_t length)
{
    if (program->name_table_size == 0) {
        return UNCOPY_NONE;
    }
    uint32_t entry = program->name_table[find_slot(program, name, length)];
    return entry == 0 ? UNCOPY_NONE : entry - 1;
}

static uncopy_status_t grow_name_table(ir_program_t *program)
{
    size_t size =
        program->name_table_size == 0 ? NAME_TABLE_FIRST_SIZE : program->name_table_size * 2;
    uint32_t *table = arena_allocate(&program->arena, size, sizeof(*table));
    if (table == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    program->name_table = table;
    program->name_table_size = size;
    for (size_t v = 0; v < program->num_views; v++) {
        const char *name = program->views[v].name;
        table[find_slot(program, name, strlen(name))] = (uint32_t)v + 1;
    }
    return UNCOPY_OK;
}

static bool is_identifier(const char *name)
{
    size_t length = strlen(name);
    if (length == 0 || length > NAME_LIMIT || isdigit((unsigned char)name[0])) {
        return false;
    }
    for (size_t i = 0; i < length; i++) {
        if (!isalnum((unsigned char)name[i]) && name[i] != '_') {
            return false;
        }
    }
    return true;
}

/* A name of its own for a new view: the given one, or the next free "v7". */
static uncopy_status_t choose_name(ir_program_t *program, const char *name, const char **out_name)
{
    char made_up[32];
    if (program->num_views * 2 >= program->name_table_size) {
        TRY(grow_name_table(program));
    }
    if (name == NULL) {
        size_t number = program->num_views;
        do {
            (void)snprintf(made_up, sizeof(made_up), "v%zu", number++);
        } while (ir_find_view(program, made_up, strlen(made_up)) != UNCOPY_NONE);
        name = made_up;
    } else if (!is_identifier(name)) {
        return status_fail(UNCOPY_ERROR_ARGUMENT,
                           "\"%.60s\" is no name: letters, digits and underscores, no digit first",
                           name);
    } else if (ir_find_view(program, name, strlen(name)) != UNCOPY_NONE) {
        return status_fail(UNCOPY_ERROR_ARGUMENT, "the name \"%s\" is taken", name);
    }
    *out_name = arena_copy_text(&program->arena, name, strlen(name));
    return *out_name == NULL ? UNCOPY_ERROR_MEMORY : UNCOPY_OK;
}

/* ---- dims and layouts ---- */

static bool dim_exists(const ir_program_t *program, uncopy_dim_t dim)
{
    return dim >= 0 || (uint64_t)(-(dim + 1)) < program->num_expressions;
}

static uncopy_status_t add_expression(ir_program_t *program, ir_expression_t expression,
                                      uncopy_dim_t *out_dim)
{
    ARENA_PUSH(&program->arena, program->expressions, program->num_expressions,
               program->expressions_capacity, expression);
    *out_dim = -(int64_t)program->num_expressions;
    return UNCOPY_OK;
}

uncopy_status_t ir_add_expression(ir_program_t *program, uncopy_expression_kind_t kind,
                                  uncopy_dim_t a, uncopy_dim_t b, uncopy_dim_t *out_dim)
{
    if ((unsigned)kind > UNCOPY_EXPRESSION_MAXIMUM || !dim_exists(program, a) ||
        !dim_exists(program, b)) {
        return status_fail(UNCOPY_ERROR_ARGUMENT, "no such expression kind (%d) or operand",
                           (int)kind);
    }
    return add_expression(program, (ir_expression_t){.kind = kind, .a = a, .b = b}, out_dim);
}

uncopy_status_t ir_add_symbol(ir_program_t *program, const char *name, uint32_t argument,
                              uncopy_symbol_kind_t kind, int32_t dim, uncopy_dim_t *out_dim)
{
    if (name == NULL || !is_identifier(name)) {
        return status_fail(UNCOPY_ERROR_ARGUMENT, "a symbol needs a name");
    }
    for (size_t s = 0; s < program->num_symbols; s++) {
        if (strcmp(program->symbols[s].name, name) == 0) {
            return status_fail(UNCOPY_ERROR_ARGUMENT, "the symbol \"%s\" is there already", name);
        }
    }
    if (argument > program->num_arguments || (unsigned)kind > UNCOPY_SYMBOL_VALUE || dim < 0 ||
        dim >= SPAN_MAX_RANK) {
        return status_fail(UNCOPY_ERROR_ARGUMENT, "symbol %s: no argument %u with a dim %d", name,
                           argument, dim);
    }
    ir_symbol_t symbol = {arena_copy_text(&program->arena, name, strlen(name)), argument, kind,
                          kind == UNCOPY_SYMBOL_VALUE ? 0 : dim, -1};
    if (symbol.name == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    uint32_t number = (uint32_t)program->num_symbols;
    ARENA_PUSH(&program->arena, program->symbols, program->num_symbols, program->symbols_capacity,
               symbol);
    return add_expression(program, (ir_expression_t){.is_symbol = true, .symbol = number}, out_dim);
}

static uncopy_status_t make_row_major(ir_program_t *program, ir_view_t *view)
{
    uncopy_dim_t stride = 1;
    for (int32_t d = view->rank - 1; d >= 0; d--) {
        view->strides[d] = stride;
        uncopy_dim_t size = view->sizes[d];
        if (d == 0) {
            break;
        }
        if (size >= 0 && stride >= 0) {
            if (!checked_multiply(stride, size > 1 ? size : 1, &stride)) {
                return status_fail(UNCOPY_ERROR_ARGUMENT,
                                   "the strides of a row-major view overflow");
            }
        } else {
            uncopy_dim_t least = size;
            TRY(ir_add_expression(program, UNCOPY_EXPRESSION_MAXIMUM, size, 1, &least));
            TRY(ir_add_expression(program, UNCOPY_EXPRESSION_MULTIPLY, stride, least, &stride));
        }
    }
    return UNCOPY_OK;
}

static uncopy_status_t set_layout(ir_program_t *program, const uncopy_layout_t *layout,
                                  ir_view_t *view)
{
    if (!dtype_is_valid(layout->dtype) || layout->rank < 0 || layout->rank > SPAN_MAX_RANK) {
        return status_fail(UNCOPY_ERROR_ARGUMENT,
                           "a view has a dtype (found %d) and 0 to %d dims (found %d)",
                           (int)layout->dtype, SPAN_MAX_RANK, layout->rank);
    }
    view->dtype = layout->dtype;
    view->rank = layout->rank;
    for (int32_t d = 0; d < layout->rank; d++) {
        view->sizes[d] = layout->sizes[d];
        view->strides[d] = layout->strides == NULL ? 0 : layout->strides[d];
        if (!dim_exists(program, view->sizes[d]) || !dim_exists(program, view->strides[d])) {
            return status_fail(UNCOPY_ERROR_ARGUMENT, "dim %d names no expression of the program",
                               d);
        }
    }
    return layout->strides == NULL ? make_row_major(program, view) : UNCOPY_OK;
}

/* ---- storages and views ---- */

static uncopy_status_t add_named_view(ir_program_t *program, const char *name,
                                      const uncopy_layout_t *layout, ir_view_t view,
                                      uncopy_view_t *out_view)
{
    TRY(set_layout(program, layout, &view));
    TRY(choose_name(program, name, &view.name));
    if (program->num_views >= UNCOPY_NONE - 1) {
        return status_fail(UNCOPY_ERROR_ARGUMENT, "too many views");
    }
    uncopy_view_t number = (uncopy_view_t)program->num_views;
    ARENA_PUSH(&program->arena, program->views, program->num_views, program->views_capacity, view);
    program->name_table[find_slot(program, view.name, strlen(view.name))] = number + 1;
    *out_view = number;
    return UNCOPY_OK;
}

static uncopy_status_t add_storage(ir_program_t *program, const char *name, ir_storage_t storage,
                                   const uncopy_layout_t *layout, uncopy_view_t *out_view)
{
    storage.first_view = (uint32_t)program->num_views;
    ir_view_t view = {.storage = (uint32_t)program->num_storages};
    uncopy_view_t number = 0;
    TRY(add_named_view(program, name, layout, view, &number));
    ARENA_PUSH(&program->arena, program->storages, program->num_storages,
               program->storages_capacity, storage);
    *out_view = number;
    return UNCOPY_OK;
}

uncopy_status_t ir_add_argument(ir_program_t *program, const char *name,
                                const uncopy_layout_t *layout, uncopy_view_t *out_view)
{
    if (program->num_arguments != program->num_storages) {
        return status_fail(UNCOPY_ERROR_ARGUMENT, "arguments come before all other storages");
    }
    TRY(add_storage(program, name, (ir_storage_t){.kind = IR_STORAGE_ARGUMENT}, layout, out_view));
    program->num_arguments++;
    return UNCOPY_OK;
}

uncopy_status_t ir_add_storage(ir_program_t *program, const char *name, ir_storage_kind_t kind,
                               const uncopy_layout_t *layout, uncopy_view_t *out_view)
{
    if (kind != IR_STORAGE_SCRATCH && kind != IR_STORAGE_FRESH) {
        return status_fail(UNCOPY_ERROR_ARGUMENT, "a storage is scratch or fresh");
    }
    return add_storage(program, name, (ir_storage_t){.kind = kind}, layout, out_view);
}

uncopy_status_t ir_add_constant(ir_program_t *program, const char *name,
                                const uncopy_layout_t *layout, const void *bytes, size_t size_bytes,
                                uncopy_view_t *out_view)
{
    int64_t count = 1;
    for (int32_t d = 0; d < layout->rank && d < SPAN_MAX_RANK; d++) {
        if (layout->sizes[d] < 0 || !checked_multiply(count, layout->sizes[d], &count)) {
            return status_fail(UNCOPY_ERROR_ARGUMENT, "a constant's sizes are numbers");
        }
    }
    if (layout->strides != NULL ||
        !checked_multiply(count, (int64_t)uncopy_dtype_size(layout->dtype), &count) ||
        (uint64_t)count != size_bytes) {
        return status_fail(
            UNCOPY_ERROR_ARGUMENT,
            "a constant is row-major and has the bytes of its layout (%lld), found %zu",
            (long long)count, size_bytes);
    }
    ir_storage_t storage = {.kind = IR_STORAGE_CONSTANT, .size_bytes = size_bytes};
    storage.bytes = arena_copy(&program->arena, bytes, size_bytes, 1);
    if (storage.bytes == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    return add_storage(program, name, storage, layout, out_view);
}

uncopy_status_t ir_add_view(ir_program_t *program, const char *name, uncopy_view_t of,
                            const uncopy_layout_t *layout, uncopy_dim_t offset_bytes,
                            bool is_from_storage, uncopy_view_t *out_view)
{
    if (of >= program->num_views || !dim_exists(program, offset_bytes)) {
        return status_fail(UNCOPY_ERROR_ARGUMENT, "no view %u to take a view of, or no such offset",
                           of);
    }
    uint32_t storage = program->views[of].storage;
    bool is_argument = program->storages[storage].kind == IR_STORAGE_ARGUMENT;
    ir_view_t view = {.storage = storage,
                      .is_from_storage = is_from_storage && is_argument,
                      .offset_bytes = offset_bytes};
    return add_named_view(program, name, layout, view, out_view);
}

uint32_t ir_argument_of(const ir_program_t *program, uncopy_view_t view)
{
    uint32_t storage = program->views[view].storage;
    return program->storages[storage].kind == IR_STORAGE_ARGUMENT ? storage : UNCOPY_NONE;
}

uncopy_status_t ir_add_group(ir_program_t *program, const char *token, const char *name,
                             int32_t size, int32_t rank, uncopy_group_t *out_group)
{
    if (token == NULL || name == NULL || !is_identifier(token)) {
        return status_fail(UNCOPY_ERROR_ARGUMENT, "a group needs a token and a name");
    }
    if (size < 1 || rank < 0 || rank >= size) {
        return status_fail(UNCOPY_ERROR_ARGUMENT, "group %s: rank %d of %d", token, rank, size);
    }
    for (size_t g = 0; g < program->num_groups; g++) {
        if (strcmp(program->groups[g].token, token) == 0) {
            return status_fail(UNCOPY_ERROR_ARGUMENT, "the group \"%s\" is there already", token);
        }
    }
    ir_group_t group = {arena_copy_text(&program->arena, token, strlen(token)),
                        arena_copy_text(&program->arena, name, strlen(name)), size, rank};
    if (group.token == NULL || group.name == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    *out_group = (uncopy_group_t)program->num_groups;
    ARENA_PUSH(&program->arena, program->groups, program->num_groups, program->groups_capacity,
               group);
    return UNCOPY_OK;
}

/* ---- operations ---- */

static uncopy_status_t set_attributes(const uncopy_operation_t *from, ir_operation_t *to)
{
    const char *name = NULL;
    size_t length = 0;
    double value = 0;
    size_t count = 0;
    for (; op_attribute(to->opcode, count, &name, &length, &value); count++) {
        to->attributes[count] = value;
    }
    for (size_t i = 0; i < from->num_attributes; i++) {
        size_t at = 0;
        while (at < count) {
            (void)op_attribute(to->opcode, at, &name, &length, &value);
            if (strlen(from->attributes[i].name) == length &&
                memcmp(name, from->attributes[i].name, length) == 0) {
                break;
            }
            at++;
        }
        if (at == count) {
            return status_fail(UNCOPY_ERROR_PROGRAM, "%s (%s:%d) has no attribute \"%.60s\"",
                               from->name, from->file == NULL ? "?" : from->file, from->line,
                               from->attributes[i].name);
        }
        to->attributes[at] = from->attributes[i].value;
    }
    return UNCOPY_OK;
}

static uncopy_status_t check_views(const ir_program_t *program, const uncopy_operation_t *operation)
{
    uint32_t bad = UNCOPY_NONE;
    for (size_t i = 0; i < operation->num_reads; i++) {
        uncopy_view_t view = operation->reads[i].view;
        bad = view != UNCOPY_NONE && view >= program->num_views ? view : bad;
    }
    for (size_t i = 0; i < operation->num_writes; i++) {
        bad = operation->writes[i] >= program->num_views ? operation->writes[i] : bad;
    }
    for (size_t i = 0; i < operation->num_returns; i++) {
        bad = operation->returns[i] >= program->num_views ? operation->returns[i] : bad;
    }
    if (bad != UNCOPY_NONE) {
        return status_fail(UNCOPY_ERROR_ARGUMENT, "%s names view %u of %zu", operation->name, bad,
                           program->num_views);
    }
    if (operation->group != UNCOPY_NONE && operation->group >= program->num_groups) {
        return status_fail(UNCOPY_ERROR_ARGUMENT, "%s names group %u of %zu", operation->name,
                           operation->group, program->num_groups);
    }
    return UNCOPY_OK;
}

static uncopy_status_t copy_text(ir_program_t *program, const char *text, const char **out_copy)
{
    if (text != NULL) {
        *out_copy = arena_copy_text(&program->arena, text, strlen(text));
        return *out_copy == NULL ? UNCOPY_ERROR_MEMORY : UNCOPY_OK;
    }
    return UNCOPY_OK;
}

uncopy_status_t ir_add_operation(ir_program_t *program, const uncopy_operation_t *operation)
{
    ir_operation_t to = {.num_reads = operation->num_reads,
                         .num_writes = operation->num_writes,
                         .num_returns = operation->num_returns,
                         .group = operation->group,
                         .effects = operation->effects,
                         .host_id = operation->host_id < 0 ? -1 : operation->host_id,
                         .line = operation->line};
    if (operation->name == NULL || !op_find(operation->name, strlen(operation->name), &to.opcode)) {
        return status_fail(UNCOPY_ERROR_PROGRAM, "no operation is named \"%.60s\"",
                           operation->name == NULL ? "" : operation->name);
    }
    TRY(check_views(program, operation));
    TRY(set_attributes(operation, &to));
    arena_t *arena = &program->arena;
    to.reads = arena_copy(arena, operation->reads, to.num_reads, sizeof(*to.reads));
    to.writes = arena_copy(arena, operation->writes, to.num_writes, sizeof(*to.writes));
    to.returns = arena_copy(arena, operation->returns, to.num_returns, sizeof(*to.returns));
    if (to.reads == NULL || to.writes == NULL || to.returns == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    TRY(copy_text(program, operation->target, &to.target));
    TRY(copy_text(program, operation->file, &to.file));
    ARENA_PUSH(arena, program->operations, program->num_operations, program->operations_capacity,
               to);
    return UNCOPY_OK;
}

uncopy_status_t ir_add_number(ir_program_t *program, uncopy_dim_t dim, size_t *out_number)
{
    if (!dim_exists(program, dim)) {
        return status_fail(UNCOPY_ERROR_ARGUMENT, "a number names no expression");
    }
    *out_number = program->num_numbers;
    ARENA_PUSH(&program->arena, program->numbers, program->num_numbers, program->numbers_capacity,
               dim);
    return UNCOPY_OK;
}

uncopy_status_t ir_add_output(ir_program_t *program, uncopy_view_t view)
{
    if (view >= program->num_views) {
        return status_fail(UNCOPY_ERROR_ARGUMENT, "output names view %u of %zu", view,
                           program->num_views);
    }
    ARENA_PUSH(&program->arena, program->outputs, program->num_outputs, program->outputs_capacity,
               view);
    ir_storage_t *storage = &program->storages[program->views[view].storage];
    if (storage->kind == IR_STORAGE_SCRATCH) {
        storage->kind = IR_STORAGE_FRESH;
    }
    return UNCOPY_OK;
}

uncopy_status_t ir_assume(ir_program_t *program, uint32_t a, uint32_t b, int64_t offset_bytes)
{
    if (a >= program->num_arguments || b >= program->num_arguments) {
        return status_fail(UNCOPY_ERROR_ARGUMENT, "assume is about arguments");
    }
    ir_assumption_t assumption = {a, b, offset_bytes};
    ARENA_PUSH(&program->arena, program->assumptions, program->num_assumptions,
               program->assumptions_capacity, assumption);
    return UNCOPY_OK;
}
