/* What a CPU kernel is told: loops with their dims merged, strides of each operand, numbers. */
#include <string.h>

#include "base/status.h"
#include "compile/lower.h"

/* Loop dims while they are put together: sizes and the strides of each operand, as in the call. */
static void merge_dims(kernel_call_t *call, int32_t rank)
{
    int32_t kept = 0;
    for (int32_t d = 0; d < rank; d++) {
        if (call->sizes[d] == 1) {
            continue;
        }
        bool merges = kept > 0;
        for (int32_t i = 0; merges && i < call->num_operands; i++) {
            const int64_t *strides = call->operands[i].strides;
            merges = strides[kept - 1] == strides[d] * call->sizes[d];
        }
        int32_t to = merges ? kept - 1 : kept;
        call->sizes[to] = merges ? call->sizes[to] * call->sizes[d] : call->sizes[d];
        for (int32_t i = 0; i < call->num_operands; i++) {
            call->operands[i].strides[to] = call->operands[i].strides[d];
        }
        kept = to + 1;
    }
    call->rank = kept;
}

static void swap_dims(kernel_call_t *call, int32_t a, int32_t b)
{
    int64_t size = call->sizes[a];
    call->sizes[a] = call->sizes[b];
    call->sizes[b] = size;
    for (int32_t i = 0; i < call->num_operands; i++) {
        int64_t stride = call->operands[i].strides[a];
        call->operands[i].strides[a] = call->operands[i].strides[b];
        call->operands[i].strides[b] = stride;
    }
}

/* The result's longest strides go outermost; a dim of size zero makes one empty loop. */
static void arrange_dims(kernel_call_t *call, int32_t rank)
{
    for (int32_t d = 0; d < rank; d++) {
        if (call->sizes[d] == 0) {
            memset(call->sizes, 0, sizeof(call->sizes));
            call->rank = 1;
            return;
        }
    }
    for (int32_t d = 1; d < rank; d++) {
        for (int32_t e = d;
             e > 0 && call->operands[0].strides[e] > call->operands[0].strides[e - 1]; e--) {
            swap_dims(call, e, e - 1);
        }
    }
    merge_dims(call, rank);
}

static void set_number(kernel_operand_t *operand, const uncopy_operand_t *number,
                       uncopy_dtype_t dtype)
{
    operand->is_immediate = true;
    operand->dtype = dtype;
    operand->immediate = (kernel_immediate_t){.number = number->number,
                                              .integer = number->is_integer ? number->integer : 0,
                                              .is_integer = number->is_integer != 0};
}

/* The dtype that the rule gives an operand that is a number. */
static uncopy_dtype_t number_dtype(const unit_t *unit, const unit_op_t *op)
{
    uncopy_dtype_t dtype = unit->views[op->writes[0]].dtype;
    if (op_row(op->opcode)->rule == OP_RULE_COMPARE) {
        for (size_t i = 0; i < op->num_reads; i++) {
            dtype = op->reads[i].view != UNCOPY_NONE ? unit->views[op->reads[i].view].dtype : dtype;
        }
    }
    return dtype;
}

static void fill_elementwise(const unit_t *unit, const unit_op_t *op, kernel_call_t *call)
{
    const span_t *result = &unit->views[op->writes[0]].span;
    memcpy(call->sizes, result->sizes, sizeof(call->sizes));
    call->operands[0].dtype = unit->views[op->writes[0]].dtype;
    memcpy(call->operands[0].strides, result->strides, sizeof(result->strides));
    for (size_t i = 0; i < op->num_reads; i++) {
        kernel_operand_t *operand = &call->operands[i + 1];
        if (op->reads[i].view == UNCOPY_NONE) {
            set_number(operand, &op->reads[i].number, number_dtype(unit, op));
        } else {
            const unit_view_t *view = &unit->views[op->reads[i].view];
            operand->dtype = view->dtype;
            memcpy(operand->strides, view->span.strides, sizeof(view->span.strides));
        }
    }
    arrange_dims(call, result->rank);
}

static void fill_matmul(const unit_t *unit, const unit_op_t *op, kernel_call_t *call)
{
    const unit_view_t *c = &unit->views[op->writes[0]];
    const unit_view_t *a = &unit->views[op->reads[0].view];
    const unit_view_t *b = &unit->views[op->reads[1].view];
    int32_t rank = c->span.rank;
    call->rank = rank;
    memcpy(call->sizes, c->span.sizes, sizeof(call->sizes));
    call->operands[0].dtype = c->dtype;
    call->operands[1].dtype = a->dtype;
    call->operands[2].dtype = b->dtype;
    memcpy(call->operands[0].strides, c->span.strides, sizeof(c->span.strides));
    memcpy(call->operands[1].strides, a->span.strides, sizeof(a->span.strides));
    memcpy(call->operands[2].strides, b->span.strides, sizeof(b->span.strides));
    call->k = a->span.sizes[rank - 1];
    call->k_strides[0] = a->span.strides[rank - 1];
    call->k_strides[1] = b->span.strides[rank - 2];
    call->operands[1].strides[rank - 1] = 0;
    call->operands[2].strides[rank - 2] = 0;
}

/* A collective of one rank moves its source to its destination: both are row-major, of one
 * length. */
static void fill_rank_move(const unit_t *unit, const unit_op_t *op, kernel_call_t *call)
{
    const span_t *span = &unit->views[op->writes[0]].span;
    call->opcode = OPCODE_COPY;
    call->rank = 1;
    call->sizes[0] = span_count(span);
    call->operands[0].dtype = call->operands[1].dtype = unit->views[op->writes[0]].dtype;
    call->operands[0].strides[0] = call->operands[1].strides[0] = span->element_bytes;
}

uncopy_status_t lower_kernel_call(lowering_t *lowering, const unit_op_t *op,
                                  plan_instruction_t *instruction)
{
    kernel_call_t *call = arena_allocate(&lowering->plan->arena, 1, sizeof(*call));
    if (call == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    call->opcode = op->opcode;
    call->num_operands = (int32_t)op->num_reads + 1;
    memcpy(call->attributes, op->attributes, sizeof(call->attributes));
    if (instruction->kind == PLAN_MOVE_RANK) {
        fill_rank_move(lowering->unit, op, call);
    } else if (op->opcode == OPCODE_MATMUL) {
        fill_matmul(lowering->unit, op, call);
    } else {
        fill_elementwise(lowering->unit, op, call);
    }
    instruction->call = call;
    op_class_t class_ = op_row(op->opcode)->class_;
    if (class_ == OP_CLASS_POINTWISE || op->opcode == OPCODE_CONVERT) {
        instruction->kind = PLAN_TILE;
        TRY(tile_of_call(call, &lowering->plan->arena, &instruction->tile));
    }
    uint32_t operand = instruction->first_operand;
    instruction->kernel_operands[0] = operand++;
    for (size_t i = 0; i < op->num_reads; i++) {
        bool is_view = op->reads[i].view != UNCOPY_NONE;
        instruction->kernel_operands[i + 1] = is_view ? operand++ : UNCOPY_NONE;
    }
    return UNCOPY_OK;
}
