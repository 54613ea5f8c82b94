/* Transfers between two ranks: see transfer.h. */
#include "comm/transfer.h"

#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "comm/fault.h"

static comm_channel_t *channel(comm_t *comm, int32_t from, int32_t to)
{
    return comm_segment_channel(comm->segments[from], comm->chunk_bytes, to);
}

static void ring(comm_t *comm, int32_t rank)
{
    comm_bell_t *bell = &comm->segments[rank]->bell;
    wait_ring(&bell->rings, &bell->sleepers);
}

static void complete(comm_t *comm, comm_posted_t *posted)
{
    posted->is_complete = true;
    ring(comm, comm->rank); /* its thread may sleep */
}

/* ---------------------------------------------------------------- sending */

/* Cells of the own counter are written by this rank alone, under transfer_lock. */
static void post_cell(comm_t *comm, comm_channel_t *c, int32_t peer)
{
    uint32_t posted = atomic_load_explicit(&c->posted, memory_order_relaxed);
    /* release: pairs with has_cell */
    atomic_store_explicit(&c->posted, posted + 1, memory_order_release);
    ring(comm, peer);
}

static bool is_window_source(comm_t *comm, const comm_posted_t *p, comm_cell_t *cell)
{
    size_t bytes = (size_t)p->transfer.bytes;
    comm_window_t *window =
        bytes > COMM_CELL_BYTES ? comm_window_find(comm, p->transfer.data, bytes) : NULL;
    if (window == NULL) {
        return false;
    }
    cell->window = window->number;
    cell->address = (uint64_t)((char *)p->transfer.data - window->memory.parts[comm->rank]);
    return true;
}

static void fill_cell(comm_t *comm, comm_posted_t *p, comm_cell_t *cell)
{
    int64_t left = p->transfer.bytes - p->done;
    cell->is_first = !p->is_begun;
    if (!p->is_begun) {
        cell->tag = p->transfer.tag;
        cell->bytes = p->transfer.bytes;
        cell->dtype = (uint8_t)p->transfer.dtype;
        p->is_from_window = is_window_source(comm, p, cell);
        cell->source = p->is_from_window ? COMM_SOURCE_WINDOW : COMM_SOURCE_STAGED;
        p->is_begun = true;
    }
    cell->part =
        p->is_from_window ? 0 : (uint32_t)(left < COMM_CELL_BYTES ? left : COMM_CELL_BYTES);
    if (cell->part > 0) {
        memcpy(cell->payload, (const char *)p->transfer.data + p->done, cell->part);
    }
    p->done += p->is_from_window ? left : cell->part;
}

/* Whether something moved. */
static bool send_on(comm_t *comm, comm_posted_t *p)
{
    comm_channel_t *c = channel(comm, comm->rank, p->transfer.peer);
    uint32_t posted = atomic_load_explicit(&c->posted, memory_order_relaxed);
    /* acquire: the receiver has read the cell; pairs with take_cell */
    uint32_t taken = atomic_load_explicit(&c->taken, memory_order_acquire);
    bool has_moved = false;
    while ((!p->is_begun || p->done < p->transfer.bytes) && posted - taken < COMM_CELLS) {
        fill_cell(comm, p, &c->cells[posted % COMM_CELLS]);
        post_cell(comm, c, p->transfer.peer);
        posted++;
        p->window_cell = posted;
        has_moved = true;
    }
    bool is_sent = p->is_begun && p->done == p->transfer.bytes;
    if (is_sent && (!p->is_from_window || (int32_t)(taken - p->window_cell) >= 0)) {
        complete(comm, p);
        has_moved = true;
    }
    return has_moved;
}

/* ---------------------------------------------------------------- receiving */

static bool has_cell(comm_channel_t *c)
{
    /* acquire: pairs with post_cell */
    return atomic_load_explicit(&c->posted, memory_order_acquire) !=
           atomic_load_explicit(&c->taken, memory_order_relaxed);
}

