/* Windows: memory of each rank that all others have mapped.
 *
 * Making one is a collective of two steps: every rank makes its own part and delivers it; sizes are
 * exchanged; every rank maps the others'; whether all succeeded is exchanged. Windows are numbered
 * in the order of making, the same on all ranks; numbers are never used again.
 *
 * Releasing is for each rank alone. A part ends in one more page whose first word says that its
 * owner has released it. A rank keeps the parts of those that have not, because they may still
 * publish sources there; it looks whenever it makes or releases a window. */
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "comm/comm.h"
#include "comm/fault.h"
#include "comm/step.h"

static size_t part_bytes(int64_t bytes)
{
    return ((size_t)bytes + COMM_PAGE - 1) / COMM_PAGE * COMM_PAGE + COMM_PAGE;
}

static _Atomic uint32_t *released_word(const comm_window_t *window, int32_t rank)
{
    char *end = window->memory.parts[rank] + window->memory.bytes[rank];
    return (_Atomic uint32_t *)(void *)(end - COMM_PAGE);
}

static void unmap_part(comm_window_t *window, int32_t rank)
{
    const transport_t *transport = &window->comm->transport;
    if (window->memory.parts[rank] != NULL) {
        transport->calls->window_unmap(transport->self, window->number, rank,
                                       window->memory.parts[rank], window->memory.bytes[rank]);
        window->memory.parts[rank] = NULL;
    }
}

static void unmap_all(comm_window_t *window)
{
    for (int32_t p = 0; p < window->comm->size; p++) {
        unmap_part(window, p);
    }
}

/* Drops parts whose owners have released them; true if none is left. */
static bool drop_released(comm_window_t *window)
{
    bool is_empty = true;
    for (int32_t p = 0; p < window->comm->size; p++) {
        /* acquire: the owner's last use comes before */
        if (window->memory.parts[p] != NULL &&
            atomic_load_explicit(released_word(window, p), memory_order_acquire) != 0) {
            unmap_part(window, p);
        }
        is_empty = is_empty && window->memory.parts[p] == NULL;
    }
    return is_empty;
}

/* Under window_lock. */
static void sweep(comm_t *comm)
{
    for (comm_window_t **at = &comm->windows; *at != NULL;) {
        comm_window_t *window = *at;
        if (window->is_released && drop_released(window)) {
            *at = window->next;
            memory_release(&comm->allocator, window, sizeof(*window));
        } else {
            at = &window->next;
        }
    }
}

/* ---------------------------------------------------------------- making */

/* Tells every rank whether this one got so far; *out_failed: a rank that did not, or negative. */
static uncopy_status_t exchange(comm_window_t *window, bool is_first, bool is_made,
                                int32_t *out_failed)
{
    comm_t *comm = window->comm;
    step_announce(comm, COMM_SOURCE_NONE, 1);
    int64_t *sizes = step_next(comm)->sizes;
    sizes[0] = is_made ? (int64_t)window->memory.bytes[comm->rank] : -1;
    step_post(comm);
    TRY(step_arrive_all(comm));
    *out_failed = is_made ? -1 : comm->rank;
    for (int32_t p = comm->size - 1; p >= 0; p--) {
        int64_t bytes = step_slot(comm, p)->sizes[0];
        if (bytes < 0) {
            *out_failed = p;
        } else if (is_first) {
            window->memory.bytes[p] = (size_t)bytes;
        }
    }
    return UNCOPY_OK;
}

/* What could not be delivered to a rank that has died is no lack of memory. */
static uncopy_status_t fail(const comm_window_t *window, int32_t failed)
{
    TRY(step_check_alive(window->comm));
    if (failed == window->comm->rank) {
        return UNCOPY_ERROR_MEMORY;
    }
    return status_fail(UNCOPY_ERROR_MEMORY, "no memory for a window on rank %d of \"%s\"", failed,
                       window->comm->name);
}

