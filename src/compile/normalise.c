/* Normalise: drops what has no effect that anyone can see.
 *
 * Requires     an indexed unit
 *
 * Establishes  every operation that is left writes bytes that are read later or outlive the call,
 *              or is kept for another reason (random numbers, may raise, collective, fence, order
 *              mark, unknown effects)
 *
 * Breaks       nothing
 *
 * One walk from the last operation to the first; a storage is wanted once an operation that stays
 * reads it. Cost: linear in the effects. */
#include "base/status.h"
#include "compile/passes.h"

static bool is_kept(const unit_op_t *op)
{
    const op_row_t *row = op_row(op->opcode);
    unsigned keeping = UNCOPY_EFFECT_RANDOM | UNCOPY_EFFECT_RAISES;
    return (row->flags & OP_FLAG_KEPT) != 0 || row->class_ == OP_CLASS_COLLECTIVE ||
           (op->effects & keeping) != 0 || (op->effects & UNCOPY_EFFECT_AUDITED) == 0;
}

static bool writes_wanted(const unit_t *unit, const unit_op_t *op, const bool *is_wanted)
{
    for (size_t i = 0; i < op->num_writes; i++) {
        uint32_t storage = unit->views[op->writes[i]].storage;
        if (is_wanted[storage] || unit->storages[storage].kind != IR_STORAGE_SCRATCH) {
            return true;
        }
    }
    for (size_t i = 0; i < op->num_returns; i++) {
        uint32_t storage = unit->views[op->returns[i]].storage;
        if (is_wanted[storage] || unit->storages[storage].is_output) {
            return true;
        }
    }
    return false;
}

static void want_reads(const unit_t *unit, const unit_op_t *op, bool *is_wanted)
{
    for (size_t i = 0; i < op->num_reads; i++) {
        if (op->reads[i].view != UNCOPY_NONE) {
            is_wanted[unit->views[op->reads[i].view].storage] = true;
        }
    }
}

uncopy_status_t normalise_run(unit_t *unit)
{
    bool *is_wanted = arena_allocate(&unit->arena, unit->num_storages, sizeof(*is_wanted));
    if (is_wanted == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    for (size_t i = unit->num_order; i-- > 0;) {
        unit_op_t *op = &unit->ops[unit->order[i]];
        if ((!is_kept(op) && !writes_wanted(unit, op, is_wanted)) ||
            unit_is_copy_to_itself(unit, op)) {
            op->is_removed = true;
        } else {
            want_reads(unit, op, is_wanted);
        }
    }
    return unit_index(unit);
}