static void take_cell(comm_t *comm, comm_channel_t *c, int32_t peer)
{
    uint32_t taken = atomic_load_explicit(&c->taken, memory_order_relaxed);
    /* release: pairs with send_on */
    atomic_store_explicit(&c->taken, taken + 1, memory_order_release);
    ring(comm, peer);
}

static uncopy_status_t check_match(comm_t *comm, const uncopy_transfer_t *receive, int64_t bytes,
                                   uint8_t dtype)
{
    if (receive->bytes == bytes && receive->dtype == (uncopy_dtype_t)dtype) {
        return UNCOPY_OK;
    }
    const char *name = uncopy_dtype_name((uncopy_dtype_t)dtype);
    return fault_break(comm, UNCOPY_ERROR_MISMATCH,
                       "transfers with tag %" PRId64 " do not match: rank %d sends %" PRId64
                       " bytes of %s; rank %d receives %" PRId64 " bytes of %s",
                       receive->tag, receive->peer, bytes, name != NULL ? name : "?", comm->rank,
                       receive->bytes, uncopy_dtype_name(receive->dtype));
}

/* The oldest receive of peer and tag that has no message yet. */
static comm_posted_t *find_receive(comm_t *comm, int32_t peer, int64_t tag)
{
    for (comm_posted_t *p = comm->posted; p != NULL; p = p->next) {
        if (p->transfer.kind == UNCOPY_TRANSFER_RECEIVE && p->transfer.peer == peer &&
            p->transfer.tag == tag && !p->is_begun) {
            return p;
        }
    }
    return NULL;
}

static uncopy_status_t keep(comm_t *comm, comm_inbox_t *inbox, const comm_cell_t *cell)
{
    comm_message_t *message = memory_allocate(&comm->allocator, sizeof(*message), "a message");
    char *data = message != NULL ? memory_allocate(&comm->allocator, (size_t)cell->bytes + 1,
                                                   "a message that was not asked for")
                                 : NULL;
    if (data == NULL) {
        memory_release(&comm->allocator, message, sizeof(*message));
        return fault_break(comm, UNCOPY_ERROR_MEMORY, "%s", uncopy_last_message());
    }
    *message = (comm_message_t){
        .tag = cell->tag, .bytes = cell->bytes, .dtype = cell->dtype, .data = data};
    comm_message_t **end = &inbox->kept;
    while (*end != NULL) {
        end = &(*end)->next;
    }
    *end = message;
    inbox->coming = message;
    return UNCOPY_OK;
}

static uncopy_status_t begin_message(comm_t *comm, comm_inbox_t *inbox, int32_t peer,
                                     const comm_cell_t *cell)
{
    comm_posted_t *receive = find_receive(comm, peer, cell->tag);
    if (receive == NULL) {
        return keep(comm, inbox, cell);
    }
    TRY(check_match(comm, &receive->transfer, cell->bytes, cell->dtype));
    receive->is_begun = true;
    inbox->receiving = receive;
    return UNCOPY_OK;
}

/* Where the bytes of a cell are; *out_bytes how many. */
static const char *bytes_of(comm_t *comm, int32_t peer, const comm_cell_t *cell, int64_t *out_bytes)
{
    if (cell->source != COMM_SOURCE_WINDOW) {
        *out_bytes = cell->part;
        return cell->payload;
    }
    *out_bytes = cell->bytes;
    return comm_window_resolve(comm, cell->window, peer, cell->address, (uint64_t)cell->bytes);
}

static void free_message(comm_t *comm, comm_inbox_t *inbox, comm_message_t *message)
{
    comm_message_t **at = &inbox->kept;
    while (*at != message) {
        at = &(*at)->next;
    }
    *at = message->next;
    memory_release(&comm->allocator, message->data, (size_t)message->bytes + 1);
    memory_release(&comm->allocator, message, sizeof(*message));
}

