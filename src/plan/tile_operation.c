/* Operations of ops.def as tile instructions: which rows have a form, and the steps of those that
 * are more than one. */
#include "base/status.h"
#include "plan/tile.h"

bool tile_takes(opcode_t opcode)
{
    op_class_t class_ = op_row(opcode)->class_;
    return class_ == OP_CLASS_POINTWISE || opcode == OPCODE_CONVERT;
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
