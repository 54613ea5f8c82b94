/* Collectives of a plan on a communicator of ours: straight from the run's operands into their
 * destination, in the thread that runs. */
#include <string.h>

#include "api/objects.h"
#include "base/status.h"

/* What one collective needs, taken from its operands. */
typedef struct exchange {
    uncopy_comm_t *comm;
    uncopy_comm_call_t call;
    const void *source;
    void *destination;
    int64_t source_count, destination_count; /* elements */
    uncopy_dtype_t dtype;
} exchange_t;

typedef struct interrupt {
    const uncopy_host_t *host;
    void *call_data;
} interrupt_t;

static int is_raised(void *self)
{
    const interrupt_t *interrupt = self;
    return interrupt->host->is_interrupted(interrupt->host->self, interrupt->call_data);
}

static int64_t count_of(const uncopy_bound_t *bound)
{
    int64_t count = 1;
    for (int32_t d = 0; d < bound->rank; d++) {
        count *= bound->sizes[d];
    }
    return count;
}

static uncopy_status_t check_group(const uncopy_collective_t *collective, const uncopy_comm_t *comm)
{
    int32_t size = uncopy_comm_size(comm);
    int32_t rank = uncopy_comm_rank(comm);
    if (size == collective->group_size && rank == collective->group_rank) {
        return UNCOPY_OK;
    }
    return status_fail(UNCOPY_ERROR_GROUP,
                       "the group \"%s\" is now rank %d of %d; the plan was made for rank %d of %d",
                       collective->group_name, rank, size, collective->group_rank,
                       collective->group_size);
}

/* A broadcast works in its destination. */
static uncopy_status_t broadcast(const exchange_t *exchange, int32_t root)
{
    if (root == uncopy_comm_rank(exchange->comm) && exchange->source != exchange->destination) {
        memcpy(exchange->destination, exchange->source,
               (size_t)exchange->source_count * uncopy_dtype_size(exchange->dtype));
    }
    return uncopy_comm_broadcast(exchange->comm, exchange->destination, exchange->destination_count,
                                 exchange->dtype, root, &exchange->call);
}

static uncopy_status_t run_exchange(const exchange_t *exchange, opcode_t opcode, int attribute)
{
    uncopy_comm_t *comm = exchange->comm;
    const void *source = exchange->source;
    void *destination = exchange->destination;
    const uncopy_comm_call_t *call = &exchange->call;
    uncopy_dtype_t dtype = exchange->dtype;
    uncopy_reduction_t reduction = (uncopy_reduction_t)attribute;
    switch (opcode) {
    case OPCODE_ALL_GATHER:
        return uncopy_comm_all_gather(comm, source, destination, exchange->source_count, dtype,
                                      call);
    case OPCODE_ALL_REDUCE:
        return uncopy_comm_all_reduce(comm, source, destination, exchange->source_count, dtype,
                                      reduction, call);
    case OPCODE_REDUCE_SCATTER:
        return uncopy_comm_reduce_scatter(comm, source, destination, exchange->destination_count,
                                          dtype, reduction, call);
    case OPCODE_ALL_TO_ALL:
        return uncopy_comm_all_to_all(comm, source, destination,
                                      exchange->source_count / uncopy_comm_size(comm), dtype, call);
    default:
        return broadcast(exchange, attribute);
    }
}

/* Reductions of some dtypes are the host's. */
static bool is_ours(opcode_t opcode, uncopy_dtype_t dtype, int attribute)
{
    bool is_reducing = opcode == OPCODE_ALL_REDUCE || opcode == OPCODE_REDUCE_SCATTER;
    return !is_reducing || uncopy_comm_reduces(dtype, (uncopy_reduction_t)attribute) != 0;
}

static uncopy_status_t serve(const uncopy_host_t *host, void *call_data, opcode_t opcode,
                             const uncopy_collective_t *collective, uncopy_comm_t *comm,
                             run_served_t *served)
{
    TRY(check_group(collective, comm));
    interrupt_t interrupt = {host, call_data};
    exchange_t exchange = {.comm = comm,
                           .source = collective->source->data,
                           .destination = collective->destination->data,
                           .source_count = count_of(collective->source),
                           .destination_count = count_of(collective->destination),
                           .dtype = collective->destination->dtype};
    exchange.call.interrupt.self = &interrupt;
    exchange.call.interrupt.is_raised = host->is_interrupted != NULL ? is_raised : NULL;
    uncopy_comm_counts_t before;
    uncopy_comm_counts_t after;
    uncopy_comm_counts(comm, &before);
    uncopy_status_t status = run_exchange(&exchange, opcode, (int)collective->attribute);
    uncopy_comm_counts(comm, &after);
    served->num_collectives++;
    served->bytes_staged += after.bytes_staged - before.bytes_staged;
    return status;
}

uncopy_status_t collective_run(const uncopy_host_t *host, void *call_data, opcode_t opcode,
                               const uncopy_collective_t *collective, run_served_t *served,
                               bool *out_is_served)
{
    *out_is_served = false;
    if (!is_ours(opcode, collective->destination->dtype, (int)collective->attribute)) {
        return UNCOPY_OK;
    }
    uncopy_comm_t *comm = host->find_comm(host->self, call_data, collective->group_name);
    if (comm == NULL) {
        return UNCOPY_OK;
    }
    *out_is_served = true;
    uncopy_status_t status = serve(host, call_data, opcode, collective, comm, served);
    uncopy_comm_release(comm);
    return status;
}