static void deliver_kept(comm_t *comm, comm_inbox_t *inbox, comm_message_t *message)
{
    comm_posted_t *receive = message->claimer;
    if (message->bytes > 0) {
        memcpy(receive->transfer.data, message->data, (size_t)message->bytes);
    }
    free_message(comm, inbox, message);
    complete(comm, receive);
}

static void end_if_whole(comm_t *comm, comm_inbox_t *inbox)
{
    comm_posted_t *receive = inbox->receiving;
    comm_message_t *message = inbox->coming;
    if (receive != NULL && receive->done == receive->transfer.bytes) {
        inbox->receiving = NULL;
        complete(comm, receive);
    }
    if (message != NULL && message->received == message->bytes) {
        inbox->coming = NULL;
        if (message->claimer != NULL) {
            deliver_kept(comm, inbox, message);
        }
    }
}

static uncopy_status_t take_bytes(comm_t *comm, comm_inbox_t *inbox, int32_t peer,
                                  const comm_cell_t *cell)
{
    int64_t bytes = 0;
    const char *from = bytes_of(comm, peer, cell, &bytes);
    if (from == NULL) {
        return fault_break(comm, UNCOPY_ERROR_SYSTEM, "rank %d sent bytes of an unknown window",
                           peer);
    }
    char *to = inbox->receiving != NULL
                   ? (char *)inbox->receiving->transfer.data + inbox->receiving->done
                   : inbox->coming->data + inbox->coming->received;
    if (bytes > 0) {
        memcpy(to, from, (size_t)bytes);
    }
    *(inbox->receiving != NULL ? &inbox->receiving->done : &inbox->coming->received) += bytes;
    comm_count(cell->source == COMM_SOURCE_WINDOW ? &comm->counters.bytes_window
                                                  : &comm->counters.bytes_staged,
               bytes);
    return UNCOPY_OK;
}

/* Takes cells from peer until p has all its bytes, or there are none. */
static uncopy_status_t pump(comm_t *comm, const comm_posted_t *p, bool *has_moved)
{
    int32_t peer = p->transfer.peer;
    comm_inbox_t *inbox = comm->inboxes[peer];
    comm_channel_t *c = channel(comm, peer, comm->rank);
    while (!p->is_complete && has_cell(c)) {
        uint32_t taken = atomic_load_explicit(&c->taken, memory_order_relaxed);
        const comm_cell_t *cell = &c->cells[taken % COMM_CELLS];
        if (cell->is_first != 0) {
            TRY(begin_message(comm, inbox, peer, cell));
        }
        TRY(take_bytes(comm, inbox, peer, cell));
        end_if_whole(comm, inbox);
        take_cell(comm, c, peer);
        *has_moved = true;
    }
    return UNCOPY_OK;
}

/* The oldest kept message with the receive's tag becomes its own. */
static uncopy_status_t claim_kept(comm_t *comm, comm_posted_t *p, bool *has_moved)
{
    comm_inbox_t *inbox = comm->inboxes[p->transfer.peer];
    for (comm_message_t *m = inbox->kept; m != NULL; m = m->next) {
        if (m->tag != p->transfer.tag || m->claimer != NULL) {
            continue;
        }
        TRY(check_match(comm, &p->transfer, m->bytes, m->dtype));
        p->is_begun = true;
        m->claimer = p;
        *has_moved = true;
        if (m != inbox->coming) {
            deliver_kept(comm, inbox, m);
        }
        return UNCOPY_OK;
    }
    return UNCOPY_OK;
}

/* ---------------------------------------------------------------- all in progress */

static bool is_first_to_peer(comm_t *comm, const comm_posted_t *send)
{
    for (comm_posted_t *p = comm->posted; p != send; p = p->next) {
        if (p->transfer.kind == UNCOPY_TRANSFER_SEND && !p->is_complete &&
            p->transfer.peer == send->transfer.peer) {
            return false;
        }
    }
    return true;
}

