#include "compile/unit.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"

static uncopy_status_t copy_views(unit_t *unit, const ir_extent_t *extents)
{
    const ir_program_t *program = unit->program;
    unit->views_capacity = program->num_views * 2 + 16;
    unit->views = arena_allocate(&unit->arena, unit->views_capacity, sizeof(*unit->views));
    if (unit->views == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    for (size_t v = 0; v < program->num_views; v++) {
        const ir_view_t *view = &program->views[v];
        unit->views[v] = (unit_view_t){view->storage, view->is_from_storage, view->dtype,
                                       extents[v].span, view->name};
    }
    unit->num_views = program->num_views;
    return UNCOPY_OK;
}

static unsigned row_effects(const op_row_t *row)
{
    unsigned effects = UNCOPY_EFFECT_AUDITED;
    effects |= (row->flags & OP_FLAG_RAISES) != 0 ? (unsigned)UNCOPY_EFFECT_RAISES : 0u;
    effects |= (row->flags & OP_FLAG_RANDOM) != 0 ? (unsigned)UNCOPY_EFFECT_RANDOM : 0u;
    effects |= (row->flags & OP_FLAG_LAYOUT) != 0 ? (unsigned)UNCOPY_EFFECT_LAYOUT : 0u;
    return effects;
}

static uncopy_status_t copy_op(unit_t *unit, const ir_operation_t *from, unit_op_t *to)
{
    arena_t *arena = &unit->arena;
    *to = (unit_op_t){.opcode = from->opcode,
                      .num_reads = from->num_reads,
                      .num_writes = from->num_writes,
                      .num_returns = from->num_returns,
                      .group = from->group,
                      .effects = from->effects,
                      .partner = UNCOPY_NONE,
                      .target = from->target,
                      .host_id = from->host_id,
                      .file = from->file,
                      .line = from->line};
    memcpy(to->attributes, from->attributes, sizeof(to->attributes));
    to->reads = arena_allocate(arena, to->num_reads, sizeof(*to->reads));
    to->writes = arena_copy(arena, from->writes, to->num_writes, sizeof(*to->writes));
    to->returns = arena_copy(arena, from->returns, to->num_returns, sizeof(*to->returns));
    to->return_is_alias = arena_allocate(arena, to->num_returns, sizeof(*to->return_is_alias));
    if (to->reads == NULL || to->writes == NULL || to->returns == NULL ||
        to->return_is_alias == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    for (size_t i = 0; i < to->num_reads; i++) {
        to->reads[i] = (unit_operand_t){from->reads[i].view, from->reads[i]};
    }
    if (to->opcode != OPCODE_EXTERN) {
        to->effects |= row_effects(op_row(to->opcode));
    }
    return UNCOPY_OK;
}

/* A result is made by its operation if its storage is no argument's and nothing touched it
 * before. */
static void mark_returns(unit_t *unit, uint32_t number, bool *is_touched)
{
    unit_op_t *op = &unit->ops[number];
    bool is_unknown = (op->effects & UNCOPY_EFFECT_AUDITED) == 0;
    for (size_t i = 0; i < op->num_returns; i++) {
        unit_storage_t *storage = &unit->storages[unit->views[op->returns[i]].storage];
        uint32_t s = unit->views[op->returns[i]].storage;
        op->return_is_alias[i] = is_touched[s] || storage->kind == IR_STORAGE_ARGUMENT ||
                                 storage->kind == IR_STORAGE_CONSTANT;
        if (!op->return_is_alias[i]) {
            storage->maker = number;
            is_touched[s] = true;
        }
        storage->is_exposed |= is_unknown;
    }
    for (size_t i = 0; i < op->num_reads + op->num_writes; i++) {
        uint32_t view = i < op->num_reads ? op->reads[i].view : op->writes[i - op->num_reads];
        if (view != UNCOPY_NONE) {
            is_touched[unit->views[view].storage] = true;
            unit->storages[unit->views[view].storage].is_exposed |= is_unknown;
        }
    }
}

/* Pairs each fence with the collective before it that writes the same view. */
static void pair_fence(unit_t *unit, uint32_t fence)
{
    const unit_view_t *view = &unit->views[unit->ops[fence].writes[0]];
    for (uint32_t i = fence; i-- > 0;) {
        unit_op_t *op = &unit->ops[i];
        if (op_row(op->opcode)->class_ != OP_CLASS_COLLECTIVE || op->partner != UNCOPY_NONE) {
            continue;
        }
        const unit_view_t *other = &unit->views[op->writes[0]];
        if (other == view ||
            (other->storage == view->storage && other->is_from_storage == view->is_from_storage &&
             span_relate(&other->span, &view->span) == SPAN_SAME)) {
            op->partner = fence;
            unit->ops[fence].partner = i;
            return;
        }
    }
}

static uncopy_status_t copy_ops(unit_t *unit)
{
    const ir_program_t *program = unit->program;
    unit->num_ops = program->num_operations;
    unit->ops = arena_allocate(&unit->arena, unit->num_ops, sizeof(*unit->ops));
    unit->order = arena_allocate(&unit->arena, unit->num_ops, sizeof(*unit->order));
    bool *is_touched = arena_allocate(&unit->arena, unit->num_storages, sizeof(*is_touched));
    if (unit->ops == NULL || unit->order == NULL || is_touched == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    for (uint32_t i = 0; i < unit->num_ops; i++) {
        TRY(copy_op(unit, &program->operations[i], &unit->ops[i]));
        mark_returns(unit, i, is_touched);
        if (unit->ops[i].opcode == OPCODE_FENCE) {
            pair_fence(unit, i);
        }
        unit->order[i] = i;
    }
    unit->num_order = unit->num_ops;
    return UNCOPY_OK;
}

static uncopy_status_t copy_storages(unit_t *unit)
{
    const ir_program_t *program = unit->program;
    unit->num_storages = program->num_storages;
    unit->storages = arena_allocate(&unit->arena, unit->num_storages, sizeof(*unit->storages));
    unit->outputs =
        arena_copy(&unit->arena, program->outputs, program->num_outputs, sizeof(*unit->outputs));
    if (unit->storages == NULL || unit->outputs == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    for (size_t s = 0; s < unit->num_storages; s++) {
        const ir_storage_t *from = &program->storages[s];
        int64_t first = 0;
        int64_t end = 0;
        span_hull(&unit->views[from->first_view].span, &first, &end);
        unit->storages[s] = (unit_storage_t){.kind = from->kind,
                                             .first_view = from->first_view,
                                             .maker = UNCOPY_NONE,
                                             .is_exposed = from->kind == IR_STORAGE_ARGUMENT ||
                                                           from->kind == IR_STORAGE_FRESH,
                                             .size_bytes = end,
                                             .bytes = from->bytes};
    }
    unit->num_outputs = program->num_outputs;
    for (size_t i = 0; i < unit->num_outputs; i++) {
        unit->storages[unit->views[unit->outputs[i]].storage].is_output = true;
    }
    return UNCOPY_OK;
}

/* ---- facts ---- */

static void widen(facts_hull_t *hull, const span_t *span)
{
    int64_t first = 0;
    int64_t end = 0;
    span_hull(span, &first, &end);
    if (first == end) {
        return;
    }
    if (hull->first == hull->end) {
        *hull = (facts_hull_t){first, end};
        return;
    }
    hull->first = first < hull->first ? first : hull->first;
    hull->end = end > hull->end ? end : hull->end;
}

static void widen_by_view(unit_t *unit, facts_hull_t *hulls, uint32_t number)
{
    if (number != UNCOPY_NONE) {
        const unit_view_t *view = &unit->views[number];
        if (unit->storages[view->storage].kind == IR_STORAGE_ARGUMENT) {
            widen(&hulls[unit_base(unit, view)], &view->span);
        }
    }
}

/* Hulls of what operations and outputs take of each argument: views that nobody uses do not
 * count. */
static uncopy_status_t make_facts(unit_t *unit, const int64_t *addresses)
{
    uint32_t num_bases = (uint32_t)unit->num_arguments * 2;
    facts_hull_t *hulls = arena_allocate(&unit->arena, num_bases, sizeof(*hulls));
    if (hulls == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    for (size_t i = 0; i < unit->num_ops; i++) {
        const unit_op_t *op = &unit->ops[i];
        for (size_t r = 0; r < op->num_reads; r++) {
            widen_by_view(unit, hulls, op->reads[r].view);
        }
        for (size_t w = 0; w < op->num_writes; w++) {
            widen_by_view(unit, hulls, op->writes[w]);
        }
        for (size_t r = 0; r < op->num_returns; r++) {
            widen_by_view(unit, hulls, op->returns[r]);
        }
    }
    for (size_t i = 0; i < unit->num_outputs; i++) {
        widen_by_view(unit, hulls, unit->outputs[i]);
    }
    return facts_builder_create(&unit->arena, num_bases, addresses, hulls, &unit->facts);
}

uncopy_status_t unit_init(unit_t *unit, const uncopy_allocator_t *allocator,
                          const ir_program_t *program, const ir_extent_t *extents,
                          const target_t *target, const uncopy_options_t *options,
                          const int64_t *addresses)
{
    *unit = (unit_t){.program = program,
                     .target = target,
                     .options = options,
                     .num_arguments = program->num_arguments};
    arena_init(&unit->arena, allocator);
    TRY(copy_views(unit, extents));
    TRY(copy_storages(unit));
    TRY(copy_ops(unit));
    TRY(make_facts(unit, addresses));
    return unit_index(unit);
}

void unit_release(unit_t *unit)
{
    arena_release(&unit->arena);
}

/* ---- index ---- */

typedef void (*touch_visitor_t)(unit_t *unit, uint32_t storage, uint32_t op);

static void count_touch(unit_t *unit, uint32_t storage, uint32_t op)
{
    (void)op;
    unit->storages[storage].num_touches++;
}

static void add_touch(unit_t *unit, uint32_t storage, uint32_t op)
{
    unit_storage_t *at = &unit->storages[storage];
    if (at->num_touches == 0 || at->touches[at->num_touches - 1] != op) {
        at->touches[at->num_touches++] = op;
    }
}

static void visit_touches(unit_t *unit, uint32_t number, touch_visitor_t visit)
{
    const unit_op_t *op = &unit->ops[number];
    const unit_op_t *source = op->opcode == OPCODE_FENCE ? &unit->ops[op->partner] : op;
    if (op->opcode == OPCODE_ORDER) {
        return;
    }
    for (size_t i = 0; i < source->num_reads; i++) {
        if (source->reads[i].view != UNCOPY_NONE) {
            visit(unit, unit->views[source->reads[i].view].storage, number);
        }
    }
    for (size_t i = 0; i < source->num_writes; i++) {
        visit(unit, unit->views[source->writes[i]].storage, number);
    }
    for (size_t i = 0; i < source->num_returns; i++) {
        visit(unit, unit->views[source->returns[i]].storage, number);
    }
}

static void compact_order(unit_t *unit)
{
    size_t kept = 0;
    for (size_t i = 0; i < unit->num_order; i++) {
        uint32_t number = unit->order[i];
        if (!unit->ops[number].is_removed) {
            unit->ops[number].position = (uint32_t)kept;
            unit->order[kept++] = number;
        }
    }
    unit->num_order = kept;
}

uncopy_status_t unit_index(unit_t *unit)
{
    compact_order(unit);
    for (size_t s = 0; s < unit->num_storages; s++) {
        unit->storages[s].num_touches = 0;
    }
    for (size_t i = 0; i < unit->num_order; i++) {
        visit_touches(unit, unit->order[i], count_touch);
    }
    for (size_t s = 0; s < unit->num_storages; s++) {
        unit_storage_t *storage = &unit->storages[s];
        storage->touches = arena_allocate(&unit->arena, storage->num_touches, sizeof(uint32_t));
        if (storage->touches == NULL) {
            return UNCOPY_ERROR_MEMORY;
        }
        storage->num_touches = 0;
    }
    unit->unknown = arena_allocate(&unit->arena, unit->num_order, sizeof(uint32_t));
    unit->collectives = arena_allocate(&unit->arena, unit->num_order, sizeof(uint32_t));
    if (unit->unknown == NULL || unit->collectives == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    unit->num_unknown = 0;
    unit->num_collectives = 0;
    for (size_t i = 0; i < unit->num_order; i++) {
        uint32_t number = unit->order[i];
        const unit_op_t *op = &unit->ops[number];
        visit_touches(unit, number, add_touch);
        if ((op->effects & UNCOPY_EFFECT_AUDITED) == 0) {
            unit->unknown[unit->num_unknown++] = number;
        }
        if (op_row(op->opcode)->class_ == OP_CLASS_COLLECTIVE) {
            unit->collectives[unit->num_collectives++] = number;
        }
    }
    return UNCOPY_OK;
}

uncopy_status_t unit_add_view(unit_t *unit, const unit_view_t *view, uint32_t *out_view)
{
    uint32_t number = (uint32_t)unit->num_views;
    ARENA_PUSH(&unit->arena, unit->views, unit->num_views, unit->views_capacity, *view);
    *out_view = number;
    return UNCOPY_OK;
}

uint32_t unit_base(const unit_t *unit, const unit_view_t *view)
{
    return view->storage + (view->is_from_storage ? (uint32_t)unit->num_arguments : 0);
}

bool unit_is_copy_to_itself(const unit_t *unit, const unit_op_t *op)
{
    if (op->opcode != OPCODE_COPY) {
        return false;
    }
    const unit_view_t *from = &unit->views[op->reads[0].view];
    const unit_view_t *to = &unit->views[op->writes[0]];
    return from->storage == to->storage && from->is_from_storage == to->is_from_storage &&
           span_relate(&from->span, &to->span) == SPAN_SAME;
}

/* ---- words ---- */

const char *unit_words(unit_t *unit, const char *format, ...)
{
    char words[768];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(words, sizeof(words), format, arguments);
    va_end(arguments);
    size_t kept = length < 0                       ? 0
                  : (size_t)length < sizeof(words) ? (size_t)length
                                                   : sizeof(words) - 1;
    return arena_copy_text(&unit->arena, words, kept);
}

const char *unit_op_words(unit_t *unit, const unit_op_t *op)
{
    const char *name =
        op->opcode == OPCODE_EXTERN && op->target != NULL ? op->target : op_row(op->opcode)->name;
    if (op->file == NULL) {
        return unit_words(unit, "%s #%u", name, (unsigned)(op - unit->ops));
    }
    const char *slash = strrchr(op->file, '/');
    return unit_words(unit, "%s (%s:%d)", name, slash == NULL ? op->file : slash + 1, op->line);
}

const char *unit_view_words(unit_t *unit, uint32_t view)
{
    const unit_view_t *at = &unit->views[view];
    const char *name = unit->views[unit->storages[at->storage].first_view].name;
    int64_t first = 0;
    int64_t end = 0;
    span_hull(&at->span, &first, &end);
    return unit_words(unit, "%s%s[%lld:%lld]", at->is_from_storage ? "storage of " : "", name,
                      (long long)first, (long long)end);
}
