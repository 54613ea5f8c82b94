/* A communicator's life, and what every collective does first and last. */
#include "comm/comm.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "comm/fault.h"
#include "comm/step.h"
#include "comm/transfer.h"

const char *comm_operation_name(comm_operation_t operation)
{
    static const char *const names[] = {
        [COMM_BARRIER] = "barrier",
        [COMM_ALL_GATHER] = "all_gather",
        [COMM_REDUCE_SCATTER] = "reduce_scatter",
        [COMM_ALL_REDUCE] = "all_reduce",
        [COMM_REDUCE] = "reduce",
        [COMM_BROADCAST] = "broadcast",
        [COMM_GATHER] = "gather",
        [COMM_SCATTER] = "scatter",
        [COMM_ALL_TO_ALL] = "all_to_all",
        [COMM_WINDOW_CREATE] = "window_create",
        [COMM_SPLIT] = "split",
    };
    size_t count = sizeof(names) / sizeof(names[0]);
    return (size_t)operation < count ? names[operation] : "unknown operation";
}

uncopy_status_t comm_start(const comm_setup_t *setup, comm_t **out_comm)
{
    comm_t *comm = memory_allocate(&setup->allocator, sizeof(*comm), "a communicator");
    if (comm == NULL) {
        setup->transport.calls->release(setup->transport.self, false);
        return UNCOPY_ERROR_MEMORY;
    }
    comm->allocator = setup->allocator;
    (void)snprintf(comm->name, sizeof(comm->name), "%s", setup->name);
    comm->rank = setup->rank;
    comm->size = setup->size;
    comm->chunk_bytes = setup->chunk_bytes;
    comm->streaming_bytes = setup->streaming_bytes;
    comm->is_crowded = setup->is_crowded;
    comm->can_read = setup->can_read;
    atomic_init(&comm->timeout_ns, setup->timeout_ns);
    comm->interrupt = setup->interrupt;
    comm->process = getpid();
    comm->transport = setup->transport;
    memcpy(comm->segments, setup->segments, sizeof(comm->segments));
    waiter_init(&comm->waiter, setup->is_crowded);
    comm->posted_end = &comm->posted;
    (void)pthread_mutex_init(&comm->lock, NULL);
    (void)pthread_mutex_init(&comm->window_lock, NULL);
    (void)pthread_mutex_init(&comm->transfer_lock, NULL);
    *out_comm = comm;
    return UNCOPY_OK;
}

/* Sleepers of peers are woken, so that they see it at once. */
void comm_leave(comm_t *comm)
{
    if (comm->process != getpid()) {
        return;
    }
    comm_segment_t *segment = comm->segments[comm->rank];
    /* seq_cst: after all posts; pairs with fault_is_gone */
    atomic_store(&segment->left, 1);
    for (uint32_t i = 0; i < 2; i++) {
        wait_wake(&comm_segment_slot(segment, comm->chunk_bytes, i)->header.flag);
    }
    for (int32_t p = 0; p < comm->size; p++) {
        wait_ring(&comm->segments[p]->bell.rings, &comm->segments[p]->bell.sleepers);
    }
}

/* A locked mutex is no concern here: nobody may be in a call. In a forked child the parent's
 * threads may hold locks for ever, so they are left alone. */
void comm_release(comm_t *comm)
{
    if (comm == NULL) {
        return;
    }
    bool is_child = comm->process != getpid();
    if (!is_child) {
        (void)pthread_mutex_destroy(&comm->lock);
        (void)pthread_mutex_destroy(&comm->window_lock);
        (void)pthread_mutex_destroy(&comm->transfer_lock);
    }
    if (!is_child) {
        comm_leave(comm);
    }
    transfer_release(comm);
    comm_windows_release(comm);
    comm->transport.calls->release(comm->transport.self, is_child);
    uncopy_allocator_t allocator = comm->allocator;
    memory_release(&allocator, comm->scratch, comm->scratch_bytes);
    memory_release(&allocator, comm, sizeof(*comm));
}

