/* Views of the copied storage in other places: restating them, and which operations take the result
 * (w1, w2). */
#include <assert.h>

#include "base/status.h"
#include "compile/elide_attempt.h"

uncopy_status_t elide_refuse(attempt_t *attempt, reason_t reason, const char *words)
{
    attempt->is_legal = false;
    attempt->reason = reason;
    attempt->words = words;
    return words == NULL ? UNCOPY_ERROR_MEMORY : UNCOPY_OK;
}

const char *elide_op_words(attempt_t *attempt, uint32_t op)
{
    return unit_op_words(attempt->unit, &attempt->unit->ops[op]);
}

const char *elide_view_words(attempt_t *attempt, uint32_t view)
{
    return unit_view_words(attempt->unit, view);
}

bool elide_restate(const attempt_t *attempt, uint32_t view, unit_view_t *out_view)
{
    const unit_t *unit = attempt->unit;
    const unit_view_t *from = &unit->views[view];
    const unit_view_t *place = &unit->views[attempt->place];
    *out_view = (unit_view_t){.storage = place->storage,
                              .is_from_storage = place->is_from_storage,
                              .dtype = from->dtype,
                              .name = place->name};
    return span_restate(&from->span, &unit->views[attempt->anchor].span, &place->span,
                        &out_view->span);
}

unit_view_t elide_restated(const attempt_t *attempt, uint32_t view)
{
    unit_view_t restated;
    bool has_equal = elide_restate(attempt, view, &restated);
    assert(has_equal);
    (void)has_equal;
    return restated;
}

static uncopy_status_t refuse_layout(attempt_t *attempt, const unit_op_t *op, uint32_t view,
                                     reason_t reason)
{
    unit_t *unit = attempt->unit;
    span_relation_t relation =
        span_relate(&unit->views[attempt->anchor].span, &unit->views[view].span);
    bool is_covered = relation == SPAN_SAME || relation == SPAN_CONTAINS;
    if (!is_covered) {
        return elide_refuse(attempt, REASON_NOT_COVERED,
                            unit_words(unit, "%s touches %s, of which the copy moves only %s",
                                       unit_op_words(unit, op), unit_view_words(unit, view),
                                       unit_view_words(unit, attempt->anchor)));
    }
    return elide_refuse(attempt, reason,
                        unit_words(unit,
                                   "%s works on %s, and would have to work on %s with its strides",
                                   unit_op_words(unit, op), unit_view_words(unit, view),
                                   unit_view_words(unit, attempt->place)));
}

/* ---- w2: which operations take which strides ---- */

static bool has_native_kernel(const unit_t *unit, const unit_op_t *op)
{
    if (unit->options->kernels == UNCOPY_KERNELS_EXTERN && op->host_id >= 0) {
        return false;
    }
    uncopy_dtype_t result = unit->views[op->writes[0]].dtype;
    uncopy_dtype_t read = result;
    for (size_t i = 0; i < op->num_reads; i++) {
        read = op->reads[i].view != UNCOPY_NONE ? unit->views[op->reads[i].view].dtype : read;
    }
    return target_takes(unit->target, op->opcode, read, result);
}

/* Whether the operation takes view t as an operand it reads, with the strides of r, and the same
 * bits. Pointwise operations and moves do: element by element, ours and the host's alike. Fences
 * and order marks read nothing. */
static bool takes_read(const unit_op_t *op, const span_t *t, const span_t *r)
{
    op_class_t class_ = op_row(op->opcode)->class_;
    if (class_ == OP_CLASS_COLLECTIVE) {
        return span_is_contiguous(r);
    }
    bool needs_layout = class_ == OP_CLASS_MATMUL ||
                        (class_ == OP_CLASS_EXTERN && (op->effects & UNCOPY_EFFECT_LAYOUT) != 0);
    return !needs_layout || span_has_same_layout(t, r);
}

