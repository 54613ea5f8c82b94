/* Operations that write bytes which they also read, and not just as their row allows: at the same
 * indices. The passes introduce no such overlap; where the program has it, the host's kernel runs
 * the operation, and gives or refuses what the host gives or refuses. */
#include "base/status.h"
#include "compile/depend.h"
#include "compile/lower.h"

/* The same bytes at each index, and so elements of one size. */
static bool is_in_place(const unit_op_t *op, span_relation_t relation)
{
    return relation == SPAN_SAME && (op_row(op->opcode)->flags & OP_FLAG_IN_PLACE) != 0;
}

static bool has_own_overlap(unit_t *unit, const unit_op_t *op)
{
    op_class_t class_ = op_row(op->opcode)->class_;
    if (class_ != OP_CLASS_POINTWISE && class_ != OP_CLASS_MATMUL && class_ != OP_CLASS_MOVE) {
        return false;
    }
    for (size_t i = 0; i < op->num_reads; i++) {
        uint32_t read = op->reads[i].view;
        if (read == UNCOPY_NONE) {
            continue;
        }
        span_relation_t relation =
            depend_relate(unit, &unit->views[op->writes[0]], &unit->views[read]);
        if (relation != SPAN_DISJOINT && !is_in_place(op, relation)) {
            return true;
        }
    }
    return false;
}

uncopy_status_t lower_find_overlaps(lowering_t *lowering)
{
    unit_t *unit = lowering->unit;
    for (size_t i = 0; i < unit->num_order; i++) {
        const unit_op_t *op = &unit->ops[unit->order[i]];
        bool is_overlapping = has_own_overlap(unit, op);
        lowering->is_overlapping[unit->order[i]] = is_overlapping;
        if (is_overlapping && op_row(op->opcode)->class_ != OP_CLASS_MOVE && op->host_id < 0) {
            return status_fail(
                UNCOPY_ERROR_UNSUPPORTED,
                "%s writes bytes that it reads at other indices, and no host runs it",
                unit_op_words(unit, op));
        }
    }
    return UNCOPY_OK;
}
