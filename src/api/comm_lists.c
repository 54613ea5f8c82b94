/* Collectives of uneven sizes and of lists: their public forms become patterns. */
#include <string.h>

#include "api/comm.h"
#include "api/objects.h"
#include "base/checked.h"
#include "base/dtype.h"
#include "base/status.h"

/* ---------------------------------------------------------------- blocks */

/* Fills rows, one a rank. what is "source" or "destination". */
static uncopy_status_t pattern_of_blocks(const uncopy_comm_t *comm,
                                         const uncopy_comm_block_t *blocks, uncopy_dtype_t dtype,
                                         const char *what, pattern_row_t *rows, pattern_t *pattern)
{
    if (!dtype_is_valid(dtype) || blocks == NULL) {
        return status_fail(UNCOPY_ERROR_ARGUMENT, "%ss need a dtype (%d) and a list", what,
                           (int)dtype);
    }
    int64_t element_bytes = (int64_t)uncopy_dtype_size(dtype), sum = 0;
    for (int32_t p = 0; p < comm->comm->size; p++) {
        const uncopy_comm_block_t *block = &blocks[p];
        if (block->bytes < 0 || block->bytes % element_bytes != 0 ||
            (block->bytes > 0 && block->data == NULL) || !checked_add(sum, block->bytes, &sum)) {
            return status_fail(UNCOPY_ERROR_ARGUMENT, "%s of rank %d: %lld bytes of %s at %p", what,
                               p, (long long)block->bytes, uncopy_dtype_name(dtype), block->data);
        }
        rows[p] = (pattern_row_t){.address = block->data, .bytes = (size_t)block->bytes};
    }
    *pattern = (pattern_t){rows, (size_t)comm->comm->size, true};
    return UNCOPY_OK;
}

/* The part is apart from every block, or is exactly its own. */
static uncopy_status_t check_part(const uncopy_comm_t *comm, const void *part, size_t part_bytes,
                                  const pattern_t *blocks)
{
    TRY(comm_check_address(part, part_bytes, "this rank's part"));
    for (int32_t p = 0; p < comm->comm->size; p++) {
        const pattern_row_t *row = &blocks->rows[p];
        TRY(comm_check_overlap(part, part_bytes, row->address, row->bytes,
                               p == comm->comm->rank ? 0 : SIZE_MAX));
    }
    return UNCOPY_OK;
}

static uint64_t sum_of(const pattern_t *blocks)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < blocks->num_rows; i++) {
        sum += blocks->rows[i].bytes;
    }
    return sum;
}

uncopy_status_t uncopy_comm_all_gather_blocks(uncopy_comm_t *comm, const void *source,
                                              const uncopy_comm_block_t *destinations,
                                              uncopy_dtype_t dtype, const uncopy_comm_call_t *call)
{
    pattern_row_t from, to[UNCOPY_COMM_MAX_SIZE];
    comm_move_t move = {.reach = COMM_REACH_ALL, .is_shared = true};
    TRY(pattern_of_blocks(comm, destinations, dtype, "destination", to, &move.destination));
    size_t bytes = to[comm->comm->rank].bytes;
    TRY(check_part(comm, source, bytes, &move.destination));
    move.source = comm_row(&from, source, bytes, 0);
    comm_signature_t signature = {.operation = COMM_ALL_GATHER,
                                  .dtype = dtype,
                                  .root = -1,
                                  .bytes = sum_of(&move.destination),
                                  .shape = pattern_shape(&move.destination)};
    return comm_run_move(comm, &signature, &move, call);
}

uncopy_status_t uncopy_comm_reduce_scatter_blocks(uncopy_comm_t *comm,
                                                  const uncopy_comm_block_t *sources,
                                                  void *destination, uncopy_dtype_t dtype,
                                                  uncopy_reduction_t reduction,
                                                  const uncopy_comm_call_t *call)
{
    pattern_row_t from[UNCOPY_COMM_MAX_SIZE], to;
    pattern_t source;
    TRY(pattern_of_blocks(comm, sources, dtype, "source", from, &source));
    TRY(comm_check_reduces(dtype, reduction));
    size_t bytes = from[comm->comm->rank].bytes;
    TRY(check_part(comm, destination, bytes, &source));
    pattern_t part = comm_row(&to, destination, bytes, 0);
    comm_signature_t signature = {.operation = COMM_REDUCE_SCATTER,
                                  .dtype = dtype,
                                  .reduction = reduction,
                                  .root = -1,
                                  .bytes = sum_of(&source),
                                  .shape = pattern_shape(&source)};
    TRY(comm_begin(comm->comm, &signature, call));
    return comm_end(comm->comm, comm_reduce_scatter(comm->comm, &source, &part));
}

