/* The verifier's rules about single operations, v3 to v11 and v13, and v1 for their operands. They
 * are stated at the top of verify.c. */
#include <math.h>

#include "base/checked.h"
#include "base/status.h"
#include "ir/verify_parts.h"

/* ---- operands of one operation ---- */

/* v1 for an operation. */
static uncopy_status_t check_operands_exist(const verifier_t *verifier,
                                            const ir_operation_t *operation)
{
    size_t num_views = verifier->program->num_views;
    bool is_fine =
        operation->group == UNCOPY_NONE || operation->group < verifier->program->num_groups;
    for (size_t i = 0; i < operation->num_reads; i++) {
        uncopy_view_t view = operation->reads[i].view;
        is_fine = is_fine && (view == UNCOPY_NONE || view < num_views);
    }
    for (size_t i = 0; i < operation->num_writes; i++) {
        is_fine = is_fine && operation->writes[i] < num_views;
    }
    for (size_t i = 0; i < operation->num_returns; i++) {
        is_fine = is_fine && operation->returns[i] < num_views;
    }
    return is_fine ? UNCOPY_OK
                   : verify_fail(verifier, "v1", "an operand or the group does not exist");
}

/* v3 */
static uncopy_status_t check_counts(const verifier_t *verifier, const ir_operation_t *operation)
{
    const op_row_t *row = op_row(operation->opcode);
    if (row->class_ == OP_CLASS_EXTERN) {
        return UNCOPY_OK;
    }
    size_t results = row->class_ == OP_CLASS_ORDER ? 0 : 1;
    if (operation->num_reads != (size_t)row->num_reads || operation->num_writes != results ||
        operation->num_returns != 0) {
        return verify_fail(verifier, "v3",
                           "reads %zu, writes %zu and returns %zu; expected %d, %zu and 0",
                           operation->num_reads, operation->num_writes, operation->num_returns,
                           row->num_reads, results);
    }
    return UNCOPY_OK;
}

/* v4 */
static uncopy_status_t check_numbers(const verifier_t *verifier, const ir_operation_t *operation)
{
    op_class_t class_ = op_row(operation->opcode)->class_;
    bool is_fill = operation->opcode == OPCODE_FILL;
    for (size_t i = 0; i < operation->num_reads; i++) {
        bool is_number = operation->reads[i].view == UNCOPY_NONE;
        bool is_free =
            class_ == OP_CLASS_EXTERN ||
            (class_ == OP_CLASS_POINTWISE && !(operation->opcode == OPCODE_WHERE && i == 0));
        if (!is_free && is_number != is_fill) {
            return verify_fail(verifier, "v4", "operand %zu is %s", i,
                               is_number ? "a number, expected a view"
                                         : "a view, expected a number");
        }
    }
    return UNCOPY_OK;
}

/* v5 */
static uncopy_status_t check_dtypes(const verifier_t *verifier, const ir_operation_t *operation)
{
    uncopy_dtype_t dtypes[OP_MAX_READS];
    size_t count = 0;
    char shown[VERIFY_SHOWN_BYTES];
    if (op_row(operation->opcode)->rule == OP_RULE_NONE) {
        return UNCOPY_OK;
    }
    for (size_t i = 0; i < operation->num_reads; i++) {
        if (operation->reads[i].view != UNCOPY_NONE) {
            dtypes[count++] = verifier->program->views[operation->reads[i].view].dtype;
        }
    }
    uncopy_view_t result = operation->writes[0];
    if (!op_accepts(operation->opcode, dtypes, count, verifier->program->views[result].dtype)) {
        return verify_fail(verifier, "v5", "the row does not take %s%s%s into %s",
                           count > 0 ? uncopy_dtype_name(dtypes[0]) : "a number",
                           count > 1 ? ", " : "", count > 1 ? uncopy_dtype_name(dtypes[1]) : "",
                           verify_show(verifier, result, shown));
    }
    return UNCOPY_OK;
}

/* v5 for numbers: the dtype beside which a number stands is that of the views, else the
 * result's. */
static uncopy_status_t check_fractions(const verifier_t *verifier, const ir_operation_t *operation)
{
    if (op_row(operation->opcode)->class_ != OP_CLASS_POINTWISE) {
        return UNCOPY_OK;
    }
    uncopy_dtype_t dtype = verifier->program->views[operation->writes[0]].dtype;
    for (size_t i = operation->opcode == OPCODE_WHERE ? 1 : 0; i < operation->num_reads; i++) {
        uncopy_view_t view = operation->reads[i].view;
        dtype = view == UNCOPY_NONE ? dtype : verifier->program->views[view].dtype;
    }
    for (size_t i = 0; i < operation->num_reads; i++) {
        const uncopy_operand_t *operand = &operation->reads[i];
        bool is_whole = operand->is_integer ||
                        (isfinite(operand->number) && floor(operand->number) == operand->number);
        if (operand->view == UNCOPY_NONE && !is_whole && dtype_kind(dtype) != DTYPE_KIND_FLOAT) {
            return verify_fail(verifier, "v5", "the number %g stands beside %s", operand->number,
                               uncopy_dtype_name(dtype));
        }
    }
    return UNCOPY_OK;
}

