/* Conflicts between operations.
 *
 * depend_find walks only the touches of storages that may share bytes with the view: its own, and
 * for arguments every other argument's (the facts settle pairs of apart hulls in one comparison).
 * Cost: linear in the touches within the range. Invariants: u2, u3 of unit.h. */
#include "compile/depend.h"

#include "base/status.h"

static void push(depend_effects_t *list, uint32_t view, bool is_write)
{
    if (view != UNCOPY_NONE) {
        list->effects[list->count++] = (depend_effect_t){view, is_write};
    }
}

uncopy_status_t depend_effects(unit_t *unit, const unit_op_t *op, depend_effects_t *out_effects)
{
    const unit_op_t *source = op->opcode == OPCODE_FENCE ? &unit->ops[op->partner] : op;
    size_t most = source->num_reads + source->num_writes + source->num_returns;
    out_effects->count = 0;
    out_effects->is_unknown = (op->effects & UNCOPY_EFFECT_AUDITED) == 0;
    out_effects->effects = out_effects->inline_effects;
    if (most > DEPEND_MAX_INLINE) {
        out_effects->effects = arena_allocate(&unit->arena, most, sizeof(depend_effect_t));
        if (out_effects->effects == NULL) {
            return UNCOPY_ERROR_MEMORY;
        }
    }
    if (op->opcode == OPCODE_ORDER) {
        return UNCOPY_OK;
    }
    for (size_t i = 0; i < source->num_reads; i++) {
        push(out_effects, source->reads[i].view, false);
    }
    for (size_t i = 0; i < source->num_writes; i++) {
        push(out_effects, source->writes[i], true);
    }
    for (size_t i = 0; i < source->num_returns; i++) {
        if (!source->return_is_alias[i]) {
            push(out_effects, source->returns[i], true);
        }
    }
    return UNCOPY_OK;
}

static bool both_arguments(const unit_t *unit, const unit_view_t *a, const unit_view_t *b)
{
    return unit->storages[a->storage].kind == IR_STORAGE_ARGUMENT &&
           unit->storages[b->storage].kind == IR_STORAGE_ARGUMENT;
}

span_relation_t depend_relate(unit_t *unit, const unit_view_t *a, const unit_view_t *b)
{
    if (both_arguments(unit, a, b)) {
        return facts_ask(unit->facts, unit_base(unit, a), &a->span, unit_base(unit, b), &b->span);
    }
    return a->storage == b->storage ? span_relate(&a->span, &b->span) : SPAN_DISJOINT;
}

bool depend_overlaps(unit_t *unit, uint32_t a, uint32_t b)
{
    const unit_view_t *x = &unit->views[a];
    const unit_view_t *y = &unit->views[b];
    if (both_arguments(unit, x, y)) {
        return facts_ask_overlap(unit->facts, unit_base(unit, x), &x->span, unit_base(unit, y),
                                 &y->span);
    }
    return x->storage == y->storage && span_overlaps(&x->span, &y->span);
}

/* Whether an operation of unknown effects may conflict with what the other, a known one, does. */
static bool touches_exposed(const unit_t *unit, const depend_effects_t *effects)
{
    for (size_t i = 0; i < effects->count; i++) {
        if (unit->storages[unit->views[effects->effects[i].view].storage].is_exposed) {
            return true;
        }
    }
    return false;
}

/* An order mark keeps later readers of its first view after earlier writers of its second. */
static bool mark_conflicts(unit_t *unit, const unit_op_t *mark, const depend_effects_t *other,
                           bool other_is_earlier)
{
    uint32_t view = mark->reads[other_is_earlier ? 1 : 0].view;
    if (other->is_unknown) {
        return true;
    }
    for (size_t i = 0; i < other->count; i++) {
        if (other->effects[i].is_write == other_is_earlier &&
            depend_overlaps(unit, view, other->effects[i].view)) {
            return true;
        }
    }
    return false;
}

static bool is_ordered(const unit_op_t *op)
{
    return (op->effects & UNCOPY_EFFECT_RANDOM) != 0 || (op->effects & UNCOPY_EFFECT_AUDITED) == 0;
}

bool depend_may_raise(const unit_op_t *op)
{
    return (op->effects & UNCOPY_EFFECT_RAISES) != 0 || (op->effects & UNCOPY_EFFECT_AUDITED) == 0;
}

/* Whether op writes bytes that the caller has. */
static bool writes_argument(const unit_t *unit, const depend_effects_t *effects)
{
    for (size_t i = 0; i < effects->count; i++) {
        const depend_effect_t *effect = &effects->effects[i];
        if (effect->is_write &&
            unit->storages[unit->views[effect->view].storage].kind == IR_STORAGE_ARGUMENT) {
            return true;
        }
    }
    return false;
}

static bool is_collective(const unit_op_t *op)
{
    return op_row(op->opcode)->class_ == OP_CLASS_COLLECTIVE;
}