uncopy_status_t uncopy_comm_gather(uncopy_comm_t *comm, const void *source, int64_t count,
                                   const uncopy_comm_block_t *destinations, uncopy_dtype_t dtype,
                                   int32_t root, const uncopy_comm_call_t *call)
{
    pattern_row_t from, to[UNCOPY_COMM_MAX_SIZE];
    comm_move_t move = {.reach = COMM_REACH_TO_ROOT, .is_shared = true, .is_by_pair = true};
    size_t bytes = 0;
    TRY(comm_check_root(comm, root));
    TRY(comm_check_count(count, dtype, 1, &bytes));
    TRY(comm_check_address(source, bytes, "a source"));
    if (comm->comm->rank == root) {
        TRY(pattern_of_blocks(comm, destinations, dtype, "destination", to, &move.destination));
        TRY(check_part(comm, source, bytes, &move.destination));
        if (to[root].bytes != bytes) {
            return status_fail(UNCOPY_ERROR_ARGUMENT,
                               "root's own source has %zu bytes, its destination %zu", bytes,
                               to[root].bytes);
        }
    }
    move.source = comm_row(&from, source, bytes, 0);
    comm_signature_t signature = {.operation = COMM_GATHER, .dtype = dtype, .root = root};
    return comm_run_move(comm, &signature, &move, call);
}

uncopy_status_t uncopy_comm_scatter(uncopy_comm_t *comm, const uncopy_comm_block_t *sources,
                                    void *destination, int64_t count, uncopy_dtype_t dtype,
                                    int32_t root, const uncopy_comm_call_t *call)
{
    pattern_row_t from[UNCOPY_COMM_MAX_SIZE], to;
    comm_move_t move = {.reach = COMM_REACH_FROM_ROOT, .is_by_rank = true, .is_by_pair = true};
    size_t bytes = 0;
    TRY(comm_check_root(comm, root));
    TRY(comm_check_count(count, dtype, 1, &bytes));
    TRY(comm_check_address(destination, bytes, "a destination"));
    if (comm->comm->rank == root) {
        TRY(pattern_of_blocks(comm, sources, dtype, "source", from, &move.source));
        TRY(check_part(comm, destination, bytes, &move.source));
        if (from[root].bytes != bytes) {
            return status_fail(UNCOPY_ERROR_ARGUMENT,
                               "root's own source has %zu bytes, its destination %zu",
                               from[root].bytes, bytes);
        }
    }
    move.destination = comm_row(&to, destination, bytes, 0);
    comm_signature_t signature = {.operation = COMM_SCATTER, .dtype = dtype, .root = root};
    return comm_run_move(comm, &signature, &move, call);
}

static uncopy_status_t check_apart(const pattern_t *sources, const pattern_t *destinations)
{
    for (size_t i = 0; i < sources->num_rows; i++) {
        for (size_t j = 0; j < destinations->num_rows; j++) {
            const pattern_row_t *from = &sources->rows[i], *to = &destinations->rows[j];
            TRY(comm_check_overlap(from->address, from->bytes, to->address, to->bytes, SIZE_MAX));
        }
    }
    return UNCOPY_OK;
}

uncopy_status_t uncopy_comm_all_to_all_blocks(uncopy_comm_t *comm,
                                              const uncopy_comm_block_t *sources,
                                              const uncopy_comm_block_t *destinations,
                                              uncopy_dtype_t dtype, const uncopy_comm_call_t *call)
{
    pattern_row_t from[UNCOPY_COMM_MAX_SIZE], to[UNCOPY_COMM_MAX_SIZE];
    comm_move_t move = {.reach = COMM_REACH_ALL, .is_by_rank = true, .is_by_pair = true};
    int32_t rank = comm->comm->rank;
    TRY(pattern_of_blocks(comm, sources, dtype, "source", from, &move.source));
    TRY(pattern_of_blocks(comm, destinations, dtype, "destination", to, &move.destination));
    TRY(check_apart(&move.source, &move.destination));
    if (from[rank].bytes != to[rank].bytes) {
        return status_fail(UNCOPY_ERROR_ARGUMENT,
                           "the rank's own source has %zu bytes, its destination %zu",
                           from[rank].bytes, to[rank].bytes);
    }
    comm_signature_t signature = {.operation = COMM_ALL_TO_ALL, .dtype = dtype, .root = -1};
    return comm_run_move(comm, &signature, &move, call);
}

/* ---------------------------------------------------------------- segments */

/* whole: the side with a part for each rank; part: the other. */
typedef struct lists {
    pattern_row_t *whole, *part; /* one block */
    size_t count;
    int64_t bytes; /* of one rank */
} lists_t;

static uncopy_status_t check_segment(const uncopy_comm_t *comm, const uncopy_comm_segment_t *s,
                                     int64_t i, uncopy_dtype_t dtype)
{
    int64_t last = 0;
    bool is_whole = s->bytes >= 0 && s->bytes % (int64_t)uncopy_dtype_size(dtype) == 0 &&
                    (s->bytes == 0 || (s->source != NULL && s->destination != NULL));
    if (!is_whole || s->stride_bytes < 0 || (s->stride_bytes != 0 && s->stride_bytes < s->bytes) ||
        !checked_multiply(s->stride_bytes != 0 ? s->stride_bytes : s->bytes, comm->comm->size,
                          &last)) {
        return status_fail(UNCOPY_ERROR_ARGUMENT,
                           "segment %lld: %lld bytes of %s, stride %lld, from %p to %p",
                           (long long)i, (long long)s->bytes, uncopy_dtype_name(dtype),
                           (long long)s->stride_bytes, s->source, s->destination);
    }
    return UNCOPY_OK;
}

