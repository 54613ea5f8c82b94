/* Windows behind their public handles. */
#include "api/comm.h"
#include "api/objects.h"
#include "base/status.h"

struct uncopy_window {
    uncopy_comm_t *comm; /* held */
    comm_window_t *window;
    int64_t bytes;
};

uncopy_status_t uncopy_window_create(uncopy_comm_t *comm, int64_t bytes,
                                     const uncopy_comm_call_t *call, uncopy_window_t **out_window)
{
    enum { MOST_BITS = 46 }; /* of an address space */
    if (bytes < 0 || bytes > (1LL << MOST_BITS) || out_window == NULL) {
        return status_fail(UNCOPY_ERROR_ARGUMENT, "a window of %lld bytes", (long long)bytes);
    }
    uncopy_window_t *handle = memory_allocate(&comm->allocator, sizeof(*handle), "a window");
    comm_window_t *window = NULL;
    /* also without memory: the peers wait for this rank */
    uncopy_status_t status = comm_window_create(comm->comm, bytes, handle != NULL, call, &window);
    if (status != UNCOPY_OK) {
        memory_release(&comm->allocator, handle, sizeof(*handle));
        return status;
    }
    *handle = (uncopy_window_t){comm, window, bytes};
    window->handle = handle;
    /* relaxed: the caller holds a reference */
    atomic_fetch_add_explicit(&comm->holders, 1, memory_order_relaxed);
    *out_window = handle;
    return UNCOPY_OK;
}

void uncopy_window_release(uncopy_window_t *window)
{
    if (window == NULL) {
        return;
    }
    uncopy_comm_t *comm = window->comm;
    comm_window_release(window->window);
    memory_release(&comm->allocator, window, sizeof(*window));
    comm_handle_drop_holder(comm);
}

void *uncopy_window_data(const uncopy_window_t *window)
{
    return window->window->memory.parts[window->comm->comm->rank];
}

int64_t uncopy_window_bytes(const uncopy_window_t *window)
{
    return window->bytes;
}

const void *uncopy_window_peer_data(const uncopy_window_t *window, int32_t rank)
{
    bool is_rank = rank >= 0 && rank < window->comm->comm->size;
    return is_rank ? window->window->memory.parts[rank] : NULL;
}

uncopy_window_t *uncopy_comm_find_window(uncopy_comm_t *comm, const void *address, int64_t bytes)
{
    comm_window_t *found = bytes >= 0 ? comm_window_find(comm->comm, address, (size_t)bytes) : NULL;
    return found != NULL ? found->handle : NULL;
}
