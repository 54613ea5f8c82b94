/* Moves of bytes: copy between views of one dtype, and fill.
 *
 * copy takes the first of: nothing (the same view at the same place), memmove of whole rows (both
 * sides contiguous in the innermost dim), blocks (the source is contiguous along another dim than
 * the result: 64 by 64 elements through a block on the stack whose rows are padded by a vector, so
 * that neither side is walked across its cache lines), elements. A source may be exactly the
 * result; otherwise they are disjoint.
 *
 * Cost: the memory's bandwidth for rows of 256 bytes and more; 1.5 to 2 times that in blocks.
 * Stack: 66 KiB. */
#include <string.h>

#include "cpu/convert.h"
#include "cpu/kernels.h"
#include "cpu/loop.h"
#include "cpu/transpose.h"

enum {
    BLOCK = 64,
    MAX_ELEMENT_BYTES = 16,
    BLOCK_PADDING_BYTES = 16,
    BLOCK_ROW_BYTES = BLOCK * MAX_ELEMENT_BYTES + BLOCK_PADDING_BYTES,
};

typedef enum method {
    METHOD_ROWS,
    METHOD_BLOCKS,
    METHOD_ELEMENTS,
} method_t;

typedef struct __attribute__((packed, may_alias)) element_16 {
    uint64_t halves[2];
} element_16_t;

static int64_t magnitude(int64_t stride)
{
    return stride < 0 ? -stride : stride;
}

static method_t choose_method(const loop_t *loop, int64_t bytes)
{
    int64_t to = loop_column_stride(loop, 0), from = loop_column_stride(loop, 1);
    if (to == bytes && from == bytes) {
        return METHOD_ROWS;
    }
    int64_t from_row = magnitude(loop_row_stride(loop, 1));
    bool is_transposed = from_row != 0 && from_row < magnitude(from);
    return is_transposed && loop_rows(loop) >= 4 && loop_columns(loop) >= 4 ? METHOD_BLOCKS
                                                                            : METHOD_ELEMENTS;
}

#define MOVE_ELEMENTS(name, E)                                                                  \
    static void move_##name(char *to, int64_t to_stride, const char *from, int64_t from_stride, \
                            int64_t count)                                                      \
    {                                                                                           \
        for (int64_t i = 0; i < count; i++) {                                                   \
            *(E *)(to + i * to_stride) = *(const E *)(from + i * from_stride);                  \
        }                                                                                       \
    }

MOVE_ELEMENTS(1, any_u8)
MOVE_ELEMENTS(2, any_u16)
MOVE_ELEMENTS(4, any_u32)
MOVE_ELEMENTS(8, any_u64)
MOVE_ELEMENTS(16, element_16_t)

typedef void (*move_t)(char *to, int64_t to_stride, const char *from, int64_t from_stride,
                       int64_t count);

static move_t move_of(int64_t bytes)
{
    switch (bytes) {
    case 1:
        return move_1;
    case 2:
        return move_2;
    case 4:
        return move_4;
    case 8:
        return move_8;
    default:
        return move_16;
    }
}

/* One block of the two inner dims, rows by columns at most BLOCK each. Where both sides are
 * contiguous, the source along its rows dim, the block is transposed through registers. */
static void move_block(const loop_t *loop, int64_t bytes, char *to, const char *from, int64_t rows,
                       int64_t columns)
{
    _Alignas(16) char block[BLOCK * BLOCK_ROW_BYTES];
    int64_t block_row = BLOCK * bytes + BLOCK_PADDING_BYTES;
    int64_t from_row = loop_row_stride(loop, 1), from_column = loop_column_stride(loop, 1);
    int64_t to_row = loop_row_stride(loop, 0), to_column = loop_column_stride(loop, 0);
    move_t move = move_of(bytes);
    if (from_row == bytes) {
        transpose_block(bytes, block, block_row, from, from_column, columns, rows);
    } else {
        for (int64_t c = 0; c < columns; c++) {
            move(block + c * bytes, block_row, from + c * from_column, from_row, rows);
        }
    }
    for (int64_t r = 0; r < rows; r++) {
        if (to_column == bytes) {
            memcpy(to + r * to_row, block + r * block_row, (size_t)(columns * bytes));
        } else {
            move(to + r * to_row, to_column, block + r * block_row, bytes, columns);
        }
    }
}