/* v9 */
static uncopy_status_t check_group(const verifier_t *verifier, const ir_operation_t *operation)
{
    bool is_collective = op_row(operation->opcode)->class_ == OP_CLASS_COLLECTIVE;
    bool has_group = operation->group != UNCOPY_NONE;
    bool is_extern = operation->opcode == OPCODE_EXTERN;
    if (is_collective != has_group && !is_extern) {
        return verify_fail(verifier, "v9", "%s", has_group ? "has a group" : "has no group");
    }
    if (has_group) {
        const ir_group_t *group = &verifier->program->groups[operation->group];
        if (group->size < 1 || group->rank < 0 || group->rank >= group->size) {
            return verify_fail(verifier, "v9", "group %s has rank %d of %d", group->token,
                               group->rank, group->size);
        }
    }
    return UNCOPY_OK;
}

/* v11 */
static uncopy_status_t check_constants(const verifier_t *verifier, const ir_operation_t *operation)
{
    const ir_program_t *program = verifier->program;
    for (size_t i = 0; i < operation->num_writes; i++) {
        const ir_view_t *view = &program->views[operation->writes[i]];
        if (operation->opcode != OPCODE_FENCE &&
            program->storages[view->storage].kind == IR_STORAGE_CONSTANT) {
            return verify_fail(verifier, "v11", "writes %s, which is constant", view->name);
        }
    }
    return UNCOPY_OK;
}

enum {
#define REDUCTION(name, value, text) REDUCTION_NUMBER_##name,
#include "uncopy/reduction.def"
#undef REDUCTION
    NUM_REDUCTIONS
};

/* v13 */
static uncopy_status_t check_attributes(const verifier_t *verifier, const ir_operation_t *operation)
{
    unsigned of_rows = UNCOPY_EFFECT_OUT | UNCOPY_EFFECT_OUT_LAYOUT;
    unsigned all = of_rows | UNCOPY_EFFECT_AUDITED | UNCOPY_EFFECT_RAISES | UNCOPY_EFFECT_RANDOM |
                   UNCOPY_EFFECT_LAYOUT | UNCOPY_EFFECT_THREADS;
    bool is_extern = operation->opcode == OPCODE_EXTERN;
    if ((operation->effects & ~(is_extern ? all : of_rows)) != 0) {
        return verify_fail(verifier, "v13", "effects 0x%x are not those of %s", operation->effects,
                           is_extern ? "an extern" : "a row");
    }
    if (is_extern && (operation->effects & UNCOPY_EFFECT_OUT) != 0 && operation->num_returns > 1) {
        return verify_fail(verifier, "v13", "has an out form and %zu results",
                           operation->num_returns);
    }
    double root = operation->attributes[0];
    if (operation->opcode == OPCODE_BROADCAST && operation->group != UNCOPY_NONE &&
        !(root >= 0 && root < verifier->program->groups[operation->group].size &&
          floor(root) == root)) {
        return verify_fail(verifier, "v13", "root %g is no rank of a group of %d", root,
                           verifier->program->groups[operation->group].size);
    }
    bool is_reducing =
        operation->opcode == OPCODE_ALL_REDUCE || operation->opcode == OPCODE_REDUCE_SCATTER;
    if (is_reducing && !(root >= 0 && root < NUM_REDUCTIONS && floor(root) == root)) {
        return verify_fail(verifier, "v13", "%g is no reduction", root);
    }
    return UNCOPY_OK;
}

/* ---- numbers of one operation ---- */

static bool has_sizes(const span_t *a, const span_t *b)
{
    bool is_same = a->rank == b->rank;
    for (int32_t d = 0; is_same && d < a->rank; d++) {
        is_same = a->sizes[d] == b->sizes[d];
    }
    return is_same;
}

/* v6 */
static uncopy_status_t check_sizes(const verifier_t *verifier, const ir_operation_t *operation)
{
    char left[VERIFY_SHOWN_BYTES];
    char right[VERIFY_SHOWN_BYTES];
    for (size_t i = 0; i < operation->num_reads; i++) {
        uncopy_view_t view = operation->reads[i].view;
        if (view != UNCOPY_NONE && !has_sizes(&verifier->extents[view].span,
                                              &verifier->extents[operation->writes[0]].span)) {
            return verify_fail(verifier, "v6", "operand %zu, %s, has other sizes than %s", i,
                               verify_show(verifier, view, left),
                               verify_show(verifier, operation->writes[0], right));
        }
    }
    return UNCOPY_OK;
}