uncopy_status_t comm_check_process(const comm_t *comm)
{
    pid_t process = getpid();
    return process == comm->process
               ? UNCOPY_OK
               : status_fail(UNCOPY_ERROR_GROUP,
                             "communicator \"%s\" belongs to process %d, this is process %d: a "
                             "forked child makes its own",
                             comm->name, (int)comm->process, (int)process);
}

comm_deadline_t comm_deadline(comm_t *comm, const uncopy_comm_call_t *call)
{
    comm_deadline_t deadline = {.interrupt = comm->interrupt};
    /* relaxed: of whichever moment */
    deadline.timeout_ns = atomic_load_explicit(&comm->timeout_ns, memory_order_relaxed);
    if (call != NULL && call->timeout_ns > 0) {
        deadline.timeout_ns = call->timeout_ns;
    }
    if (call != NULL && call->interrupt.is_raised != NULL) {
        deadline.interrupt = call->interrupt;
    }
    return deadline;
}

uncopy_status_t comm_begin(comm_t *comm, const comm_signature_t *signature,
                           const uncopy_comm_call_t *call)
{
    TRY(comm_check_process(comm));
    (void)pthread_mutex_lock(&comm->lock);
    uncopy_status_t status = fault_state(comm);
    if (status != UNCOPY_OK) {
        (void)pthread_mutex_unlock(&comm->lock);
        return status;
    }
    comm->signature = *signature;
    comm->deadline = comm_deadline(comm, call);
    /* relaxed: one writer, under lock */
    uint32_t sequence = atomic_load_explicit(&comm->sequence, memory_order_relaxed);
    atomic_store_explicit(&comm->sequence, sequence + 1, memory_order_relaxed);
    atomic_store_explicit(&comm->is_running, true, memory_order_relaxed);
    comm->first_step = comm->step + 1;
    comm->past_caches = false;
    comm->reuse = call != NULL ? call->reuse : UNCOPY_COMM_REUSE_SOON;
    return UNCOPY_OK;
}

void comm_set_landing(comm_t *comm, size_t bytes)
{
    size_t from = comm->streaming_bytes;
    from *= comm->reuse == UNCOPY_COMM_REUSE_LATER ? 1 : 2;
    comm->past_caches = bytes >= from;
    if (comm->past_caches) {
        comm_count(&comm->counters.bytes_streamed, (int64_t)bytes);
    }
}

/* A rank that was stopped inside a call may find every flag it waits for although its peers have
 * given up since and written their buffers again: a success counts only if nobody has given up in
 * this collective or before. */
uncopy_status_t comm_end(comm_t *comm, uncopy_status_t status)
{
    if (status == UNCOPY_OK) {
        status = fault_state_of_call(comm);
    }
    atomic_store_explicit(&comm->is_running, false, memory_order_relaxed);
    comm_count(&comm->counters.calls, 1);
    comm_count(&comm->counters.steps, comm->step + 1 - comm->first_step);
    if (comm->waiter.waited_ns != 0) {
        comm_count(&comm->counters.waits_slept, comm->waiter.slept);
        comm_count(&comm->counters.wait_ns, comm->waiter.waited_ns);
        comm->waiter.slept = 0;
        comm->waiter.waited_ns = 0;
    }
    (void)pthread_mutex_unlock(&comm->lock);
    return status;
}

void *comm_scratch(comm_t *comm, size_t bytes)
{
    if (bytes > comm->scratch_bytes) {
        void *scratch = memory_allocate(&comm->allocator, bytes, "rows of a collective");
        if (scratch == NULL) {
            return NULL;
        }
        memory_release(&comm->allocator, comm->scratch, comm->scratch_bytes);
        comm->scratch = scratch;
        comm->scratch_bytes = bytes;
    }
    return comm->scratch;
}

uncopy_status_t comm_barrier(comm_t *comm)
{
    step_announce(comm, COMM_SOURCE_NONE, 1);
    step_post(comm);
    TRY(step_arrive_all(comm));
    comm_count(&comm->counters.one_step, 1);
    return UNCOPY_OK;
}