/* One segment's sides do not overlap but at the own slot; different segments are the caller's
 * care. */
static uncopy_status_t add_segment(const uncopy_comm_t *comm, const uncopy_comm_segment_t *s,
                                   bool gathers, lists_t *lists)
{
    size_t bytes = (size_t)s->bytes;
    size_t stride = s->stride_bytes != 0 ? (size_t)s->stride_bytes : bytes;
    char *whole = gathers ? s->destination : s->source,
         *part = gathers ? s->source : s->destination;
    size_t size = (size_t)comm->comm->size;
    TRY(comm_check_overlap(part, bytes, whole, bytes > 0 ? stride * (size - 1) + bytes : 0,
                           stride * (size_t)comm->comm->rank));
    lists->whole[lists->count] = (pattern_row_t){whole, bytes, stride};
    lists->part[lists->count] = (pattern_row_t){part, bytes, 0};
    lists->count++;
    return checked_add(lists->bytes, s->bytes, &lists->bytes)
               ? UNCOPY_OK
               : status_fail(UNCOPY_ERROR_ARGUMENT, "segments of more bytes than can be counted");
}

static uncopy_status_t make_lists(uncopy_comm_t *comm, const uncopy_comm_segment_t *segments,
                                  int64_t num_segments, uncopy_dtype_t dtype, bool gathers,
                                  lists_t *lists)
{
    if (num_segments < 0 || (num_segments > 0 && segments == NULL) || !dtype_is_valid(dtype) ||
        num_segments > INT32_MAX) {
        return status_fail(UNCOPY_ERROR_ARGUMENT, "%lld segments of dtype %d",
                           (long long)num_segments, (int)dtype);
    }
    size_t count = (size_t)num_segments;
    lists->whole = memory_allocate(&comm->allocator, 2 * count * sizeof(pattern_row_t) + 1,
                                   "segments of a collective");
    if (lists->whole == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    lists->part = lists->whole + count;
    for (int64_t i = 0; i < num_segments; i++) {
        uncopy_status_t status = check_segment(comm, &segments[i], i, dtype);
        status = status == UNCOPY_OK ? add_segment(comm, &segments[i], gathers, lists) : status;
        if (status != UNCOPY_OK) {
            memory_release(&comm->allocator, lists->whole, 2 * count * sizeof(pattern_row_t) + 1);
            return status;
        }
    }
    return UNCOPY_OK;
}

static void release_lists(uncopy_comm_t *comm, lists_t *lists)
{
    memory_release(&comm->allocator, lists->whole, 2 * lists->count * sizeof(pattern_row_t) + 1);
}

uncopy_status_t uncopy_comm_all_gather_segments(uncopy_comm_t *comm,
                                                const uncopy_comm_segment_t *segments,
                                                int64_t num_segments, uncopy_dtype_t dtype,
                                                const uncopy_comm_call_t *call)
{
    lists_t lists = {.count = 0};
    TRY(make_lists(comm, segments, num_segments, dtype, true, &lists));
    comm_move_t move = {.reach = COMM_REACH_ALL,
                        .is_shared = true,
                        .source = {lists.part, lists.count, false},
                        .destination = {lists.whole, lists.count, false}};
    comm_signature_t signature = {.operation = COMM_ALL_GATHER,
                                  .dtype = dtype,
                                  .root = -1,
                                  .bytes = (uint64_t)lists.bytes,
                                  .shape = pattern_shape(&move.source)};
    uncopy_status_t status = comm_run_move(comm, &signature, &move, call);
    release_lists(comm, &lists);
    return status;
}

uncopy_status_t uncopy_comm_reduce_scatter_segments(uncopy_comm_t *comm,
                                                    const uncopy_comm_segment_t *segments,
                                                    int64_t num_segments, uncopy_dtype_t dtype,
                                                    uncopy_reduction_t reduction,
                                                    const uncopy_comm_call_t *call)
{
    lists_t lists = {.count = 0};
    TRY(comm_check_reduces(dtype, reduction));
    TRY(make_lists(comm, segments, num_segments, dtype, false, &lists));
    pattern_t source = {lists.whole, lists.count, false}, part = {lists.part, lists.count, false};
    comm_signature_t signature = {.operation = COMM_REDUCE_SCATTER,
                                  .dtype = dtype,
                                  .reduction = reduction,
                                  .root = -1,
                                  .bytes = (uint64_t)lists.bytes,
                                  .shape = pattern_shape(&source)};
    uncopy_status_t status = comm_begin(comm->comm, &signature, call);
    if (status == UNCOPY_OK) {
        status = comm_end(comm->comm, comm_reduce_scatter(comm->comm, &source, &part));
    }
    release_lists(comm, &lists);
    return status;
}
