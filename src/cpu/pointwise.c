/* Pointwise operations and conversions: any strides, any dtypes, tile by tile.
 *
 * The loop nest is cut into tiles of at most TILE elements, each a block of rows by columns of the
 * two inner dims. For a tile, operands are loaded into buffers of the compute type, the row's loop
 * runs over the whole block, and the result is stored with one rounding. An operand that already
 * lies contiguous in the compute type is used where it is; likewise the result. Immediates fill
 * their buffer once. Where an operand is transposed, blocks are 16 by 32 and that operand is loaded
 * along its own contiguous dim, so every cache line fetched is used up.
 *
 * A tile is read before it is written and tiles do not overlap, so the result may be exactly an
 * operand.
 *
 * Cost: about 60 ns a call, 10 ns a tile and 3 ns a row of a tile, then the loop. Stack: 16 KiB. */
#include <string.h>

#include "cpu/convert.h"
#include "cpu/kernels.h"
#include "cpu/loop.h"

enum { BLOCK_ROWS = 16, BLOCK_COLUMNS = TILE / BLOCK_ROWS, MAX_READS = KERNEL_MAX_OPERANDS - 1 };

typedef struct operand_plan {
    uncopy_dtype_t dtype;
    load_t load;
    int64_t row_stride, column_stride;
    bool is_direct, is_immediate;
} operand_plan_t;

/* What one run keeps beside its loop. */
typedef struct run_plan {
    row_loop_t row; /* NULL: the result is read 0, stored */
    number_t scalar;
    int32_t num_reads;
    operand_plan_t reads[MAX_READS];
    store_t store;
    int64_t result_row_stride, result_column_stride;
    bool is_result_direct;
    int64_t rows, columns;           /* of the two inner dims */
    int64_t tile_rows, tile_columns; /* of a whole tile */
} run_plan_t;

typedef union tile_buffer {
    double f64[TILE];
    float f32[TILE];
    int32_t i32[TILE];
    int64_t i64[TILE];
    uint64_t u64[TILE];
    uint8_t boolean[TILE];
} tile_buffer_t;

static int64_t kind_bytes(kind_t kind)
{
    switch (kind) {
    case KIND_F32:
    case KIND_I32:
        return 4;
    case KIND_BOOL:
        return 1;
    default:
        return 8;
    }
}

/* Whether a dtype's bytes are the kind's own representation. */
static bool is_native(uncopy_dtype_t dtype, kind_t kind)
{
    return table_kind(dtype) == kind && (int64_t)uncopy_dtype_size(dtype) == kind_bytes(kind) &&
           kind != KIND_BOOL;
}

/* A read's dtype as it is loaded. WHERE on half types moves bits, so that a NaN's payload stays. */
static uncopy_dtype_t loaded_dtype(opcode_t opcode, uncopy_dtype_t dtype)
{
    bool is_half = dtype == UNCOPY_DTYPE_F16 || dtype == UNCOPY_DTYPE_BF16;
    return opcode == OPCODE_WHERE && is_half ? UNCOPY_DTYPE_U16 : dtype;
}

/* The kind that a call computes in. */
static kind_t call_kind(const kernel_call_t *call)
{
    uncopy_dtype_t result = call->operands[0].dtype;
    if (call->opcode == OPCODE_CONVERT) {
        kind_t target = table_kind(result);
        kind_t source = table_kind(call->operands[1].dtype);
        bool is_real = target == KIND_F32 || target == KIND_F64;
        return is_real ? target : source == KIND_BOOL && target != KIND_BOOL ? KIND_I64 : source;
    }
    const kernel_operand_t *last = &call->operands[call->num_operands - 1];
    return table_kind(loaded_dtype(call->opcode, last->dtype));
}

/* Fixes the tile's shape: whole rows where they are short, small blocks where an operand is
 * transposed. */
