/* all_reduce, and reduce to a root. Three ways, chosen by what all ranks know alike:
 *
 *   small      one step: every rank publishes all, and reduces all
 *   windows    every rank has source and destination in windows: announce, reduce the own part
 *              into place, step, read the others' parts from their destinations, closing step
 *   chunks     two steps a chunk: publish the others' parts of the chunk, reduce the own part,
 *              publish the result, read the others' results. A source in a window is read there
 *
 * The own part of a result is written once to its place and once to the payload, by one pass. */
#include "base/status.h"
#include "comm/copy.h"
#include "comm/fault.h"
#include "comm/reduce.h"
#include "comm/source.h"
#include "comm/step.h"
#include "comm/tuning.h"

typedef struct reduction {
    comm_t *comm;
    const char *source;
    char *destination; /* NULL where this rank gets no result */
    size_t count, element_bytes;
    int32_t root; /* negative: all */
    comm_source_t own;
    bool all_in_windows, has_direct;
    const char *windows[UNCOPY_COMM_MAX_SIZE]; /* by sender: its source, or NULL: in payloads */
    const char *results[UNCOPY_COMM_MAX_SIZE]; /* by sender: its destination, where all are */
} reduction_t;

static bool is_small(const reduction_t *r)
{
    uncopy_dtype_t dtype = r->comm->signature.dtype;
    bool is_converted = dtype == UNCOPY_DTYPE_BF16 || dtype == UNCOPY_DTYPE_F16;
    size_t most = is_converted ? TUNING_REDUCE_ALL_CONVERTED : TUNING_REDUCE_ALL;
    size_t bytes = r->count * r->element_bytes;
    return bytes <= r->comm->chunk_bytes && bytes <= most / (size_t)(r->comm->size - 1);
}

static uncopy_status_t reduce_small(reduction_t *r)
{
    comm_t *comm = r->comm;
    size_t bytes = r->count * r->element_bytes;
    step_announce(comm, bytes > 0 ? COMM_SOURCE_STAGED : COMM_SOURCE_NONE, 1);
    copy_bytes(step_next(comm)->payload, r->source, bytes, false);
    step_post(comm);
    TRY(step_arrive_all(comm));
    const char *sources[UNCOPY_COMM_MAX_SIZE];
    for (int32_t p = 0; p < comm->size; p++) {
        sources[p] = p == comm->rank ? r->source : step_slot(comm, p)->payload;
    }
    if (r->destination != NULL) {
        reduce_run_t job = {.reduction = comm->signature.reduction,
                            .sources = sources,
                            .num_sources = comm->size,
                            .destination = r->destination,
                            .count = r->count};
        reduce_elements(comm->signature.dtype, &job);
        comm_count(&comm->counters.bytes_staged, (int64_t)bytes * (comm->size - 1));
    }
    comm_count(&comm->counters.one_step, 1);
    return UNCOPY_OK;
}

static uncopy_status_t reduce_alone(reduction_t *r)
{
    const char *source = r->source;
    reduce_run_t job = {.reduction = r->comm->signature.reduction,
                        .sources = &source,
                        .num_sources = 1,
                        .destination = r->destination,
                        .count = r->count};
    reduce_elements(r->comm->signature.dtype, &job);
    return UNCOPY_OK;
}

/* ---------------------------------------------------------------- what each rank publishes */

/* The header's rows: the source, and the destination where that is in a window too. */
static void announce(reduction_t *r)
{
    comm_t *comm = r->comm;
    size_t bytes = r->count * r->element_bytes;
    step_announce(comm, COMM_SOURCE_STAGED, 1);
    r->own = COMM_SOURCE_STAGED;
    comm_window_t *window = comm_window_find(comm, r->source, bytes);
    if (window == NULL) {
        return;
    }
    r->own = COMM_SOURCE_WINDOW;
    comm_header_t *header = &step_next(comm)->header;
    comm_remote_row_t *rows = (comm_remote_row_t *)(void *)step_next(comm)->payload;
    header->source = COMM_SOURCE_WINDOW;
    header->rows = 1;
    rows[0] =
        (comm_remote_row_t){.offset = (uint64_t)(r->source - window->memory.parts[comm->rank]),
                            .bytes = bytes,
                            .window = window->number};
    window = r->destination != NULL ? comm_window_find(comm, r->destination, bytes) : NULL;
    if (window != NULL && r->root < 0) {
        header->rows = 2;
        rows[1] = (comm_remote_row_t){
            .offset = (uint64_t)(r->destination - window->memory.parts[comm->rank]),
            .bytes = bytes,
            .window = window->number};
    }
}

