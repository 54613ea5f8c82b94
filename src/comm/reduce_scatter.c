/* reduce_scatter: each rank reduces its own part of all ranks' sources, in rank order.
 *
 *     announce, first payload   post   arrive at all   reduce one payload's worth
 *     while some rank has more in payloads:   fill   post   wait for all   reduce as much
 *     if some rank is read where its source lies:   a closing step
 *
 * Sources of all kinds meet in one pass: each is a stream of runs, and a reduction goes as far as
 * the shortest of them. */
#include "base/status.h"
#include "comm/copy.h"
#include "comm/fault.h"
#include "comm/reduce.h"
#include "comm/source.h"
#include "comm/step.h"

typedef struct reducer {
    comm_t *comm;
    comm_source_t own;
    uint32_t rounds;
    size_t part_bytes, element_bytes;
    bool has_direct, has_staged;
    stream_t send[UNCOPY_COMM_MAX_SIZE]; /* by taker */
    stream_t destination;
    stream_t direct[UNCOPY_COMM_MAX_SIZE]; /* by sender: own and windows */
    source_view_t views[UNCOPY_COMM_MAX_SIZE];
} reducer_t;

static void fill(reducer_t *r)
{
    comm_t *comm = r->comm;
    char *payload = step_next(comm)->payload;
    for (int32_t i = 1; i < comm->size; i++) {
        int32_t taker = (comm->rank + i) % comm->size;
        int32_t part = pattern_part_index(comm->rank, taker, comm->size);
        copy_from_stream(payload + (size_t)part * r->part_bytes, &r->send[taker], r->part_bytes,
                         false);
    }
}

static void publish(reducer_t *r, const pattern_t *source)
{
    comm_t *comm = r->comm;
    size_t most = pattern_most_bytes(source, comm->size, comm->rank);
    r->own = source_announce(comm, source, most, r->part_bytes, 0);
    r->rounds = step_next(comm)->header.rounds;
    r->has_direct = r->own == COMM_SOURCE_WINDOW;
    r->has_staged = false;
    if (r->own == COMM_SOURCE_STAGED) {
        for (int32_t p = 0; p < comm->size; p++) {
            r->send[p] = pattern_stream(source, p);
        }
        fill(r);
    }
    step_post(comm);
}

static uncopy_status_t view_peers(reducer_t *r, size_t bytes, bool is_by_rank)
{
    comm_t *comm = r->comm;
    size_t num_rows = 0;
    for (int32_t p = 0; p < comm->size; p++) {
        num_rows += p != comm->rank ? source_num_rows(comm, p) : 0;
    }
    pattern_row_t *rows = num_rows > 0 ? comm_scratch(comm, num_rows * sizeof(*rows)) : NULL;
    if (num_rows > 0 && rows == NULL) {
        return fault_break(comm, UNCOPY_ERROR_MEMORY, "%s", uncopy_last_message());
    }
    for (int32_t p = 0; p < comm->size; p++) {
        if (p == comm->rank) {
            continue;
        }
        source_view_t *view = &r->views[p];
        TRY(source_view(comm, p, bytes, is_by_rank, rows, view));
        rows += source_num_rows(comm, p);
        r->rounds = view->rounds > r->rounds ? view->rounds : r->rounds;
        r->has_direct = r->has_direct || view->kind == COMM_SOURCE_WINDOW;
        r->has_staged = r->has_staged || view->kind == COMM_SOURCE_STAGED;
        if (view->kind == COMM_SOURCE_WINDOW) {
            r->direct[p] = pattern_stream(&view->pattern, comm->rank);
        }
    }
    return UNCOPY_OK;
}

static bool is_in_payload(const reducer_t *r, int32_t sender)
{
    return sender != r->comm->rank && r->views[sender].kind == COMM_SOURCE_STAGED;
}

/* Bytes, at most limit, that are one run in every source and in the destination. */
static size_t common_run(reducer_t *r, size_t limit)
{
    size_t run = stream_run_bytes(&r->destination);
    run = run < limit ? run : limit;
    for (int32_t p = 0; p < r->comm->size && run > 0; p++) {
        if (!is_in_payload(r, p)) {
            size_t other = stream_run_bytes(&r->direct[p]);
            run = other < run ? other : run;
        }
    }
    return run;
}

/* Reduces up to limit bytes of this rank's part. */
static void reduce_bytes(reducer_t *r, size_t limit)
{
    comm_t *comm = r->comm;
    const char *sources[UNCOPY_COMM_MAX_SIZE];
    size_t done = 0;
    for (;;) {
        size_t run = common_run(r, limit - done);
        if (run == 0) {
            break;
        }
        for (int32_t p = 0; p < comm->size; p++) {
            if (is_in_payload(r, p)) {
                int32_t part = pattern_part_index(p, comm->rank, comm->size);
                sources[p] = step_slot(comm, p)->payload + (size_t)part * r->part_bytes + done;
            } else {
                sources[p] = stream_next(&r->direct[p], run, &run);
            }
        }
        reduce_run_t job = {.reduction = comm->signature.reduction,
                            .sources = sources,
                            .num_sources = comm->size,
                            .destination = stream_next(&r->destination, run, &run),
                            .count = run / r->element_bytes};
        reduce_elements(comm->signature.dtype, &job);
        done += run;
    }
    for (int32_t p = 0; p < comm->size; p++) {
        if (p != comm->rank) {
            comm_count(is_in_payload(r, p) ? &comm->counters.bytes_staged
                                           : &comm->counters.bytes_window,
                       (int64_t)done);
        }
    }
}

static uncopy_status_t next_round(reducer_t *r)
{
    comm_t *comm = r->comm;
    if (r->own == COMM_SOURCE_STAGED) {
        fill(r);
    }
    step_post(comm);
    TRY(step_wait_all(comm));
    reduce_bytes(r, r->part_bytes);
    return UNCOPY_OK;
}

uncopy_status_t comm_reduce_scatter(comm_t *comm, const pattern_t *source,
                                    const pattern_t *destination)
{
    reducer_t r;
    r.comm = comm;
    r.element_bytes = uncopy_dtype_size(comm->signature.dtype);
    r.part_bytes = pattern_part_bytes(comm->chunk_bytes, comm->size - 1);
    r.destination = pattern_stream(destination, comm->rank);
    r.direct[comm->rank] = pattern_stream(source, comm->rank);
    publish(&r, source);
    TRY(step_arrive_all(comm));
    comm_pause(comm, TRANSPORT_BEFORE_COPY);
    TRY(view_peers(&r, pattern_bytes(destination, comm->rank), source->is_by_rank));
    reduce_bytes(&r, r.has_staged ? r.part_bytes : SIZE_MAX);
    for (uint32_t round = 1; round < r.rounds; round++) {
        TRY(next_round(&r));
    }
    if (r.has_direct) {
        TRY(step_close(comm));
    }
    bool is_one_step = !r.has_direct && r.rounds == 1;
    comm_count(is_one_step ? &comm->counters.one_step
                           : (r.rounds > 1 ? &comm->counters.staged : &comm->counters.direct),
               1);
    return UNCOPY_OK;
}