static void shape_tiles(run_plan_t *plan)
{
    bool is_transposed = false;
    for (int32_t i = 0; i < plan->num_reads; i++) {
        int64_t row = plan->reads[i].row_stride, column = plan->reads[i].column_stride;
        row = row < 0 ? -row : row;
        column = column < 0 ? -column : column;
        is_transposed |= row != 0 && row < column;
    }
    int64_t widest = is_transposed ? BLOCK_COLUMNS : TILE;
    plan->tile_columns = plan->columns < widest ? plan->columns : widest;
    plan->tile_rows = TILE / plan->tile_columns;
    if (plan->tile_rows > plan->rows) {
        plan->tile_rows = plan->rows;
    }
}

static void plan_read(const kernel_call_t *call, const loop_t *loop, kind_t kind, int32_t index,
                      operand_plan_t *out)
{
    const kernel_operand_t *operand = &call->operands[index + 1];
    out->dtype = loaded_dtype(call->opcode, operand->dtype);
    out->is_immediate = operand->is_immediate;
    out->load = table_get()->loads[kind][out->dtype];
    out->row_stride = loop_row_stride(loop, index + 1);
    out->column_stride = loop_column_stride(loop, index + 1);
    out->is_direct =
        !out->is_immediate && is_native(out->dtype, kind) && out->column_stride == kind_bytes(kind);
}

static void plan_run(const kernel_call_t *call, const loop_t *loop, kind_t kind, run_plan_t *plan)
{
    const table_t *table = table_get();
    uncopy_dtype_t result = loaded_dtype(call->opcode, call->operands[0].dtype);
    const kernel_operand_t *last = &call->operands[call->num_operands - 1];
    plan->row = table->rows[kind][call->opcode];
    plan->num_reads = call->num_operands - 1;
    for (int32_t i = 0; i < plan->num_reads; i++) {
        plan_read(call, loop, kind, i, &plan->reads[i]);
    }
    plan->rows = loop_rows(loop);
    plan->columns = loop_columns(loop);
    plan->store = table->stores[kind][result];
    plan->result_row_stride = loop_row_stride(loop, 0);
    plan->result_column_stride = loop_column_stride(loop, 0);
    plan->is_result_direct = plan->row != NULL && is_native(result, kind) &&
                             plan->result_column_stride == kind_bytes(kind);
    const kernel_immediate_t alpha = {.number = call->attributes[0]};
    plan->scalar = convert_number(&alpha, last->dtype, table_kind(last->dtype), false);
    shape_tiles(plan);
}

/* Whether an immediate enters in the compute type: PyTorch does so for the second operand only. */
static bool is_opmath(const kernel_call_t *call, int32_t read)
{
    return read == 1 && (op_row(call->opcode)->flags & OP_FLAG_OPMATH) != 0;
}

static void fill_buffer(const kernel_call_t *call, kind_t kind, int32_t read, void *buffer,
                        int64_t count)
{
    const kernel_operand_t *operand = &call->operands[read + 1];
    char element[16];
    convert_immediate(&operand->immediate, operand->dtype, element);
    number_t number = {.i64 = 0};
    if (is_opmath(call, read)) {
        number = convert_number(&operand->immediate, operand->dtype, kind, true);
    } else {
        table_get()->loads[kind][loaded_dtype(call->opcode, operand->dtype)](&number, 1, element, 0,
                                                                             1);
    }
    size_t bytes = (size_t)kind_bytes(kind);
    for (int64_t i = 0; i < count; i++) {
        memcpy((char *)buffer + (size_t)i * bytes, &number, bytes);
    }
}