static uncopy_status_t view_peers(reduction_t *r)
{
    comm_t *comm = r->comm;
    r->has_direct = r->own == COMM_SOURCE_WINDOW;
    r->all_in_windows = r->has_direct && step_slot(comm, comm->rank)->header.rows == 2;
    for (int32_t p = 0; p < comm->size; p++) {
        r->windows[p] = r->source;
        if (p == comm->rank) {
            continue;
        }
        size_t num_rows = source_num_rows(comm, p);
        pattern_row_t rows[2];
        source_view_t view;
        if (num_rows > 2) {
            return fault_break(comm, UNCOPY_ERROR_SYSTEM, "rank %d published %zu rows", p,
                               num_rows);
        }
        TRY(source_view(comm, p, 0, false, rows, &view));
        r->windows[p] = num_rows > 0 ? rows[0].address : NULL;
        r->results[p] = num_rows > 1 ? rows[1].address : NULL;
        r->has_direct = r->has_direct || num_rows > 0;
        r->all_in_windows = r->all_in_windows && num_rows == 2;
    }
    return UNCOPY_OK;
}

/* ---------------------------------------------------------------- windows */

static uncopy_status_t reduce_in_windows(reduction_t *r)
{
    comm_t *comm = r->comm;
    size_t first = 0, count = 0;
    pattern_part(r->count, r->element_bytes, comm->size, comm->rank, &first, &count);
    const char *sources[UNCOPY_COMM_MAX_SIZE];
    for (int32_t p = 0; p < comm->size; p++) {
        sources[p] = r->windows[p] + first * r->element_bytes;
    }
    reduce_run_t job = {.reduction = comm->signature.reduction,
                        .sources = sources,
                        .num_sources = comm->size,
                        .destination = r->destination + first * r->element_bytes,
                        .count = count};
    reduce_elements(comm->signature.dtype, &job);
    int64_t read = (int64_t)(count * r->element_bytes) * (comm->size - 1);
    step_post(comm);
    for (int32_t i = 1; i < comm->size; i++) {
        int32_t p = (comm->rank + i) % comm->size;
        TRY(step_wait(comm, p));
        pattern_part(r->count, r->element_bytes, comm->size, p, &first, &count);
        copy_bytes(r->destination + first * r->element_bytes,
                   r->results[p] + first * r->element_bytes, count * r->element_bytes,
                   comm->past_caches);
        read += (int64_t)(count * r->element_bytes);
    }
    comm_count(&comm->counters.bytes_window, read);
    comm_count(&comm->counters.direct, 1);
    return step_close(comm);
}

/* ---------------------------------------------------------------- chunks */

/* A chunk's others' parts, each at its place in the payload. */
static void fill(reduction_t *r, size_t at, size_t count)
{
    comm_t *comm = r->comm;
    char *payload = step_next(comm)->payload;
    const char *source = r->source + at * r->element_bytes;
    for (int32_t i = 1; i < comm->size; i++) {
        size_t first = 0, of_part = 0;
        pattern_part(count, r->element_bytes, comm->size, (comm->rank + i) % comm->size, &first,
                     &of_part);
        copy_bytes(payload + first * r->element_bytes, source + first * r->element_bytes,
                   of_part * r->element_bytes, comm->past_caches);
    }
}

