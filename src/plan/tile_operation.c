/* Operations of ops.def as tile instructions: which rows have a form, and the steps of those that
 * are more than one. */
#include "base/status.h"
#include "plan/tile.h"

bool tile_takes(opcode_t opcode)
{
    op_class_t class_ = op_row(opcode)->class_;
    return class_ == OP_CLASS_POINTWISE || opcode == OPCODE_CONVERT;
}

/* Reads of a call as values. PyTorch takes a number in the compute type as the second operand of
 * the rows that say so. */
static void read_operands(tile_builder_t *builder, const kernel_call_t *call, tile_value_t *out)
{
    bool has_wide = (op_row(call->opcode)->flags & OP_FLAG_OPMATH) != 0;
    uint16_t slot = 1;
    for (int32_t i = 1; i < call->num_operands; i++) {
        const kernel_operand_t *operand = &call->operands[i];
        if (operand->is_immediate) {
            out[i - 1] =
                tile_number(builder, &operand->immediate, operand->dtype, i == 2 && has_wide);
        } else {
            out[i - 1] = tile_read(builder, slot++, operand->dtype, operand->strides);
        }
    }
}

uncopy_status_t tile_of_call(const kernel_call_t *call, arena_t *arena,
                             const tile_program_t **out_program)
{
    tile_builder_t builder;
    tile_value_t reads[TILE_MAX_SOURCES] = {0}, result = 0;
    uncopy_dtype_t dtype = call->operands[0].dtype;
    tile_begin(&builder, arena, call->rank, call->sizes, NULL, false);
    read_operands(&builder, call, reads);
    tile_operation(&builder, call->opcode, reads, (size_t)(call->num_operands - 1),
                   call->attributes, &dtype, &result);
    tile_write(&builder, 0, dtype, call->operands[0].strides, result);
    return tile_finish(&builder, out_program);
}

void tile_operation(tile_builder_t *builder, opcode_t opcode, const tile_value_t *reads,
                    size_t num_reads, const double *attributes, const uncopy_dtype_t *dtypes,
                    tile_value_t *out)
{
    if (opcode == OPCODE_CONVERT && num_reads == 1) {
        out[0] = tile_convert(builder, reads[0], dtypes[0]);
        return;
    }
    out[0] = tile_apply(builder, opcode, reads, num_reads, attributes, dtypes[0]);
}