/* Loads a block of rows by columns, along whichever dim lies closer together in memory. */
static void load_block(const operand_plan_t *read, kind_t kind, void *buffer, const char *from,
                       int64_t rows, int64_t columns)
{
    int64_t bytes = kind_bytes(kind);
    int64_t row_step = read->row_stride < 0 ? -read->row_stride : read->row_stride;
    int64_t column_step = read->column_stride < 0 ? -read->column_stride : read->column_stride;
    if (rows > 1 && row_step != 0 && row_step < column_step) {
        for (int64_t c = 0; c < columns; c++) {
            read->load((char *)buffer + c * bytes, columns, from + c * read->column_stride,
                       read->row_stride, rows);
        }
        return;
    }
    for (int64_t r = 0; r < rows; r++) {
        read->load((char *)buffer + r * columns * bytes, 1, from + r * read->row_stride,
                   read->column_stride, columns);
    }
}

static void run_tile(const run_plan_t *plan, kind_t kind, tile_buffer_t *buffers, char *const *at,
                     int64_t rows, int64_t columns)
{
    const void *reads[MAX_READS] = {buffers, buffers, buffers};
    for (int32_t i = 0; i < plan->num_reads; i++) {
        const operand_plan_t *read = &plan->reads[i];
        reads[i] = &buffers[i];
        if (read->is_direct && rows == 1) {
            reads[i] = at[i + 1];
        } else if (!read->is_immediate) {
            load_block(read, kind, &buffers[i], at[i + 1], rows, columns);
        }
    }
    if (plan->num_reads == 1) {
        reads[1] = reads[2] = reads[0];
    } else if (plan->num_reads == 2) {
        reads[2] = reads[0];
    }
    const void *result = reads[0];
    if (plan->row != NULL) {
        bool is_direct = plan->is_result_direct && rows == 1;
        void *into = is_direct ? (void *)at[0] : (void *)&buffers[MAX_READS];
        plan->row(into, reads, &plan->scalar, rows * columns);
        if (is_direct) {
            return;
        }
        result = into;
    }
    for (int64_t r = 0; r < rows; r++) {
        plan->store(at[0] + r * plan->result_row_stride, plan->result_column_stride,
                    (const char *)result + r * columns * kind_bytes(kind), columns);
    }
}

static void run_plane(const run_plan_t *plan, kind_t kind, tile_buffer_t *buffers,
                      char *const *plane)
{
    for (int64_t r = 0; r < plan->rows; r += plan->tile_rows) {
        int64_t rows = plan->rows - r < plan->tile_rows ? plan->rows - r : plan->tile_rows;
        for (int64_t c = 0; c < plan->columns; c += plan->tile_columns) {
            int64_t columns =
                plan->columns - c < plan->tile_columns ? plan->columns - c : plan->tile_columns;
            char *at[KERNEL_MAX_OPERANDS];
            at[0] = plane[0] + r * plan->result_row_stride + c * plan->result_column_stride;
            for (int32_t i = 0; i < plan->num_reads; i++) {
                const operand_plan_t *read = &plan->reads[i];
                at[i + 1] = read->is_immediate
                                ? NULL
                                : plane[i + 1] + r * read->row_stride + c * read->column_stride;
            }
            run_tile(plan, kind, buffers, at, rows, columns);
        }
    }
}

void pointwise_run(const kernel_call_t *call, char *const *data)
{
    loop_t loop;
    if (!loop_prepare(call, &loop)) {
        return;
    }
    kind_t kind = call_kind(call);
    run_plan_t plan;
    plan_run(call, &loop, kind, &plan);
    tile_buffer_t buffers[MAX_READS + 1];
    for (int32_t i = 0; i < plan.num_reads; i++) {
        if (plan.reads[i].is_immediate) {
            fill_buffer(call, kind, i, &buffers[i], plan.tile_rows * plan.tile_columns);
        }
    }
    loop_walk_t walk = {{0}, {0}};
    do {
        char *plane[KERNEL_MAX_OPERANDS];
        for (int32_t i = 0; i < call->num_operands; i++) {
            plane[i] = call->operands[i].is_immediate ? NULL : data[i] + walk.offsets[i];
        }
        run_plane(&plan, kind, buffers, plane);
    } while (loop_next(&loop, 2, &walk));
}
