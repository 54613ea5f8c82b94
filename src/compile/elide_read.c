/* Forwarding a read: the rule r of elide.c for one copy. */
#include "base/status.h"
#include "compile/elide_attempt.h"

/* ---- forwarding a read ---- */

/* The last reader may itself overwrite S, where it writes exactly what it reads and its row allows
 * that. It is no operation of unknown effects: such do not touch T (w0). */
static bool reader_is_in_place(attempt_t *attempt, const unit_op_t *op, const depend_hit_t *hit)
{
    unit_t *unit = attempt->unit;
    bool is_in_place = (op_row(op->opcode)->flags & OP_FLAG_IN_PLACE) != 0;
    for (size_t i = 0; is_in_place && i < op->num_reads; i++) {
        if (elide_is_of(unit, op->reads[i].view, attempt->moved)) {
            unit_view_t restated = elide_restated(attempt, op->reads[i].view);
            is_in_place = depend_relate(unit, &restated, &unit->views[hit->view]) == SPAN_SAME;
        }
    }
    return is_in_place;
}

static uncopy_status_t check_source_stays(attempt_t *attempt)
{
    unit_t *unit = attempt->unit;
    const unit_storage_t *storage = &unit->storages[attempt->moved];
    uint32_t last = unit->ops[storage->touches[storage->num_touches - 1]].position;
    depend_query_t query = {.view = attempt->place,
                            .writes_only = true,
                            .from = attempt->at + 1,
                            .to = last + 1,
                            .skip_storage = UNCOPY_NONE};
    depend_hit_t hit;
    TRY(depend_find(unit, &query, &hit));
    if (!HAS_R || hit.op == UNCOPY_NONE) {
        return UNCOPY_OK;
    }
    const unit_op_t *op = &unit->ops[hit.op];
    if (op->position < last) {
        return elide_refuse(attempt, REASON_SOURCE_OVERWRITTEN,
                            unit_words(unit, "%s overwrites %s before %s reads the copy",
                                       elide_op_words(attempt, hit.op),
                                       elide_view_words(attempt, attempt->source),
                                       elide_op_words(attempt, unit->order[last])));
    }
    if (!reader_is_in_place(attempt, op, &hit)) {
        return elide_refuse(attempt, REASON_READER_OVERLAP,
                            unit_words(unit, "%s reads the copy and writes bytes of %s",
                                       elide_op_words(attempt, hit.op),
                                       elide_view_words(attempt, attempt->source)));
    }
    return UNCOPY_OK;
}

static uncopy_status_t check_readers(attempt_t *attempt)
{
    unit_t *unit = attempt->unit;
    const unit_storage_t *storage = &unit->storages[attempt->moved];
    for (size_t i = 0; i < storage->num_touches && attempt->is_legal; i++) {
        uint32_t number = storage->touches[i];
        const unit_op_t *op = &unit->ops[number];
        if (number == attempt->copy) {
            continue;
        }
        if (HAS_R &&
            (op->position < attempt->at || elide_writes_storage(unit, op, attempt->moved))) {
            return elide_refuse(attempt, REASON_COPY_WRITTEN,
                                unit_words(unit, "%s %s the copy %s", unit_op_words(unit, op),
                                           op->position < attempt->at ? "touches" : "writes",
                                           elide_view_words(attempt, attempt->target)));
        }
        TRY(elide_check_views(attempt, op, REASON_READER_LAYOUT));
    }
    return UNCOPY_OK;
}

uncopy_status_t elide_try_read(attempt_t *attempt)
{
    unit_t *unit = attempt->unit;
    attempt->moved = unit->views[attempt->target].storage;
    attempt->anchor = attempt->target;
    attempt->place = attempt->source;
    attempt->is_legal = true;
    if (HAS_W0 && elide_is_seen_outside(unit, attempt->moved)) {
        return elide_refuse(attempt, REASON_RESULT_KEPT,
                            unit_words(unit, "%s is a result of its own",
                                       elide_view_words(attempt, attempt->target)));
    }
    TRY(check_readers(attempt));
    return attempt->is_legal ? check_source_stays(attempt) : UNCOPY_OK;
}
