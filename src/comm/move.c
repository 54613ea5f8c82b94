/* Collectives that move bytes: all_gather, broadcast, gather, scatter, all_to_all, in one algorithm
 * over patterns.
 *
 *     announce, first payload   post   own part   for each peer: arrive, take
 *     while some rank has more in payloads:   fill   post   for each peer: wait, take
 *     if some rank is read where its source lies:   a closing step
 *
 * A small or staged move so takes as many steps as the largest source has payloads; one from
 * windows takes two. */
#include "base/status.h"
#include "comm/copy.h"
#include "comm/fault.h"
#include "comm/source.h"
#include "comm/step.h"
#include "comm/tuning.h"

typedef struct mover {
    comm_t *comm;
    const comm_move_t *move;
    comm_source_t own;
    uint32_t rounds; /* of the rank with the most */
    int32_t num_parts;
    size_t part_bytes; /* of a payload, for one taker */
    bool has_direct;
    int64_t staged_bytes;
    comm_source_t kinds[UNCOPY_COMM_MAX_SIZE]; /* of the peers' sources */
    stream_t send[UNCOPY_COMM_MAX_SIZE];       /* by taker; [0] alone where shared */
    stream_t receive[UNCOPY_COMM_MAX_SIZE];    /* by sender */
} mover_t;

static bool sends(const mover_t *m)
{
    const comm_t *comm = m->comm;
    return m->move->reach != COMM_REACH_FROM_ROOT || comm->rank == comm->signature.root;
}

static bool takes_from(const mover_t *m, int32_t sender)
{
    const comm_t *comm = m->comm;
    return m->move->reach == COMM_REACH_ALL ||
           (m->move->reach == COMM_REACH_FROM_ROOT ? sender : comm->rank) == comm->signature.root;
}

/* Bytes for the taker with the most. */
static size_t most_to_send(const mover_t *m)
{
    bool is_own_root =
        m->move->reach == COMM_REACH_TO_ROOT && m->comm->rank == m->comm->signature.root;
    return sends(m) && !is_own_root
               ? pattern_most_bytes(&m->move->source, m->comm->size, m->comm->rank)
               : 0;
}

static void init_streams(mover_t *m)
{
    size_t landing = 0;
    for (int32_t p = 0; p < m->comm->size; p++) {
        if (sends(m)) {
            m->send[p] = pattern_stream(&m->move->source, p);
        }
        if (takes_from(m, p)) {
            m->receive[p] = pattern_stream(&m->move->destination, p);
            landing += pattern_bytes(&m->move->destination, p);
        }
    }
    comm_set_landing(m->comm, landing);
}

/* The next payload, cut for its takers. Where all ranks send, large ones go past the caches too:
 * see TUNING_STREAMING. */
static void fill(mover_t *m)
{
    comm_t *comm = m->comm;
    bool past_caches = comm->past_caches && m->move->reach == COMM_REACH_ALL;
    char *payload = step_next(comm)->payload;
    if (m->move->is_shared) {
        copy_from_stream(payload, &m->send[0], m->part_bytes, past_caches);
        return;
    }
    for (int32_t i = 1; i < comm->size; i++) {
        int32_t taker = (comm->rank + i) % comm->size;
        int32_t part = pattern_part_index(comm->rank, taker, comm->size);
        copy_from_stream(payload + (size_t)part * m->part_bytes, &m->send[taker], m->part_bytes,
                         past_caches);
    }
}

static void take_payload(mover_t *m, int32_t sender)
{
    comm_t *comm = m->comm;
    int32_t part = m->move->is_shared ? 0 : pattern_part_index(sender, comm->rank, comm->size);
    const char *payload = step_slot(comm, sender)->payload + (size_t)part * m->part_bytes;
    stream_t *receive = &m->receive[sender];
    size_t left = m->part_bytes;
    while (left > 0) {
        size_t run = 0;
        char *to = stream_next(receive, left, &run);
        if (run == 0) {
            break;
        }
        copy_bytes(to, payload, run, comm->past_caches);
        payload += run;
        left -= run;
    }
    m->staged_bytes += (int64_t)(m->part_bytes - left);
}

static uncopy_status_t read_all(mover_t *m, int32_t sender, uint64_t address)
{
    comm_t *comm = m->comm;
    for (;;) {
        size_t run = 0;
        char *to = stream_next(&m->receive[sender], SIZE_MAX, &run);
        if (run == 0) {
            return UNCOPY_OK;
        }
        uncopy_status_t status =
            comm->transport.calls->read(comm->transport.self, sender, address, to, run);
        if (status != UNCOPY_OK) {
            return fault_break(comm, status, "%s", uncopy_last_message());
        }
        address += run;
        comm_count(&comm->counters.bytes_read, (int64_t)run);
    }
}

/* Where sizes are the pair's, they are checked by the taker. */
static uncopy_status_t check_pair(mover_t *m, int32_t sender)
{
    comm_t *comm = m->comm;
    int64_t sent = step_slot(comm, sender)->sizes[comm->rank];
    int64_t taken = (int64_t)pattern_bytes(&m->move->destination, sender);
    return sent == taken ? UNCOPY_OK
                         : fault_break(comm, UNCOPY_ERROR_MISMATCH,
                                       "%s: rank %d sends %lld bytes to rank %d, which takes %lld",
                                       comm_operation_name(comm->signature.operation), sender,
                                       (long long)sent, comm->rank, (long long)taken);
}

