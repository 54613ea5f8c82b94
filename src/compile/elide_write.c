/* Forwarding a write: the rules w0 to w6 of elide.c for one copy. */
#include "base/status.h"
#include "compile/elide_attempt.h"

/* ---- w3: operands of one operation ---- */

/* A gather may read its own slot of the destination, which w2 has found contiguous: the bytes it
 * would write there are those it reads. */
static bool is_own_slot(unit_t *unit, const unit_op_t *op, const unit_view_t *written,
                        const unit_view_t *other)
{
    const span_t *source = &other->span;
    int64_t bytes = span_count(source) * source->element_bytes;
    unit_view_t slot = *written;
    slot.span.rank = source->rank;
    slot.span.start += bytes * unit->program->groups[op->group].rank;
    for (int32_t d = 0; d < source->rank; d++) {
        slot.span.sizes[d] = source->sizes[d];
        slot.span.strides[d] = source->strides[d];
    }
    return span_is_contiguous(source) && depend_relate(unit, &slot, other) == SPAN_SAME;
}

/* Whether operand `other`, read by the first operation on T, may lie on the bytes of D: exactly
 * those it writes. */
static bool may_be_in_place(attempt_t *attempt, const unit_op_t *op, uint32_t other)
{
    unit_t *unit = attempt->unit;
    const unit_view_t *read = &unit->views[other];
    bool is_gather = op->opcode == OPCODE_ALL_GATHER;
    bool is_in_place = (op_row(op->opcode)->flags & OP_FLAG_IN_PLACE) != 0;
    /* Rows have one result and return nothing (v3). */
    if (op->position != attempt->first || !(is_gather || is_in_place) ||
        !elide_is_of(unit, op->writes[0], attempt->moved)) {
        return false;
    }
    unit_view_t restated = elide_restated(attempt, op->writes[0]);
    return is_gather ? is_own_slot(unit, op, &restated, read)
                     : depend_relate(unit, &restated, read) == SPAN_SAME;
}

static uncopy_status_t check_other(attempt_t *attempt, const unit_op_t *op, uint32_t other,
                                   bool is_read)
{
    unit_t *unit = attempt->unit;
    if (elide_is_of(unit, other, attempt->moved) || !depend_overlaps(unit, attempt->place, other) ||
        (is_read && may_be_in_place(attempt, op, other))) {
        return UNCOPY_OK;
    }
    return elide_refuse(attempt, REASON_OPERAND_OVERLAP,
                        unit_words(unit, "%s %s %s, which overlaps the destination %s",
                                   unit_op_words(unit, op), is_read ? "reads" : "writes",
                                   unit_view_words(unit, other),
                                   unit_view_words(unit, attempt->place)));
}

static uncopy_status_t check_operands(attempt_t *attempt, const unit_op_t *op)
{
    depend_effects_t effects;
    TRY(depend_effects(attempt->unit, op, &effects));
    for (size_t i = 0; HAS_W3 && i < effects.count && attempt->is_legal; i++) {
        TRY(check_other(attempt, op, effects.effects[i].view, !effects.effects[i].is_write));
    }
    return UNCOPY_OK;
}

/* ---- forwarding a write ---- */

/* w0 and the part of w1 that needs no other operation. D is injective: v8 demands it of what the
 * program writes, and what is restated keeps it. */
static uncopy_status_t check_ends(attempt_t *attempt)
{
    unit_t *unit = attempt->unit;
    if (HAS_W0 && elide_is_seen_outside(unit, attempt->moved)) {
        return elide_refuse(attempt, REASON_RESULT_KEPT,
                            unit_words(unit, "%s is seen outside this function, and so is %s",
                                       elide_view_words(attempt, attempt->source),
                                       elide_view_words(attempt, attempt->target)));
    }
    if (HAS_W1 && !span_is_injective(&unit->views[attempt->source].span)) {
        return elide_refuse(attempt, REASON_NOT_INJECTIVE,
                            unit_words(unit, "%s lists a byte more than once",
                                       elide_view_words(attempt, attempt->source)));
    }
    return UNCOPY_OK;
}

/* w6 for one operation of the stretch. */
static uncopy_status_t check_raises(attempt_t *attempt)
{
    unit_t *unit = attempt->unit;
    uint32_t place = unit->views[attempt->place].storage;
    if (!HAS_W6 || unit->storages[place].kind != IR_STORAGE_ARGUMENT) {
        return UNCOPY_OK;
    }
    for (uint32_t p = attempt->first; p < attempt->at; p++) {
        const unit_op_t *op = &unit->ops[unit->order[p]];
        if (!op->is_removed && depend_may_raise(op)) {
            return elide_refuse(
                attempt, REASON_MAY_RAISE,
                unit_words(unit, "%s may raise before the copy, when %s must still be as it was",
                           unit_op_words(unit, op), unit_view_words(unit, attempt->place)));
        }
    }
    return UNCOPY_OK;
}

