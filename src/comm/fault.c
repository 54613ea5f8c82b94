/* Breaking a communicator: see fault.h. */
#include "comm/fault.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"

enum { EMPTY = 0, BEING_WRITTEN = 1, READABLE = 2 };

static void write_record(comm_abort_t *record, uncopy_status_t code, uint32_t sequence,
                         const char *words)
{
    uint32_t empty = EMPTY;
    /* acquire: pairs with the other writers'; only the first goes on */
    if (!atomic_compare_exchange_strong_explicit(&record->state, &empty, BEING_WRITTEN,
                                                 memory_order_acquire, memory_order_relaxed)) {
        return;
    }
    record->code = (uint32_t)code;
    record->sequence = sequence;
    (void)snprintf(record->words, sizeof(record->words), "%.*s", COMM_WORDS - 1, words);
    /* seq_cst: before the wake; pairs with the sleepers' look */
    atomic_store(&record->state, READABLE);
}

static void wake_all(comm_t *comm)
{
    for (int32_t p = 0; p < comm->size; p++) {
        comm_segment_t *segment = comm->segments[p];
        for (uint32_t i = 0; i < 2; i++) {
            wait_wake(&comm_segment_slot(segment, comm->chunk_bytes, i)->header.flag);
        }
        wait_ring(&segment->bell.rings, &segment->bell.sleepers);
    }
}

/* A peer is told the same of deaths and mismatches; of other causes, that this rank gave up. */
static uncopy_status_t code_for_peers(uncopy_status_t code)
{
    return code == UNCOPY_ERROR_PEER || code == UNCOPY_ERROR_MISMATCH ? code : UNCOPY_ERROR_ABORTED;
}

/* The collective that this rank is in, or its next one. relaxed: of this moment. */
static uint32_t sequence_now(comm_t *comm)
{
    uint32_t sequence = atomic_load_explicit(&comm->sequence, memory_order_relaxed);
    return sequence + !atomic_load_explicit(&comm->is_running, memory_order_relaxed);
}

uncopy_status_t fault_break(comm_t *comm, uncopy_status_t code, const char *format, ...)
{
    char words[COMM_WORDS];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(words, sizeof(words), format, arguments);
    va_end(arguments);
    char for_peers[COMM_WORDS + COMM_NAME_BYTES + 64];
    uncopy_status_t peers_code = code_for_peers(code);
    if (peers_code == code && code != UNCOPY_ERROR_ABORTED) {
        (void)snprintf(for_peers, sizeof(for_peers), "%s", words);
    } else {
        (void)snprintf(for_peers, sizeof(for_peers), "rank %d aborted communicator \"%s\": %s",
                       comm->rank, comm->name, words);
    }
    uint32_t sequence = sequence_now(comm);
    write_record(&comm->segments[comm->rank]->abort, code, sequence, words);
    for (int32_t p = 0; p < comm->size; p++) {
        write_record(&comm->segments[p]->abort, peers_code, sequence, for_peers);
    }
    wake_all(comm);
    return fault_state(comm);
}

/* A record that is being written is waited for, a moment: its writer may die. */
static uint32_t settled_state(comm_abort_t *record)
{
    enum { MOST_NS = 20000000 };
    /* acquire: pairs with write_record */
    uint32_t state = atomic_load_explicit(&record->state, memory_order_acquire);
    int64_t end_ns = state == BEING_WRITTEN ? wait_now_ns() + MOST_NS : 0;
    while (state == BEING_WRITTEN && wait_now_ns() < end_ns) {
        (void)sched_yield();
        state = atomic_load_explicit(&record->state, memory_order_acquire);
    }
    return state;
}

uncopy_status_t fault_state(comm_t *comm)
{
    comm_abort_t *record = &comm->segments[comm->rank]->abort;
    uint32_t state = settled_state(record);
    if (state == EMPTY) {
        return UNCOPY_OK;
    }
    if (state != READABLE) {
        return status_fail(UNCOPY_ERROR_ABORTED, "communicator \"%s\" is being aborted",
                           comm->name);
    }
    char words[COMM_WORDS];
    memcpy(words, record->words, sizeof(words));
    words[sizeof(words) - 1] = '\0';
    bool is_known = record->code > 0 && record->code <= (uint32_t)UNCOPY_ERROR_SYSTEM;
    return status_fail(is_known ? (uncopy_status_t)record->code : UNCOPY_ERROR_ABORTED, "%s",
                       words);
}

uncopy_status_t fault_state_of_call(comm_t *comm)
{
    comm_abort_t *record = &comm->segments[comm->rank]->abort;
    uint32_t sequence = atomic_load_explicit(&comm->sequence, memory_order_relaxed);
    /* acq_rel, by a write that changes nothing: all reads of peers' memory come before it; pairs
     * with write_record */
    uint32_t state = atomic_fetch_add_explicit(&record->state, 0, memory_order_acq_rel);
    if (state == EMPTY || (state == READABLE && (int32_t)(record->sequence - sequence) > 0)) {
        return UNCOPY_OK;
    }
    return fault_state(comm);
}

bool fault_is_gone(comm_t *comm, int32_t rank, bool is_thorough)
{
    comm_segment_t *segment = comm->segments[rank];
    /* acquire: what the peer posted before is visible after */
    return atomic_load_explicit(&segment->dead, memory_order_acquire) != 0 ||
           atomic_load_explicit(&segment->left, memory_order_acquire) != 0 ||
           comm->transport.calls->is_dead(comm->transport.self, rank, is_thorough);
}

const char *fault_gone_words(comm_t *comm, int32_t rank)
{
    /* acquire: as above */
    bool has_left = atomic_load_explicit(&comm->segments[rank]->left, memory_order_acquire) != 0;
    return has_left ? "left the communicator" : "died";
}

uncopy_status_t fault_check_deadline(comm_deadline_t *deadline)
{
    const uncopy_comm_interrupt_t *interrupt = &deadline->interrupt;
    if (interrupt->is_raised != NULL && interrupt->is_raised(interrupt->self) != 0) {
        return UNCOPY_ERROR_INTERRUPTED;
    }
    int64_t now_ns = wait_now_ns();
    if (deadline->end_ns == 0) {
        deadline->end_ns =
            deadline->timeout_ns > INT64_MAX - now_ns ? INT64_MAX : now_ns + deadline->timeout_ns;
    }
    return now_ns > deadline->end_ns ? UNCOPY_ERROR_TIMEOUT : UNCOPY_OK;
}