static uncopy_status_t move_one(comm_t *comm, comm_posted_t *p, bool *has_moved)
{
    if (p->is_complete) {
        return UNCOPY_OK;
    }
    if (p->transfer.kind == UNCOPY_TRANSFER_SEND) {
        *has_moved = (is_first_to_peer(comm, p) && send_on(comm, p)) || *has_moved;
        return UNCOPY_OK;
    }
    if (!p->is_begun) {
        TRY(claim_kept(comm, p, has_moved));
    }
    return pump(comm, p, has_moved);
}

/* Moves on all transfers of the rank's threads until none moves. Under transfer_lock. */
static uncopy_status_t move_all(comm_t *comm)
{
    bool has_moved = true;
    while (has_moved) {
        has_moved = false;
        TRY(fault_state(comm));
        for (comm_posted_t *p = comm->posted; p != NULL; p = p->next) {
            TRY(move_one(comm, p, &has_moved));
        }
    }
    return UNCOPY_OK;
}

/* ---------------------------------------------------------------- a call */

typedef struct transfer_call {
    comm_t *comm;
    comm_posted_t *posted;
    int64_t count;
    comm_deadline_t deadline;
    bool has_looked;
} transfer_call_t;

static comm_posted_t *first_incomplete(const transfer_call_t *call)
{
    for (int64_t i = 0; i < call->count; i++) {
        if (!call->posted[i].is_complete) {
            return &call->posted[i];
        }
    }
    return NULL;
}

static const char *kind_words(const comm_posted_t *p)
{
    return p->transfer.kind == UNCOPY_TRANSFER_SEND ? "a send to" : "a receive from";
}

/* What a peer sent before it went is still taken: gone is looked at first, then all moves. */
static uncopy_status_t look_for_gone(transfer_call_t *call)
{
    comm_t *comm = call->comm;
    for (int64_t i = 0; i < call->count; i++) {
        const comm_posted_t *p = &call->posted[i];
        if (p->is_complete || !fault_is_gone(comm, p->transfer.peer, call->has_looked)) {
            continue;
        }
        TRY(move_all(comm));
        if (!p->is_complete) {
            return fault_break(
                comm, UNCOPY_ERROR_PEER,
                "rank %d (process %d) %s; %s it of %" PRId64 " bytes cannot end", p->transfer.peer,
                comm->transport.calls->process(comm->transport.self, p->transfer.peer),
                fault_gone_words(comm, p->transfer.peer), kind_words(p), p->transfer.bytes);
        }
    }
    return UNCOPY_OK;
}

static uncopy_status_t look(void *self)
{
    transfer_call_t *call = self;
    comm_t *comm = call->comm;
    TRY(fault_state(comm));
    (void)pthread_mutex_lock(&comm->transfer_lock);
    uncopy_status_t status = look_for_gone(call);
    const comm_posted_t *p = first_incomplete(call);
    (void)pthread_mutex_unlock(&comm->transfer_lock);
    call->has_looked = true;
    if (status != UNCOPY_OK || p == NULL) {
        return status;
    }
    status = fault_check_deadline(&call->deadline);
    if (status == UNCOPY_OK) {
        return status;
    }
    return fault_break(comm, status,
                       status == UNCOPY_ERROR_TIMEOUT
                           ? "%s rank %d (%" PRId64 " bytes, tag %" PRId64
                             ") did not end within %.3f s"
                           : "%s rank %d (%" PRId64 " bytes, tag %" PRId64
                             ") was interrupted; its time was %.3f s",
                       kind_words(p), p->transfer.peer, p->transfer.bytes, p->transfer.tag,
                       (double)call->deadline.timeout_ns * 1e-9);
}