/* w4. */
static uncopy_status_t check_between(attempt_t *attempt)
{
    unit_t *unit = attempt->unit;
    depend_query_t query = {.view = attempt->place,
                            .from = attempt->first,
                            .to = attempt->at,
                            .skip_storage = attempt->moved};
    depend_hit_t hit;
    TRY(depend_find(unit, &query, &hit));
    if (!HAS_W4 || hit.op == UNCOPY_NONE) {
        return UNCOPY_OK;
    }
    attempt->blocker = hit.is_write ? UNCOPY_NONE : hit.op;
    attempt->hoist_to = attempt->first;
    return elide_refuse(
        attempt, REASON_TOUCHED_BETWEEN,
        unit_words(unit, "%s %s %s between %s, which first writes the copied bytes, and the copy",
                   elide_op_words(attempt, hit.op), hit.is_write ? "writes" : "reads",
                   hit.view == UNCOPY_NONE ? "what nobody knows of"
                                           : elide_view_words(attempt, hit.view),
                   elide_op_words(attempt, unit->order[attempt->first])));
}

/* w5. */
static uncopy_status_t check_after(attempt_t *attempt)
{
    unit_t *unit = attempt->unit;
    depend_query_t query = {.view = attempt->place,
                            .writes_only = true,
                            .from = attempt->at + 1,
                            .to = (uint32_t)unit->num_order,
                            .skip_storage = UNCOPY_NONE};
    depend_hit_t hit;
    TRY(depend_find(unit, &query, &hit));
    uint32_t overwritten = hit.op == UNCOPY_NONE ? UINT32_MAX : unit->ops[hit.op].position;
    const unit_storage_t *storage = &unit->storages[attempt->moved];
    for (size_t i = 0; HAS_W5 && i < storage->num_touches; i++) {
        const unit_op_t *op = &unit->ops[storage->touches[i]];
        if (op->position <= attempt->at) {
            continue;
        }
        if (elide_writes_storage(unit, op, attempt->moved)) {
            return elide_refuse(attempt, REASON_WRITTEN_AFTER,
                                unit_words(unit, "%s writes %s after the copy",
                                           unit_op_words(unit, op),
                                           elide_view_words(attempt, attempt->source)));
        }
        if (op->position >= overwritten) {
            attempt->blocker = storage->touches[i];
            attempt->hoist_to = attempt->at + 1;
            return elide_refuse(attempt, REASON_READ_AFTER_OVERWRITE,
                                unit_words(unit, "%s reads %s after %s has overwritten %s",
                                           unit_op_words(unit, op),
                                           elide_view_words(attempt, attempt->source),
                                           elide_op_words(attempt, hit.op),
                                           elide_view_words(attempt, attempt->place)));
        }
    }
    return UNCOPY_OK;
}

static uncopy_status_t check_touches(attempt_t *attempt)
{
    unit_t *unit = attempt->unit;
    const unit_storage_t *storage = &unit->storages[attempt->moved];
    for (size_t i = 0; i < storage->num_touches && attempt->is_legal; i++) {
        uint32_t number = storage->touches[i];
        const unit_op_t *op = &unit->ops[number];
        if (number == attempt->copy) {
            continue;
        }
        TRY(elide_check_views(attempt, op, REASON_LAYOUT));
        if (attempt->is_legal && op->position < attempt->at && op->opcode != OPCODE_FENCE) {
            TRY(check_operands(attempt, op));
        }
    }
    return UNCOPY_OK;
}

uncopy_status_t elide_try_write(attempt_t *attempt)
{
    unit_t *unit = attempt->unit;
    attempt->moved = unit->views[attempt->source].storage;
    attempt->anchor = attempt->source;
    attempt->place = attempt->target;
    attempt->first = unit->ops[unit->storages[attempt->moved].touches[0]].position;
    attempt->is_legal = true;
    uncopy_status_t (*const checks[])(attempt_t *) = {check_ends, check_touches, check_after,
                                                      check_between, check_raises};
    for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]) && attempt->is_legal; i++) {
        TRY(checks[i](attempt));
    }
    return UNCOPY_OK;
}