/* This rank's part of the chunk, to its place and to the next payload. */
static void reduce_part(reduction_t *r, size_t at, size_t count)
{
    comm_t *comm = r->comm;
    size_t first = 0, of_part = 0;
    pattern_part(count, r->element_bytes, comm->size, comm->rank, &first, &of_part);
    const char *sources[UNCOPY_COMM_MAX_SIZE];
    for (int32_t p = 0; p < comm->size; p++) {
        sources[p] = r->windows[p] != NULL ? r->windows[p] + (at + first) * r->element_bytes
                                           : step_slot(comm, p)->payload + first * r->element_bytes;
        if (p != comm->rank) {
            comm_count(r->windows[p] != NULL ? &comm->counters.bytes_window
                                             : &comm->counters.bytes_staged,
                       (int64_t)(of_part * r->element_bytes));
        }
    }
    bool is_published = r->root < 0 || r->root != comm->rank;
    reduce_run_t job = {
        .reduction = comm->signature.reduction,
        .sources = sources,
        .num_sources = comm->size,
        .destination =
            r->destination == NULL ? NULL : r->destination + (at + first) * r->element_bytes,
        .copy = is_published ? step_next(comm)->payload + first * r->element_bytes : NULL,
        .count = of_part};
    reduce_elements(comm->signature.dtype, &job);
}

static uncopy_status_t take_results(reduction_t *r, size_t at, size_t count)
{
    comm_t *comm = r->comm;
    for (int32_t i = 1; i < comm->size; i++) {
        int32_t p = (comm->rank + i) % comm->size;
        TRY(step_wait(comm, p));
        if (r->destination == NULL) {
            continue;
        }
        size_t first = 0, of_part = 0;
        pattern_part(count, r->element_bytes, comm->size, p, &first, &of_part);
        copy_bytes(r->destination + (at + first) * r->element_bytes,
                   step_slot(comm, p)->payload + first * r->element_bytes,
                   of_part * r->element_bytes, comm->past_caches);
        comm_count(&comm->counters.bytes_staged, (int64_t)(of_part * r->element_bytes));
    }
    return UNCOPY_OK;
}

static uncopy_status_t end_chunk(reduction_t *r, size_t at, size_t count)
{
    reduce_part(r, at, count);
    step_post(r->comm);
    return take_results(r, at, count);
}

static uncopy_status_t reduce_chunks(reduction_t *r, size_t chunk_count)
{
    comm_t *comm = r->comm;
    size_t count = r->count < chunk_count ? r->count : chunk_count;
    TRY(end_chunk(r, 0, count));
    for (size_t at = chunk_count; at < r->count; at += chunk_count) {
        count = r->count - at < chunk_count ? r->count - at : chunk_count;
        if (r->own == COMM_SOURCE_STAGED) {
            fill(r, at, count);
        }
        step_post(comm);
        TRY(step_wait_all(comm));
        TRY(end_chunk(r, at, count));
    }
    comm_count(&comm->counters.staged, 1);
    return UNCOPY_OK;
}

uncopy_status_t comm_all_reduce(comm_t *comm, const void *source, void *destination, size_t count,
                                int32_t root)
{
    reduction_t r = {.comm = comm,
                     .source = source,
                     .destination = root >= 0 && root != comm->rank ? NULL : destination,
                     .count = count,
                     .element_bytes = uncopy_dtype_size(comm->signature.dtype),
                     .root = root};
    if (comm->size == 1) {
        return reduce_alone(&r);
    }
    if (is_small(&r)) {
        return reduce_small(&r);
    }
    comm_set_landing(comm, r.destination != NULL ? count * r.element_bytes : 0);
    size_t chunk_count = comm->chunk_bytes / r.element_bytes;
    announce(&r);
    if (r.own == COMM_SOURCE_STAGED) {
        fill(&r, 0, count < chunk_count ? count : chunk_count);
    }
    step_post(comm);
    TRY(step_arrive_all(comm));
    comm_pause(comm, TRANSPORT_BEFORE_COPY);
    TRY(view_peers(&r));
    return r.all_in_windows ? reduce_in_windows(&r) : reduce_chunks(&r, chunk_count);
}
