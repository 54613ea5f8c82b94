/* The step: see step.h for the protocol and its invariants s1, s2. */
#include "comm/step.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>

#include "comm/fault.h"

static comm_slot_t *slot_of(comm_t *comm, int32_t rank, uint32_t step)
{
    return comm_segment_slot(comm->segments[rank], comm->chunk_bytes, step);
}

comm_slot_t *step_next(comm_t *comm)
{
    return slot_of(comm, comm->rank, comm->step + 1);
}

comm_slot_t *step_slot(comm_t *comm, int32_t peer)
{
    return slot_of(comm, peer, comm->step);
}

void step_announce(comm_t *comm, comm_source_t source, uint32_t rounds)
{
    comm_header_t *header = &step_next(comm)->header;
    const comm_signature_t *signature = &comm->signature;
    header->operation = (uint8_t)signature->operation;
    header->dtype = (uint8_t)signature->dtype;
    header->reduction = (uint8_t)signature->reduction;
    header->source = (uint8_t)source;
    header->root = signature->root;
    header->sequence = comm->sequence;
    header->bytes = signature->bytes;
    header->shape = signature->shape;
    header->address = 0;
    header->window = 0;
    header->rounds = rounds;
    header->rows = 0;
    header->strided = 0;
}

void step_post(comm_t *comm)
{
    comm_pause(comm, TRANSPORT_BEFORE_POST);
    comm_header_t *header = &step_next(comm)->header;
    /* relaxed: a hint for waiters */
    atomic_store_explicit(&header->cpu, sched_getcpu(), memory_order_relaxed);
    comm->step++;
    wait_publish(&header->flag, &header->sleepers, comm->step);
}

/* ---------------------------------------------------------------- waiting */

typedef struct wait_state {
    comm_t *comm;
    int32_t peer;
    bool has_looked;
} wait_state_t;

static uncopy_status_t fail_gone(comm_t *comm, int32_t peer)
{
    return fault_break(
        comm, UNCOPY_ERROR_PEER,
        "rank %d (process %d) %s; collective %" PRIu32 " of \"%.40s\" (%s) cannot end", peer,
        comm->transport.calls->process(comm->transport.self, peer), fault_gone_words(comm, peer),
        comm->sequence, comm->name, comm_operation_name(comm->signature.operation));
}

static uncopy_status_t fail_late(comm_t *comm, int32_t peer)
{
    uint32_t posted =
        atomic_load_explicit(&slot_of(comm, peer, comm->step)->header.flag, memory_order_relaxed);
    return fault_break(
        comm, UNCOPY_ERROR_TIMEOUT,
        "rank %d did not come to collective %" PRIu32
        " of \"%.40s\" (%s) within %.3f s; it is alive, at step %" PRIu32 " of %" PRIu32,
        peer, comm->sequence, comm->name, comm_operation_name(comm->signature.operation),
        (double)comm->deadline.timeout_ns * 1e-9, posted, comm->step);
}

/* A peer that is gone ends the wait if it has not posted this step. Order matters: gone is looked
 * at before the flag, so that a peer's last post is not missed. */
static uncopy_status_t look_for_gone(comm_t *comm, bool is_thorough)
{
    for (int32_t p = 0; p < comm->size; p++) {
        if (p != comm->rank && fault_is_gone(comm, p, is_thorough) &&
            !wait_has_come(&slot_of(comm, p, comm->step)->header.flag, comm->step)) {
            return fail_gone(comm, p);
        }
    }
    return UNCOPY_OK;
}

uncopy_status_t step_check_alive(comm_t *comm)
{
    for (int32_t p = 0; p < comm->size; p++) {
        if (p != comm->rank && fault_is_gone(comm, p, true)) {
            return fail_gone(comm, p);
        }
    }
    return UNCOPY_OK;
}

