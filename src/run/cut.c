/* Choosing the dim: the outermost in the result's memory that gives enough chunks, so that each
 * thread writes one region; units keep whole blocks of the kernels together. For a matmul, units
 * are such that a part runs through the same tiles as the whole (cpu/matmul.c: 64 rows or columns,
 * and the choice of roles looks only at sizes up to 8).
 *
 * Cost: of cut_choose rank * constant; of a part a copy of the call, about 0.1 us. */
#include "run/cut.h"

#include <stdlib.h>

enum {
    ENOUGH_CHUNKS = 8,     /* of a dim that is taken though an inner one would give more */
    ROW_UNIT = 64,         /* rows of a block that is transposed; of a matmul's tile */
    RUN_UNIT = 512,        /* elements of the innermost dim */
    SMALL_CHUNK_NS = 2000, /* a part costs 0.1 us beside its elements */
    CHUNK_NS = 25000,      /* when there are ENOUGH_CHUNKS */
};

/* As many as the work is worth. */
static int64_t chunks_by_cost(int64_t cost_ns)
{
    int64_t small = cost_ns / SMALL_CHUNK_NS;
    if (small <= ENOUGH_CHUNKS) {
        return small;
    }
    int64_t many = ENOUGH_CHUNKS + cost_ns / CHUNK_NS;
    return many < CUT_MAX_CHUNKS ? many : CUT_MAX_CHUNKS;
}

static int64_t unit_of(const kernel_call_t *call, int32_t dim)
{
    int64_t size = call->sizes[dim];
    if (call->opcode == OPCODE_MATMUL) {
        return dim < call->rank - 2 ? 1 : ROW_UNIT;
    }
    int64_t unit = dim == call->rank - 1 ? RUN_UNIT : ROW_UNIT;
    return size >= unit * ENOUGH_CHUNKS || dim == call->rank - 1 ? unit : 1;
}

/* The last unit takes what is left over, so that no part is smaller than a unit. */
static int64_t num_units(const kernel_call_t *call, int32_t dim)
{
    return call->sizes[dim] / unit_of(call, dim);
}

/* Whether dim is to be taken rather than best. */
static bool is_better(const kernel_call_t *call, int32_t dim, int32_t best)
{
    int64_t units = num_units(call, dim), best_units = num_units(call, best);
    bool is_enough = units >= ENOUGH_CHUNKS, best_is_enough = best_units >= ENOUGH_CHUNKS;
    if (is_enough != best_is_enough) {
        return is_enough;
    }
    if (!is_enough) {
        return units > best_units;
    }
    return llabs(call->operands[0].strides[dim]) > llabs(call->operands[0].strides[best]);
}

cut_t cut_choose(const kernel_call_t *call, int64_t cost_ns)
{
    cut_t cut = {.num_chunks = 1};
    int64_t wanted = chunks_by_cost(cost_ns);
    if (wanted < 2 || call->rank < 1) {
        return cut;
    }
    for (int32_t d = 1; d < call->rank; d++) {
        cut.dim = is_better(call, d, cut.dim) ? d : cut.dim;
    }
    int64_t units = num_units(call, cut.dim);
    cut.unit = unit_of(call, cut.dim);
    cut.num_chunks = (uint32_t)(units < wanted ? units : wanted);
    return cut;
}

uint32_t cut_units(int64_t num_units, int64_t cost_ns)
{
    int64_t wanted = chunks_by_cost(cost_ns);
    int64_t chunks = num_units < wanted ? num_units : wanted;
    return chunks < 1 ? 1 : (uint32_t)chunks;
}

/* First place of chunk number chunk along the cut dim. */
static int64_t chunk_begin(const kernel_call_t *call, const cut_t *cut, uint32_t chunk)
{
    if (chunk == cut->num_chunks) {
        return call->sizes[cut->dim];
    }
    /* Units fit 2^57 for sizes that fit 2^63, chunks 2^6. */
    return num_units(call, cut->dim) * chunk / cut->num_chunks * cut->unit;
}

void cut_run(const kernel_call_t *call, kernel_function_t function, const cut_t *cut,
             char *const *data, uint32_t first, uint32_t end)
{
    int64_t begin = chunk_begin(call, cut, first);
    kernel_call_t part = *call;
    part.sizes[cut->dim] = chunk_begin(call, cut, end) - begin;
    char *at[KERNEL_MAX_OPERANDS] = {NULL};
    for (int32_t i = 0; i < call->num_operands; i++) {
        const kernel_operand_t *operand = &call->operands[i];
        at[i] = operand->is_immediate ? data[i] : data[i] + begin * operand->strides[cut->dim];
    }
    function(&part, at);
}