static void move_blocks(const loop_t *loop, int64_t bytes, char *to, const char *from)
{
    int64_t rows = loop_rows(loop), columns = loop_columns(loop);
    for (int64_t r = 0; r < rows; r += BLOCK) {
        int64_t block_rows = rows - r < BLOCK ? rows - r : BLOCK;
        for (int64_t c = 0; c < columns; c += BLOCK) {
            int64_t block_columns = columns - c < BLOCK ? columns - c : BLOCK;
            move_block(loop, bytes,
                       to + r * loop_row_stride(loop, 0) + c * loop_column_stride(loop, 0),
                       from + r * loop_row_stride(loop, 1) + c * loop_column_stride(loop, 1),
                       block_rows, block_columns);
        }
    }
}

/* Whether both sides are the same elements at the same places. */
static bool is_same_place(const loop_t *loop, char *const *data)
{
    if (data[0] != data[1]) {
        return false;
    }
    for (int32_t d = 0; d < loop->rank; d++) {
        if (loop->strides[0][d] != loop->strides[1][d]) {
            return false;
        }
    }
    return true;
}

void copy_run(const kernel_call_t *call, char *const *data)
{
    loop_t loop;
    if (!loop_prepare(call, &loop) || is_same_place(&loop, data)) {
        return;
    }
    int64_t bytes = (int64_t)uncopy_dtype_size(call->operands[0].dtype);
    method_t method = choose_method(&loop, bytes);
    int32_t num_inner = method == METHOD_BLOCKS ? 2 : 1;
    int64_t columns = loop_columns(&loop);
    loop_walk_t walk = {{0}, {0}};
    do {
        char *to = data[0] + walk.offsets[0];
        const char *from = data[1] + walk.offsets[1];
        if (method == METHOD_ROWS) {
            memmove(to, from, (size_t)(columns * bytes));
        } else if (method == METHOD_BLOCKS) {
            move_blocks(&loop, bytes, to, from);
        } else {
            move_of(bytes)(to, loop_column_stride(&loop, 0), from, loop_column_stride(&loop, 1),
                           columns);
        }
    } while (loop_next(&loop, num_inner, &walk));
}

const char *copy_method_name(const kernel_call_t *call)
{
    loop_t loop;
    if (!loop_prepare(call, &loop)) {
        return "copy.rows";
    }
    switch (choose_method(&loop, (int64_t)uncopy_dtype_size(call->operands[0].dtype))) {
    case METHOD_ROWS:
        return "copy.rows";
    case METHOD_BLOCKS:
        return "copy.blocks";
    default:
        return "copy.elements";
    }
}

/* A row of equal elements. The first is written; contiguous rows are then doubled. */
static void fill_row(char *to, int64_t stride, const char *element, int64_t bytes, int64_t count)
{
    if (stride != bytes) {
        move_of(bytes)(to, stride, element, 0, count);
        return;
    }
    int64_t total = count * bytes;
    int64_t done = bytes;
    memcpy(to, element, (size_t)bytes);
    while (done < total) {
        /* Chunks of up to 16 KiB are copied from the first level of cache. */
        int64_t chunk = done < 16384 ? done : 16384;
        chunk = chunk < total - done ? chunk : total - done;
        memcpy(to + done, to, (size_t)chunk);
        done += chunk;
    }
}

static bool is_zero(const char *element, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i++) {
        if (element[i] != 0) {
            return false;
        }
    }
    return true;
}

void fill_run(const kernel_call_t *call, char *const *data)
{
    loop_t loop;
    if (!loop_prepare(call, &loop)) {
        return;
    }
    uncopy_dtype_t dtype = call->operands[0].dtype;
    int64_t bytes = (int64_t)uncopy_dtype_size(dtype);
    char element[MAX_ELEMENT_BYTES] = {0};
    convert_immediate(&call->operands[1].immediate, dtype, element);
    bool is_memset =
        loop_column_stride(&loop, 0) == bytes && (bytes == 1 || is_zero(element, bytes));
    int64_t columns = loop_columns(&loop);
    loop_walk_t walk = {{0}, {0}};
    do {
        char *to = data[0] + walk.offsets[0];
        if (is_memset) {
            memset(to, element[0], (size_t)(columns * bytes));
        } else {
            fill_row(to, loop_column_stride(&loop, 0), element, bytes, columns);
        }
    } while (loop_next(&loop, 1, &walk));
}