static uncopy_status_t look(void *self)
{
    wait_state_t *state = self;
    comm_t *comm = state->comm;
    uncopy_status_t status = fault_state(comm);
    if (status == UNCOPY_OK) {
        status = look_for_gone(comm, state->has_looked);
    }
    state->has_looked = true;
    if (status != UNCOPY_OK) {
        return status;
    }
    status = fault_check_deadline(&comm->deadline);
    if (status == UNCOPY_ERROR_TIMEOUT) {
        return fail_late(comm, state->peer);
    }
    if (status == UNCOPY_ERROR_INTERRUPTED) {
        return fault_break(comm, status, "interrupted while waiting for rank %d in %s", state->peer,
                           comm_operation_name(comm->signature.operation));
    }
    return status;
}

uncopy_status_t step_wait(comm_t *comm, int32_t peer)
{
    comm_header_t *header = &slot_of(comm, peer, comm->step)->header;
    if (wait_has_come(&header->flag, comm->step)) {
        return UNCOPY_OK;
    }
    /* relaxed: a hint */
    int32_t cpu = atomic_load_explicit(&slot_of(comm, peer, comm->step - 1)->header.cpu,
                                       memory_order_relaxed);
    wait_state_t state = {.comm = comm, .peer = peer};
    wait_watch_t watch = {.self = &state, .look = look};
    return wait_until(&comm->waiter, &header->flag, &header->sleepers, comm->step, cpu, &watch);
}

/* ---------------------------------------------------------------- comparing */

static void describe(char *words, size_t size, const comm_header_t *header)
{
    const char *dtype = uncopy_dtype_name((uncopy_dtype_t)header->dtype);
    int length =
        snprintf(words, size, "%" PRIu32 " %s of %" PRIu64 " bytes%s, %s", header->sequence,
                 comm_operation_name((comm_operation_t)header->operation), header->bytes,
                 header->shape != 0 ? " in a list" : "", dtype != NULL ? dtype : "?");
    const char *reduction = uncopy_reduction_name((uncopy_reduction_t)header->reduction);
    bool reduces = header->operation == COMM_REDUCE_SCATTER ||
                   header->operation == COMM_ALL_REDUCE || header->operation == COMM_REDUCE;
    if (length > 0 && (size_t)length < size && reduces && reduction != NULL) {
        length += snprintf(words + length, size - (size_t)length, ", %s", reduction);
    }
    if (length > 0 && (size_t)length < size && header->root >= 0) {
        (void)snprintf(words + length, size - (size_t)length, ", root %d", header->root);
    }
}

static uncopy_status_t compare(comm_t *comm, int32_t peer)
{
    const comm_header_t *own = &step_slot(comm, comm->rank)->header;
    const comm_header_t *other = &step_slot(comm, peer)->header;
    if (own->operation == other->operation && own->dtype == other->dtype &&
        own->reduction == other->reduction && own->root == other->root &&
        own->sequence == other->sequence && own->bytes == other->bytes &&
        own->shape == other->shape) {
        return UNCOPY_OK;
    }
    char here[80], there[80];
    describe(here, sizeof(here), own);
    describe(there, sizeof(there), other);
    bool is_first = comm->rank < peer;
    return fault_break(comm, UNCOPY_ERROR_MISMATCH, "calls do not match: rank %d: %s; rank %d: %s",
                       is_first ? comm->rank : peer, is_first ? here : there,
                       is_first ? peer : comm->rank, is_first ? there : here);
}

uncopy_status_t step_arrive(comm_t *comm, int32_t peer)
{
    uncopy_status_t status = step_wait(comm, peer);
    return status == UNCOPY_OK ? compare(comm, peer) : status;
}

static uncopy_status_t for_all(comm_t *comm, uncopy_status_t (*call)(comm_t *comm, int32_t peer))
{
    for (int32_t i = 1; i < comm->size; i++) {
        uncopy_status_t status = call(comm, (comm->rank + i) % comm->size);
        if (status != UNCOPY_OK) {
            return status;
        }
    }
    return UNCOPY_OK;
}

uncopy_status_t step_wait_all(comm_t *comm)
{
    return for_all(comm, step_wait);
}

uncopy_status_t step_arrive_all(comm_t *comm)
{
    return for_all(comm, step_arrive);
}

uncopy_status_t step_close(comm_t *comm)
{
    step_post(comm);
    return step_wait_all(comm);
}
