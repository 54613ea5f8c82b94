/* Making a loop nest regular, and walking it. See loop.h. */
#include "cpu/loop.h"

static int64_t magnitude(int64_t stride)
{
    return stride < 0 ? -stride : stride;
}

static void swap_dims(loop_t *loop, int32_t a, int32_t b)
{
    int64_t size = loop->sizes[a];
    loop->sizes[a] = loop->sizes[b];
    loop->sizes[b] = size;
    for (int32_t i = 0; i < loop->num_operands; i++) {
        int64_t stride = loop->strides[i][a];
        loop->strides[i][a] = loop->strides[i][b];
        loop->strides[i][b] = stride;
    }
}

/* Fills loop with the call's dims of size other than 1. False when a size is 0. */
static bool take_dims(const kernel_call_t *call, loop_t *loop)
{
    loop->num_operands = call->num_operands;
    loop->rank = 0;
    for (int32_t d = 0; d < call->rank; d++) {
        if (call->sizes[d] == 0) {
            return false;
        }
        if (call->sizes[d] == 1) {
            continue;
        }
        loop->sizes[loop->rank] = call->sizes[d];
        for (int32_t i = 0; i < call->num_operands; i++) {
            const kernel_operand_t *operand = &call->operands[i];
            loop->strides[i][loop->rank] = operand->is_immediate ? 0 : operand->strides[d];
        }
        loop->rank++;
    }
    if (loop->rank == 0) {
        loop->rank = 1;
        loop->sizes[0] = 1;
        for (int32_t i = 0; i < call->num_operands; i++) {
            loop->strides[i][0] = 0;
        }
    }
    return true;
}

/* Stable insertion sort by the result's stride, largest outermost. */
static void order_dims(loop_t *loop)
{
    for (int32_t d = 1; d < loop->rank; d++) {
        for (int32_t e = d; e > 0; e--) {
            if (magnitude(loop->strides[0][e - 1]) >= magnitude(loop->strides[0][e])) {
                break;
            }
            swap_dims(loop, e - 1, e);
        }
    }
}

static bool may_merge(const loop_t *loop, int32_t outer, int32_t inner)
{
    for (int32_t i = 0; i < loop->num_operands; i++) {
        if (loop->strides[i][outer] != loop->strides[i][inner] * loop->sizes[inner]) {
            return false;
        }
    }
    return true;
}

static void merge_dims(loop_t *loop)
{
    int32_t kept = 0;
    for (int32_t d = 1; d < loop->rank; d++) {
        if (may_merge(loop, kept, d)) {
            loop->sizes[kept] *= loop->sizes[d];
        } else {
            kept++;
            loop->sizes[kept] = loop->sizes[d];
        }
        for (int32_t i = 0; i < loop->num_operands; i++) {
            loop->strides[i][kept] = loop->strides[i][d];
        }
    }
    loop->rank = kept + 1;
}

/* Moves the dim along which some operand is nearest to contiguous next to the innermost, where that
 * is not the innermost itself. */
static void place_transposed(loop_t *loop)
{
    int32_t last = loop->rank - 1;
    for (int32_t i = 1; i < loop->num_operands; i++) {
        int32_t best = last;
        for (int32_t d = 0; d < last; d++) {
            int64_t stride = magnitude(loop->strides[i][d]);
            if (stride != 0 && loop->strides[i][best] != 0 &&
                stride < magnitude(loop->strides[i][best])) {
                best = d;
            }
        }
        if (best < last) {
            swap_dims(loop, best, last - 1);
            return;
        }
    }
}

bool loop_prepare(const kernel_call_t *call, loop_t *out_loop)
{
    if (!take_dims(call, out_loop)) {
        return false;
    }
    if (out_loop->rank > 1) {
        order_dims(out_loop);
        merge_dims(out_loop);
        place_transposed(out_loop);
    }
    return true;
}

int64_t loop_columns(const loop_t *loop)
{
    return loop->sizes[loop->rank - 1];
}

int64_t loop_rows(const loop_t *loop)
{
    return loop->rank > 1 ? loop->sizes[loop->rank - 2] : 1;
}

int64_t loop_column_stride(const loop_t *loop, int32_t operand)
{
    return loop->strides[operand][loop->rank - 1];
}

int64_t loop_row_stride(const loop_t *loop, int32_t operand)
{
    return loop->rank > 1 ? loop->strides[operand][loop->rank - 2] : 0;
}

bool loop_next(const loop_t *loop, int32_t num_inner, loop_walk_t *walk)
{
    for (int32_t d = loop->rank - num_inner - 1; d >= 0; d--) {
        walk->index[d]++;
        bool has_more = walk->index[d] < loop->sizes[d];
        int64_t steps = has_more ? 1 : 1 - loop->sizes[d];
        for (int32_t i = 0; i < loop->num_operands; i++) {
            walk->offsets[i] += steps * loop->strides[i][d];
        }
        if (has_more) {
            return true;
        }
        walk->index[d] = 0;
    }
    return false;
}