/* Likewise for a view it writes. *out_reason says what is missing. */
static bool takes_write(const unit_t *unit, const unit_op_t *op, bool is_return, const span_t *t,
                        const span_t *r, reason_t *out_reason)
{
    op_class_t class_ = op_row(op->opcode)->class_;
    *out_reason = REASON_LAYOUT;
    if (class_ == OP_CLASS_COLLECTIVE) {
        return span_is_contiguous(r);
    }
    if (class_ == OP_CLASS_FENCE || class_ == OP_CLASS_MOVE) {
        return true;
    }
    bool needs_out = class_ == OP_CLASS_EXTERN ? is_return : !has_native_kernel(unit, op);
    if (needs_out && (op->effects & UNCOPY_EFFECT_OUT) == 0) { /* with it, one result: v13 */
        *out_reason = REASON_NO_OUT_FORM;
        return false;
    }
    if (class_ == OP_CLASS_POINTWISE && !needs_out) {
        return true;
    }
    return (needs_out && (op->effects & UNCOPY_EFFECT_OUT_LAYOUT) != 0) ||
           span_has_same_layout(t, r);
}

static uncopy_status_t check_read(attempt_t *attempt, const unit_op_t *op, uint32_t view,
                                  reason_t reason)
{
    unit_view_t restated;
    if (!elide_restate(attempt, view, &restated)) {
        return refuse_layout(attempt, op, view, reason);
    }
    if (HAS_W2 && !takes_read(op, &attempt->unit->views[view].span, &restated.span)) {
        return refuse_layout(attempt, op, view, reason);
    }
    return UNCOPY_OK;
}

static uncopy_status_t check_write(attempt_t *attempt, const unit_op_t *op, uint32_t view,
                                   bool is_return)
{
    unit_view_t restated;
    if (!elide_restate(attempt, view, &restated)) {
        return refuse_layout(attempt, op, view, REASON_LAYOUT);
    }
    reason_t reason = REASON_NONE;
    if (HAS_W2 && !takes_write(attempt->unit, op, is_return, &attempt->unit->views[view].span,
                               &restated.span, &reason)) {
        if (reason == REASON_NO_OUT_FORM) {
            return elide_refuse(attempt, reason,
                                unit_words(attempt->unit,
                                           "%s makes its result itself and cannot write %s",
                                           unit_op_words(attempt->unit, op),
                                           unit_view_words(attempt->unit, attempt->place)));
        }
        return refuse_layout(attempt, op, view, reason);
    }
    return UNCOPY_OK;
}

bool elide_is_of(const unit_t *unit, uint32_t view, uint32_t storage)
{
    return view != UNCOPY_NONE && unit->views[view].storage == storage;
}

uncopy_status_t elide_check_views(attempt_t *attempt, const unit_op_t *op, reason_t read_reason)
{
    const unit_t *unit = attempt->unit;
    for (size_t i = 0; i < op->num_reads && attempt->is_legal; i++) {
        if (elide_is_of(unit, op->reads[i].view, attempt->moved)) {
            TRY(check_read(attempt, op, op->reads[i].view, read_reason));
        }
    }
    for (size_t i = 0; i < op->num_writes && attempt->is_legal; i++) {
        if (elide_is_of(unit, op->writes[i], attempt->moved)) {
            TRY(check_write(attempt, op, op->writes[i], false));
        }
    }
    for (size_t i = 0; i < op->num_returns && attempt->is_legal; i++) {
        if (elide_is_of(unit, op->returns[i], attempt->moved)) {
            TRY(check_write(attempt, op, op->returns[i], true));
        }
    }
    return UNCOPY_OK;
}

bool elide_is_seen_outside(const unit_t *unit, uint32_t storage)
{
    const unit_storage_t *at = &unit->storages[storage];
    return at->kind != IR_STORAGE_SCRATCH || at->is_exposed;
}

bool elide_writes_storage(const unit_t *unit, const unit_op_t *op, uint32_t storage)
{
    if (op->opcode == OPCODE_FENCE) {
        return false;
    }
    for (size_t i = 0; i < op->num_writes; i++) {
        if (unit->views[op->writes[i]].storage == storage) {
            return true;
        }
    }
    for (size_t i = 0; i < op->num_returns; i++) {
        if (unit->views[op->returns[i]].storage == storage && !op->return_is_alias[i]) {
            return true;
        }
    }
    return false;
}