static uncopy_status_t make(comm_window_t *window, bool has_record)
{
    comm_t *comm = window->comm;
    const transport_t *transport = &comm->transport;
    int32_t failed = -1;
    transport_memory_t *memory = &window->memory;
    uncopy_status_t made =
        has_record ? transport->calls->window_make(transport->self, window->number, memory)
                   : UNCOPY_ERROR_MEMORY;
    TRY(exchange(window, true, made == UNCOPY_OK, &failed));
    if (failed >= 0) {
        return fail(window, failed);
    }
    made = transport->calls->window_map(transport->self, window->number, memory);
    TRY(exchange(window, false, made == UNCOPY_OK, &failed));
    return failed >= 0 ? fail(window, failed) : UNCOPY_OK;
}

/* A rank without memory for the record takes part all the same, so that its peers hear of it. */
uncopy_status_t comm_window_create(comm_t *comm, int64_t bytes, bool can_keep,
                                   const uncopy_comm_call_t *call, comm_window_t **out_window)
{
    comm_window_t *record = memory_allocate(&comm->allocator, sizeof(*record), "a window");
    comm_signature_t signature = {.operation = COMM_WINDOW_CREATE, .root = -1};
    uncopy_status_t status = comm_begin(comm, &signature, call);
    if (status == UNCOPY_OK) {
        comm_window_t window = {.comm = comm, .number = ++comm->num_windows_made, .bytes = bytes};
        window.memory.descriptor = -1;
        window.memory.bytes[comm->rank] = part_bytes(bytes);
        status = make(&window, record != NULL && can_keep);
        if (status != UNCOPY_OK) {
            unmap_all(&window);
        } else {
            *record = window;
        }
        status = comm_end(comm, status);
        if (status != UNCOPY_OK && record != NULL && record->comm != NULL) {
            unmap_all(record);
        }
    }
    if (status != UNCOPY_OK) {
        memory_release(&comm->allocator, record, sizeof(*record));
        return status;
    }
    (void)pthread_mutex_lock(&comm->window_lock);
    sweep(comm);
    record->next = comm->windows;
    comm->windows = record;
    (void)pthread_mutex_unlock(&comm->window_lock);
    *out_window = record;
    return UNCOPY_OK;
}

/* ---------------------------------------------------------------- releasing and finding */

void comm_window_release(comm_window_t *window)
{
    comm_t *comm = window->comm;
    if (comm->process != getpid()) {
        unmap_all(window); /* the child's copies */
        window->is_released = true;
        return;
    }
    (void)pthread_mutex_lock(&comm->window_lock);
    window->is_released = true;
    /* release: pairs with drop_released */
    atomic_store_explicit(released_word(window, comm->rank), 1, memory_order_release);
    unmap_part(window, comm->rank);
    sweep(comm);
    (void)pthread_mutex_unlock(&comm->window_lock);
}

void comm_windows_release(comm_t *comm)
{
    while (comm->windows != NULL) {
        comm_window_t *window = comm->windows;
        comm->windows = window->next;
        unmap_all(window);
        memory_release(&comm->allocator, window, sizeof(*window));
    }
}

comm_window_t *comm_window_find(comm_t *comm, const void *address, size_t bytes)
{
    uintptr_t first = (uintptr_t)address;
    (void)pthread_mutex_lock(&comm->window_lock);
    comm_window_t *found = NULL;
    for (comm_window_t *w = comm->windows; w != NULL && found == NULL; w = w->next) {
        uintptr_t begin = (uintptr_t)w->memory.parts[comm->rank];
        size_t room = w->memory.bytes[comm->rank] - COMM_PAGE;
        if (!w->is_released && first >= begin && first - begin <= room &&
            bytes <= room - (first - begin)) {
            found = w;
        }
    }
    (void)pthread_mutex_unlock(&comm->window_lock);
    return found;
}

char *comm_window_resolve(comm_t *comm, uint32_t number, int32_t rank, uint64_t offset,
                          uint64_t bytes)
{
    char *address = NULL;
    (void)pthread_mutex_lock(&comm->window_lock);
    for (comm_window_t *w = comm->windows; w != NULL; w = w->next) {
        if (w->number != number || w->memory.parts[rank] == NULL) {
            continue;
        }
        uint64_t room = w->memory.bytes[rank] - COMM_PAGE;
        if (offset <= room && bytes <= room - offset) {
            address = w->memory.parts[rank] + offset;
        }
        break;
    }
    (void)pthread_mutex_unlock(&comm->window_lock);
    return address;
}