static uncopy_status_t wait_for_all(transfer_call_t *call)
{
    comm_t *comm = call->comm;
    comm_bell_t *bell = &comm->segments[comm->rank]->bell;
    waiter_t waiter;
    waiter_init(&waiter, comm->is_crowded);
    wait_watch_t watch = {call, look};
    for (;;) {
        /* acquire: before the move, so that a ring after it ends the wait */
        uint32_t rings = atomic_load_explicit(&bell->rings, memory_order_acquire);
        (void)pthread_mutex_lock(&comm->transfer_lock);
        uncopy_status_t status = move_all(comm);
        bool is_done = first_incomplete(call) == NULL;
        (void)pthread_mutex_unlock(&comm->transfer_lock);
        if (status != UNCOPY_OK || is_done) {
            return is_done ? UNCOPY_OK : status;
        }
        TRY(wait_until(&waiter, &bell->rings, &bell->sleepers, rings + 1, -1, &watch));
    }
}

static void enter(transfer_call_t *call, const uncopy_transfer_t *transfers)
{
    comm_t *comm = call->comm;
    (void)pthread_mutex_lock(&comm->transfer_lock);
    for (int64_t i = 0; i < call->count; i++) {
        call->posted[i].transfer = transfers[i];
        *comm->posted_end = &call->posted[i];
        comm->posted_end = &call->posted[i].next;
    }
    (void)pthread_mutex_unlock(&comm->transfer_lock);
}

/* Incomplete ones leave a communicator that is broken: nothing moves in it any more. */
static void leave(transfer_call_t *call)
{
    comm_t *comm = call->comm;
    (void)pthread_mutex_lock(&comm->transfer_lock);
    comm->posted_end = &comm->posted;
    while (*comm->posted_end != NULL) {
        comm_posted_t *p = *comm->posted_end;
        if (p >= call->posted && p < call->posted + call->count) {
            *comm->posted_end = p->next;
        } else {
            comm->posted_end = &p->next;
        }
    }
    (void)pthread_mutex_unlock(&comm->transfer_lock);
    comm_count(&comm->counters.calls, call->count);
}

static uncopy_status_t make_inboxes(comm_t *comm, const uncopy_transfer_t *transfers, int64_t count)
{
    uncopy_status_t status = UNCOPY_OK;
    (void)pthread_mutex_lock(&comm->transfer_lock);
    for (int64_t i = 0; i < count && status == UNCOPY_OK; i++) {
        comm_inbox_t **inbox = &comm->inboxes[transfers[i].peer];
        if (*inbox == NULL) {
            *inbox = memory_allocate(&comm->allocator, sizeof(**inbox), "an inbox");
            status = *inbox != NULL ? UNCOPY_OK : UNCOPY_ERROR_MEMORY;
        }
    }
    (void)pthread_mutex_unlock(&comm->transfer_lock);
    return status;
}

uncopy_status_t comm_transfer(comm_t *comm, const uncopy_transfer_t *transfers,
                              int64_t num_transfers, const uncopy_comm_call_t *call)
{
    TRY(comm_check_process(comm));
    TRY(fault_state(comm));
    TRY(make_inboxes(comm, transfers, num_transfers));
    size_t bytes = (size_t)num_transfers * sizeof(comm_posted_t);
    comm_posted_t *posted = memory_allocate(&comm->allocator, bytes, "transfers");
    if (posted == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    transfer_call_t own = {.comm = comm,
                           .posted = posted,
                           .count = num_transfers,
                           .deadline = comm_deadline(comm, call)};
    enter(&own, transfers);
    uncopy_status_t status = wait_for_all(&own);
    leave(&own);
    memory_release(&comm->allocator, posted, bytes);
    return status;
}

void transfer_release(comm_t *comm)
{
    for (int32_t p = 0; p < comm->size; p++) {
        comm_inbox_t *inbox = comm->inboxes[p];
        if (inbox != NULL) {
            while (inbox->kept != NULL) {
                free_message(comm, inbox, inbox->kept);
            }
            memory_release(&comm->allocator, inbox, sizeof(*inbox));
        }
    }
}