/* v7 */
static uncopy_status_t check_matmul(const verifier_t *verifier, const ir_operation_t *operation)
{
    const span_t *a = &verifier->extents[operation->reads[0].view].span;
    const span_t *b = &verifier->extents[operation->reads[1].view].span;
    const span_t *c = &verifier->extents[operation->writes[0]].span;
    int32_t at = a->rank - 2;
    bool is_fine = (a->rank == 2 || a->rank == 3) && b->rank == a->rank && c->rank == a->rank;
    is_fine = is_fine && a->sizes[at + 1] == b->sizes[at] && c->sizes[at] == a->sizes[at] &&
              c->sizes[at + 1] == b->sizes[at + 1];
    is_fine = is_fine && (at == 0 || (a->sizes[0] == b->sizes[0] && a->sizes[0] == c->sizes[0]));
    if (!is_fine) {
        char shown[3][VERIFY_SHOWN_BYTES];
        return verify_fail(verifier, "v7", "%s by %s does not give %s",
                           verify_show(verifier, operation->reads[0].view, shown[0]),
                           verify_show(verifier, operation->reads[1].view, shown[1]),
                           verify_show(verifier, operation->writes[0], shown[2]));
    }
    return UNCOPY_OK;
}

/* v8 */
static uncopy_status_t check_injective(const verifier_t *verifier, const ir_operation_t *operation)
{
    char shown[VERIFY_SHOWN_BYTES];
    if (!span_is_injective(&verifier->extents[operation->writes[0]].span)) {
        return verify_fail(verifier, "v8", "the result %s lists a byte twice",
                           verify_show(verifier, operation->writes[0], shown));
    }
    return UNCOPY_OK;
}

/* v10 */
static uncopy_status_t check_collective(const verifier_t *verifier, const ir_operation_t *operation)
{
    uncopy_view_t source = operation->reads[0].view;
    uncopy_view_t destination = operation->writes[0];
    int32_t ranks = verifier->program->groups[operation->group].size;
    int64_t taken = span_count(&verifier->extents[source].span);
    int64_t given = span_count(&verifier->extents[destination].span);
    bool is_fine = true;
    if (operation->opcode == OPCODE_ALL_GATHER) {
        is_fine = checked_multiply(taken, ranks, &taken) && taken == given;
    } else if (operation->opcode == OPCODE_REDUCE_SCATTER) {
        is_fine = checked_multiply(given, ranks, &given) && taken == given;
    } else if (operation->opcode == OPCODE_ALL_TO_ALL) {
        is_fine = taken == given && taken % ranks == 0;
    } else {
        is_fine = taken == given;
    }
    if (!is_fine) {
        char shown[2][VERIFY_SHOWN_BYTES];
        return verify_fail(verifier, "v10", "%s into %s over %d ranks: element counts do not fit",
                           verify_show(verifier, source, shown[0]),
                           verify_show(verifier, destination, shown[1]), ranks);
    }
    return UNCOPY_OK;
}

static uncopy_status_t check_operation_numbers(const verifier_t *verifier,
                                               const ir_operation_t *operation)
{
    switch (op_row(operation->opcode)->class_) {
    case OP_CLASS_POINTWISE:
    case OP_CLASS_MOVE:
        TRY(check_sizes(verifier, operation));
        return check_injective(verifier, operation);
    case OP_CLASS_MATMUL:
        TRY(check_matmul(verifier, operation));
        return check_injective(verifier, operation);
    case OP_CLASS_COLLECTIVE:
        TRY(check_collective(verifier, operation));
        return check_injective(verifier, operation);
    case OP_CLASS_FENCE:
    case OP_CLASS_ORDER:
    case OP_CLASS_EXTERN:
        break;
    }
    return UNCOPY_OK;
}

uncopy_status_t verify_operation(const verifier_t *verifier, const ir_operation_t *operation)
{
    TRY(check_operands_exist(verifier, operation));
    TRY(check_counts(verifier, operation));
    TRY(check_numbers(verifier, operation));
    TRY(check_dtypes(verifier, operation));
    TRY(check_fractions(verifier, operation));
    TRY(check_group(verifier, operation));
    TRY(check_constants(verifier, operation));
    TRY(check_attributes(verifier, operation));
    return verifier->extents == NULL ? UNCOPY_OK : check_operation_numbers(verifier, operation);
}