uncopy_status_t depend_conflicts(unit_t *unit, const unit_op_t *a, const unit_op_t *b,
                                 bool *out_conflicts, uint32_t *out_a, uint32_t *out_b)
{
    depend_effects_t x;
    depend_effects_t y;
    TRY(depend_effects(unit, a, &x));
    TRY(depend_effects(unit, b, &y));
    *out_a = *out_b = UNCOPY_NONE;
    *out_conflicts = true;
    if ((is_ordered(a) && is_ordered(b)) || (is_collective(a) && is_collective(b)) ||
        a->partner == (uint32_t)(b - unit->ops) || (x.is_unknown && touches_exposed(unit, &y)) ||
        (y.is_unknown && touches_exposed(unit, &x)) ||
        (depend_may_raise(a) && depend_may_raise(b)) ||
        (depend_may_raise(a) && writes_argument(unit, &y)) ||
        (depend_may_raise(b) && writes_argument(unit, &x))) {
        return UNCOPY_OK;
    }
    bool a_is_mark = a->opcode == OPCODE_ORDER;
    bool b_is_mark = b->opcode == OPCODE_ORDER;
    if (a_is_mark || b_is_mark) {
        bool a_is_earlier = a->position < b->position;
        *out_conflicts =
            (a_is_mark && b_is_mark) || (a_is_mark ? mark_conflicts(unit, a, &y, !a_is_earlier)
                                                   : mark_conflicts(unit, b, &x, a_is_earlier));
        return UNCOPY_OK;
    }
    for (size_t i = 0; i < x.count; i++) {
        for (size_t j = 0; j < y.count; j++) {
            if ((x.effects[i].is_write || y.effects[j].is_write) &&
                depend_overlaps(unit, x.effects[i].view, y.effects[j].view)) {
                *out_a = x.effects[i].view;
                *out_b = y.effects[j].view;
                return UNCOPY_OK;
            }
        }
    }
    *out_conflicts = false;
    return UNCOPY_OK;
}

/* ---- finding what touches bytes ---- */

static bool touches_storage(const unit_t *unit, const depend_effects_t *effects, uint32_t storage)
{
    for (size_t i = 0; i < effects->count; i++) {
        if (unit->views[effects->effects[i].view].storage == storage) {
            return true;
        }
    }
    return false;
}

/* Tests one operation against the query and keeps it if it comes before the best hit so far. */
static uncopy_status_t test_op(unit_t *unit, const depend_query_t *query, uint32_t number,
                               depend_hit_t *best)
{
    const unit_op_t *op = &unit->ops[number];
    if (best->op != UNCOPY_NONE && unit->ops[best->op].position <= op->position) {
        return UNCOPY_OK;
    }
    depend_effects_t effects;
    TRY(depend_effects(unit, op, &effects));
    if (query->skip_storage != UNCOPY_NONE &&
        touches_storage(unit, &effects, query->skip_storage)) {
        return UNCOPY_OK;
    }
    for (size_t i = 0; i < effects.count; i++) {
        if ((effects.effects[i].is_write || !query->writes_only) &&
            depend_overlaps(unit, query->view, effects.effects[i].view)) {
            *best = (depend_hit_t){number, effects.effects[i].view, effects.effects[i].is_write};
            return UNCOPY_OK;
        }
    }
    return UNCOPY_OK;
}

static size_t first_at_or_after(const unit_t *unit, const uint32_t *list, size_t count,
                                uint32_t position)
{
    size_t low = 0;
    size_t high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (unit->ops[list[middle]].position < position) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static uncopy_status_t search_storage(unit_t *unit, const depend_query_t *query, uint32_t storage,
                                      depend_hit_t *best)
{
    const unit_storage_t *at = &unit->storages[storage];
    size_t i = first_at_or_after(unit, at->touches, at->num_touches, query->from);
    for (; i < at->num_touches && unit->ops[at->touches[i]].position < query->to; i++) {
        TRY(test_op(unit, query, at->touches[i], best));
    }
    return UNCOPY_OK;
}

/* Collectives that start before the range and are fenced after it: in flight throughout. */
static uncopy_status_t search_in_flight(unit_t *unit, const depend_query_t *query,
                                        depend_hit_t *best)
{
    for (size_t i = 0; i < unit->num_collectives; i++) {
        const unit_op_t *op = &unit->ops[unit->collectives[i]];
        if (op->position >= query->from) {
            break;
        }
        if (unit->ops[op->partner].position >= query->to) {
            TRY(test_op(unit, query, unit->collectives[i], best));
        }
    }
    return UNCOPY_OK;
}

static void search_unknown(unit_t *unit, const depend_query_t *query, depend_hit_t *best)
{
    if (!unit->storages[unit->views[query->view].storage].is_exposed) {
        return;
    }
    size_t i = first_at_or_after(unit, unit->unknown, unit->num_unknown, query->from);
    if (i == unit->num_unknown) {
        return;
    }
    uint32_t position = unit->ops[unit->unknown[i]].position;
    bool is_first = best->op == UNCOPY_NONE || unit->ops[best->op].position > position;
    if (position < query->to && is_first) {
        *best = (depend_hit_t){unit->unknown[i], UNCOPY_NONE, true};
    }
}

uncopy_status_t depend_find(unit_t *unit, const depend_query_t *query, depend_hit_t *out_hit)
{
    depend_hit_t best = {UNCOPY_NONE, UNCOPY_NONE, false};
    uint32_t storage = unit->views[query->view].storage;
    if (query->from < query->to) {
        TRY(search_storage(unit, query, storage, &best));
        if (unit->storages[storage].kind == IR_STORAGE_ARGUMENT) {
            for (uint32_t s = 0; s < unit->num_arguments; s++) {
                if (s != storage) {
                    TRY(search_storage(unit, query, s, &best));
                }
            }
        }
        TRY(search_in_flight(unit, query, &best));
        search_unknown(unit, query, &best);
    }
    *out_hit = best;
    return UNCOPY_OK;
}
