/* What our kernels take, asked of the kernel table row by row. */
#include "api/objects.h"
#include "cpu/cpu.h"

/* Dtypes of a row's operands when those that the rule makes alike are `read`. */
static size_t fill_reads(const op_row_t *row, uncopy_dtype_t read, uncopy_dtype_t *reads)
{
    for (int i = 0; i < row->num_reads; i++) {
        reads[i] = row->rule == OP_RULE_SELECT && i == 0 ? UNCOPY_DTYPE_BOOL : read;
    }
    return row->num_reads < 0 ? 0 : (size_t)row->num_reads;
}

static void fill_row(opcode_t opcode, target_row_t *to)
{
    const op_row_t *row = op_row(opcode);
    bool has_kernels = row->class_ == OP_CLASS_POINTWISE || row->class_ == OP_CLASS_MOVE ||
                       row->class_ == OP_CLASS_MATMUL;
    for (int read = 0; has_kernels && read < DTYPE_COUNT; read++) {
        for (int result = 0; result < DTYPE_COUNT; result++) {
            uncopy_dtype_t reads[OP_MAX_READS];
            size_t count = fill_reads(row, (uncopy_dtype_t)read, reads);
            if (op_accepts(opcode, reads, count, (uncopy_dtype_t)result) &&
                cpu_accepts(opcode, reads, count, (uncopy_dtype_t)result)) {
                to->read_dtypes |= 1u << read;
                to->result_dtypes |= 1u << result;
            }
        }
    }
}

void target_fill(target_t *target)
{
    *target = (target_t){0};
    for (int i = 0; i < OPCODE_COUNT; i++) {
        fill_row((opcode_t)i, &target->rows[i]);
    }
}
