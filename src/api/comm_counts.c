/* What a communicator did, for the caller. */
#include "api/comm.h"

/* relaxed, all: statistics */
static int64_t get(const atomic_llong *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

void uncopy_comm_counts(const uncopy_comm_t *comm, uncopy_comm_counts_t *out_counts)
{
    const comm_counters_t *c = &comm->comm->counters;
    *out_counts = (uncopy_comm_counts_t){
        .calls = get(&c->calls),
        .one_step = get(&c->one_step),
        .staged = get(&c->staged),
        .direct = get(&c->direct),
        .steps = get(&c->steps),
        .bytes_staged = get(&c->bytes_staged),
        .bytes_window = get(&c->bytes_window),
        .bytes_read = get(&c->bytes_read),
        .bytes_streamed = get(&c->bytes_streamed),
        .waits_slept = get(&c->waits_slept),
        .wait_ns = get(&c->wait_ns),
    };
}

void uncopy_comm_reset_counts(uncopy_comm_t *comm)
{
    comm_counters_t *c = &comm->comm->counters;
    atomic_llong *all[] = {&c->calls,          &c->one_step,     &c->staged,       &c->direct,
                           &c->steps,          &c->bytes_staged, &c->bytes_window, &c->bytes_read,
                           &c->bytes_streamed, &c->waits_slept,  &c->wait_ns};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        atomic_store_explicit(all[i], 0, memory_order_relaxed);
    }
}