static uncopy_status_t take_window(mover_t *m, int32_t sender, const pattern_t *pattern)
{
    stream_t from = pattern_stream(pattern, m->comm->rank);
    size_t bytes = copy_streams(&m->receive[sender], &from, m->comm->past_caches);
    comm_count(&m->comm->counters.bytes_window, (int64_t)bytes);
    return UNCOPY_OK;
}

/* A peer's first step: what it publishes is looked at once. */
static uncopy_status_t take_first(mover_t *m, int32_t sender)
{
    comm_t *comm = m->comm;
    TRY(step_arrive(comm, sender));
    const comm_header_t *header = &step_slot(comm, sender)->header;
    m->kinds[sender] = (comm_source_t)header->source;
    m->rounds = header->rounds > m->rounds ? header->rounds : m->rounds;
    m->has_direct = m->has_direct || header->source >= COMM_SOURCE_WINDOW;
    if (!takes_from(m, sender)) {
        return UNCOPY_OK;
    }
    if (m->move->is_by_pair) {
        TRY(check_pair(m, sender));
    }
    if (header->source == COMM_SOURCE_STAGED) {
        take_payload(m, sender);
    }
    if (header->source < COMM_SOURCE_WINDOW) {
        return UNCOPY_OK;
    }
    size_t num_rows = source_num_rows(comm, sender);
    pattern_row_t *rows = num_rows > 0 ? comm_scratch(comm, num_rows * sizeof(*rows)) : NULL;
    if (num_rows > 0 && rows == NULL) {
        return fault_break(comm, UNCOPY_ERROR_MEMORY, "%s", uncopy_last_message());
    }
    source_view_t view;
    comm_pause(comm, TRANSPORT_BEFORE_COPY);
    TRY(source_view(comm, sender, pattern_bytes(&m->move->destination, sender), m->move->is_by_rank,
                    rows, &view));
    return view.kind == COMM_SOURCE_READ ? read_all(m, sender, view.address)
                                         : take_window(m, sender, &view.pattern);
}

static void publish(mover_t *m)
{
    comm_t *comm = m->comm;
    size_t most_read = m->move->reach == COMM_REACH_ALL ? TUNING_READ_TO : TUNING_READ_TO_ROOTED;
    m->own = source_announce(comm, &m->move->source, most_to_send(m), m->part_bytes, most_read);
    m->rounds = step_next(comm)->header.rounds;
    m->has_direct = m->own >= COMM_SOURCE_WINDOW;
    if (m->move->is_by_pair && sends(m)) {
        int64_t *sizes = step_next(comm)->sizes;
        for (int32_t p = 0; p < comm->size; p++) {
            sizes[p] = (int64_t)pattern_bytes(&m->move->source, p);
        }
    }
    if (m->own == COMM_SOURCE_STAGED) {
        fill(m);
    }
    step_post(comm);
}

static void copy_own(mover_t *m)
{
    int32_t rank = m->comm->rank;
    if (sends(m) && takes_from(m, rank)) {
        stream_t own = pattern_stream(&m->move->source, rank);
        (void)copy_streams(&m->receive[rank], &own, m->comm->past_caches);
    }
}

static uncopy_status_t next_round(mover_t *m)
{
    comm_t *comm = m->comm;
    if (m->own == COMM_SOURCE_STAGED) {
        fill(m);
    }
    step_post(comm);
    for (int32_t i = 1; i < comm->size; i++) {
        int32_t p = (comm->rank + i) % comm->size;
        TRY(step_wait(comm, p));
        if (m->kinds[p] == COMM_SOURCE_STAGED && takes_from(m, p)) {
            take_payload(m, p);
        }
    }
    return UNCOPY_OK;
}

static void count(const mover_t *m)
{
    comm_counters_t *counters = &m->comm->counters;
    bool is_one_step = !m->has_direct && m->rounds == 1;
    comm_count(&counters->bytes_staged, m->staged_bytes);
    comm_count(is_one_step ? &counters->one_step
                           : (m->rounds > 1 ? &counters->staged : &counters->direct),
               1);
}

uncopy_status_t comm_move(comm_t *comm, const comm_move_t *move)
{
    mover_t m;
    m.comm = comm;
    m.move = move;
    m.num_parts = move->is_shared ? 1 : comm->size - 1;
    m.part_bytes = pattern_part_bytes(comm->chunk_bytes, m.num_parts);
    m.staged_bytes = 0;
    init_streams(&m);
    publish(&m);
    copy_own(&m);
    for (int32_t i = 1; i < comm->size; i++) {
        TRY(take_first(&m, (comm->rank + i) % comm->size));
    }
    for (uint32_t round = 1; round < m.rounds; round++) {
        TRY(next_round(&m));
    }
    if (m.has_direct) {
        TRY(step_close(comm));
    }
    count(&m);
    return UNCOPY_OK;
}
