/* Communicators behind their public handles: arguments are checked here, the work is src/comm's. */
#include "api/comm.h"

#include <string.h>
#include <unistd.h>

#include "api/objects.h"
#include "base/checked.h"
#include "base/dtype.h"
#include "base/status.h"
#include "comm/fault.h"
#include "comm/reduce.h"
#include "comm/step.h"
#include "comm/tuning.h"

enum {
    NAME_MOST = 100,
    CHUNK_LEAST = 4096,
    CHUNK_MOST = 1 << 30,
};
#define TIMEOUT_DEFAULT_NS (30LL * 60 * 1000000000)

/* ---------------------------------------------------------------- life */

static uncopy_status_t check_options(const uncopy_comm_options_t *options)
{
    size_t length = options->name != NULL ? strlen(options->name) : 0;
    if (length < 1 || length > NAME_MOST) {
        return status_fail(UNCOPY_ERROR_ARGUMENT,
                           "a communicator's name has 1 to %d bytes, not %zu", NAME_MOST, length);
    }
    if (options->size < 1 || options->size > UNCOPY_COMM_MAX_SIZE || options->rank < 0 ||
        options->rank >= options->size) {
        return status_fail(UNCOPY_ERROR_ARGUMENT, "rank %d of size %d: size is 1 to %d",
                           options->rank, options->size, UNCOPY_COMM_MAX_SIZE);
    }
    if ((options->store == NULL) == (options->directory == NULL) ||
        (options->store != NULL && (options->store->set == NULL || options->store->get == NULL))) {
        return status_fail(UNCOPY_ERROR_ARGUMENT,
                           "give a store with set and get, or a directory, and not both");
    }
    if (options->timeout_ns < 0 || options->streaming_bytes < 0 ||
        (options->chunk_bytes != 0 &&
         (options->chunk_bytes < CHUNK_LEAST || options->chunk_bytes > CHUNK_MOST ||
          options->chunk_bytes % COMM_LINE != 0))) {
        return status_fail(UNCOPY_ERROR_ARGUMENT,
                           "timeout_ns %lld, chunk_bytes %lld (%d to %d, a multiple of %d), "
                           "streaming_bytes %lld",
                           (long long)options->timeout_ns, (long long)options->chunk_bytes,
                           CHUNK_LEAST, CHUNK_MOST, COMM_LINE, (long long)options->streaming_bytes);
    }
    return UNCOPY_OK;
}

static uncopy_comm_options_t complete(const uncopy_comm_options_t *options)
{
    uncopy_comm_options_t whole = *options;
    whole.timeout_ns = options->timeout_ns != 0 ? options->timeout_ns : TIMEOUT_DEFAULT_NS;
    whole.chunk_bytes = options->chunk_bytes != 0 ? options->chunk_bytes : TUNING_CHUNK;
    whole.streaming_bytes =
        options->streaming_bytes != 0 ? options->streaming_bytes : TUNING_STREAMING;
    return whole;
}

uncopy_status_t comm_handle_make(uncopy_context_t *context, const uncopy_allocator_t *allocator,
                                 uncopy_comm_t **out_handle)
{
    uncopy_comm_t *handle = memory_allocate(allocator, sizeof(*handle), "a communicator");
    if (handle == NULL) {
        return UNCOPY_ERROR_MEMORY;
    }
    atomic_init(&handle->users, 1);
    atomic_init(&handle->holders, 1);
    handle->context = context;
    handle->allocator = *allocator;
    if (context != NULL) {
        uncopy_context_retain(context);
    }
    *out_handle = handle;
    return UNCOPY_OK;
}

void comm_handle_free(uncopy_comm_t *handle)
{
    uncopy_context_t *context = handle->context;
    uncopy_allocator_t allocator = handle->allocator;
    comm_release(handle->comm);
    memory_release(&allocator, handle, sizeof(*handle));
    uncopy_context_release(context);
}

uncopy_status_t uncopy_comm_create(uncopy_context_t *context, const uncopy_comm_options_t *options,
                                   uncopy_comm_t **out_comm)
{
    if (options == NULL || out_comm == NULL) {
        return status_fail(UNCOPY_ERROR_ARGUMENT, "options and a place for the result are needed");
    }
    TRY(check_options(options));
    uncopy_comm_options_t whole = complete(options);
    const uncopy_allocator_t *allocator =
        context != NULL ? &context->allocator : &memory_system_allocator;
    uncopy_comm_t *handle = NULL;
    TRY(comm_handle_make(context, allocator, &handle));
    uncopy_status_t status = comm_create(allocator, &whole, &handle->comm);
    if (status != UNCOPY_OK) {
        comm_handle_free(handle);
        return status;
    }
    *out_comm = handle;
    return UNCOPY_OK;
}

uncopy_status_t uncopy_comm_split(uncopy_comm_t *parent, int32_t color, int32_t key,
                                  uncopy_comm_t **out_comm)
{
    uncopy_comm_t *handle = NULL;
    TRY(comm_handle_make(parent->context, &parent->allocator, &handle));
    uncopy_status_t status = comm_split(parent->comm, color, key, &handle->comm);
    if (status != UNCOPY_OK || handle->comm == NULL) {
        comm_handle_free(handle);
        handle = NULL;
    }
    if (status == UNCOPY_OK) {
        *out_comm = handle;
    }
    return status;
}

void uncopy_comm_retain(uncopy_comm_t *comm)
{
    /* relaxed: whoever calls holds a reference already */
    atomic_fetch_add_explicit(&comm->users, 1, memory_order_relaxed);
}

void comm_handle_drop_holder(uncopy_comm_t *comm)
{
    /* acq_rel: the last sees all that others did */
    if (atomic_fetch_sub_explicit(&comm->holders, 1, memory_order_acq_rel) == 1) {
        comm_handle_free(comm);
    }
}

void uncopy_comm_release(uncopy_comm_t *comm)
{
    /* acq_rel: as above */
    if (comm != NULL && atomic_fetch_sub_explicit(&comm->users, 1, memory_order_acq_rel) == 1) {
        comm_leave(comm->comm);
        comm_handle_drop_holder(comm);
    }
}

int32_t uncopy_comm_rank(const uncopy_comm_t *comm)
{
    return comm->comm->rank;
}

int32_t uncopy_comm_size(const uncopy_comm_t *comm)
{
    return comm->comm->size;
}

const char *uncopy_comm_name(const uncopy_comm_t *comm)
{
    return comm->comm->name;
}

int64_t uncopy_comm_timeout(const uncopy_comm_t *comm)
{
    return atomic_load(&comm->comm->timeout_ns);
}

uncopy_status_t uncopy_comm_set_timeout(uncopy_comm_t *comm, int64_t timeout_ns)
{
    if (timeout_ns <= 0) {
        return status_fail(UNCOPY_ERROR_ARGUMENT, "a timeout of %lld ns", (long long)timeout_ns);
    }
    atomic_store(&comm->comm->timeout_ns, timeout_ns);
    return UNCOPY_OK;
}

uncopy_status_t uncopy_comm_state(uncopy_comm_t *comm)
{
    TRY(comm_check_process(comm->comm));
    return fault_state(comm->comm);
}

int uncopy_comm_is_alive(uncopy_comm_t *comm, int32_t rank)
{
    comm_t *inner = comm->comm;
    return rank >= 0 && rank < inner->size &&
           (rank == inner->rank || !fault_is_gone(inner, rank, true));
}

void uncopy_comm_abort(uncopy_comm_t *comm, const char *reason)
{
    if (comm_check_process(comm->comm) == UNCOPY_OK) {
        (void)fault_break(comm->comm, UNCOPY_ERROR_ABORTED, "%.127s",
                          reason != NULL ? reason : "no reason given");
    }
}

/* ---------------------------------------------------------------- checks of arguments */

/* Bytes of count elements times parts, in *out_bytes of one part. */
uncopy_status_t comm_check_count(int64_t count, uncopy_dtype_t dtype, int32_t parts,
                                 size_t *out_bytes)
{
    int64_t bytes = 0, all = 0;
    if (!dtype_is_valid(dtype)) {
        return status_fail(UNCOPY_ERROR_ARGUMENT, "%d is no dtype", (int)dtype);
    }
    if (count < 0 || !checked_multiply(count, (int64_t)uncopy_dtype_size(dtype), &bytes) ||
        !checked_multiply(bytes, parts, &all)) {
        return status_fail(UNCOPY_ERROR_ARGUMENT, "a count of %lld %s", (long long)count,
                           uncopy_dtype_name(dtype));
    }
    *out_bytes = (size_t)bytes;
    return UNCOPY_OK;
}

uncopy_status_t comm_check_address(const void *address, size_t bytes, const char *what)
{
    return address != NULL || bytes == 0
               ? UNCOPY_OK
               : status_fail(UNCOPY_ERROR_ARGUMENT, "%s of %zu bytes has no address", what, bytes);
}

uncopy_status_t comm_check_root(const uncopy_comm_t *comm, int32_t root)
{
    return root >= 0 && root < comm->comm->size
               ? UNCOPY_OK
               : status_fail(UNCOPY_ERROR_ARGUMENT, "root %d of %d ranks", root, comm->comm->size);
}

uncopy_status_t comm_check_reduces(uncopy_dtype_t dtype, uncopy_reduction_t reduction)
{
    if (reduce_is_supported(dtype, reduction)) {
        return UNCOPY_OK;
    }
    const char *of = uncopy_dtype_name(dtype), *by = uncopy_reduction_name(reduction);
    return status_fail(UNCOPY_ERROR_ARGUMENT, "%s is not reduced by %s", of != NULL ? of : "?",
                       by != NULL ? by : "?");
}

/* The two ranges are apart, or the shorter is exactly the longer's own slot at `slot`. */
uncopy_status_t comm_check_overlap(const void *part, size_t part_bytes, const void *whole,
                                   size_t whole_bytes, size_t slot)
{
    uintptr_t a = (uintptr_t)part, b = (uintptr_t)whole;
    if (part_bytes == 0 || a + part_bytes <= b || b + whole_bytes <= a || a == b + slot) {
        return UNCOPY_OK;
    }
    return status_fail(UNCOPY_ERROR_ARGUMENT,
                       "source and destination overlap by %zu and %zu bytes at a distance of %lld; "
                       "in place it is %zu",
                       part_bytes, whole_bytes, (long long)(a - b), slot);
}

int uncopy_comm_reduces(uncopy_dtype_t dtype, uncopy_reduction_t reduction)
{
    return reduce_is_supported(dtype, reduction);
}

/* ---------------------------------------------------------------- collectives of even sizes */

uncopy_status_t uncopy_comm_barrier(uncopy_comm_t *comm, const uncopy_comm_call_t *call)
{
    comm_signature_t signature = {.operation = COMM_BARRIER, .root = -1};
    TRY(comm_begin(comm->comm, &signature, call));
    return comm_end(comm->comm, comm_barrier(comm->comm));
}

/* One row of each rank's bytes. */
pattern_t comm_row(pattern_row_t *row, const void *address, size_t bytes, size_t stride)
{
    *row = (pattern_row_t){(char *)(uintptr_t)address, bytes, stride};
    return (pattern_t){row, 1, false};
}

uncopy_status_t comm_run_move(uncopy_comm_t *comm, const comm_signature_t *signature,
                              const comm_move_t *move, const uncopy_comm_call_t *call)
{
    TRY(comm_begin(comm->comm, signature, call));
    return comm_end(comm->comm, comm_move(comm->comm, move));
}

uncopy_status_t uncopy_comm_all_gather(uncopy_comm_t *comm, const void *source, void *destination,
                                       int64_t count, uncopy_dtype_t dtype,
                                       const uncopy_comm_call_t *call)
{
    int32_t size = comm->comm->size;
    size_t bytes = 0;
    TRY(comm_check_count(count, dtype, size, &bytes));
    TRY(comm_check_address(source, bytes, "a source"));
    TRY(comm_check_address(destination, bytes, "a destination"));
    TRY(comm_check_overlap(source, bytes, destination, bytes * (size_t)size,
                           bytes * (size_t)comm->comm->rank));
    comm_signature_t signature = {
        .operation = COMM_ALL_GATHER, .dtype = dtype, .root = -1, .bytes = bytes};
    pattern_row_t from, to;
    comm_move_t move = {.reach = COMM_REACH_ALL,
                        .is_shared = true,
                        .source = comm_row(&from, source, bytes, 0),
                        .destination = comm_row(&to, destination, bytes, bytes)};
    return comm_run_move(comm, &signature, &move, call);
}

uncopy_status_t uncopy_comm_broadcast(uncopy_comm_t *comm, void *buffer, int64_t count,
                                      uncopy_dtype_t dtype, int32_t root,
                                      const uncopy_comm_call_t *call)
{
    size_t bytes = 0;
    TRY(comm_check_count(count, dtype, 1, &bytes));
    TRY(comm_check_address(buffer, bytes, "a buffer"));
    TRY(comm_check_root(comm, root));
    comm_signature_t signature = {
        .operation = COMM_BROADCAST, .dtype = dtype, .root = root, .bytes = bytes};
    pattern_row_t row;
    pattern_t pattern = comm_row(&row, buffer, bytes, 0);
    comm_move_t move = {.reach = COMM_REACH_FROM_ROOT,
                        .is_shared = true,
                        .source = pattern,
                        .destination = pattern};
    return comm_run_move(comm, &signature, &move, call);
}

uncopy_status_t uncopy_comm_all_to_all(uncopy_comm_t *comm, const void *source, void *destination,
                                       int64_t count, uncopy_dtype_t dtype,
                                       const uncopy_comm_call_t *call)
{
    int32_t size = comm->comm->size;
    size_t bytes = 0;
    TRY(comm_check_count(count, dtype, size, &bytes));
    TRY(comm_check_address(source, bytes, "a source"));
    TRY(comm_check_address(destination, bytes, "a destination"));
    TRY(comm_check_overlap(source, bytes * (size_t)size, destination, bytes * (size_t)size,
                           size > 1 ? SIZE_MAX : 0));
    comm_signature_t signature = {
        .operation = COMM_ALL_TO_ALL, .dtype = dtype, .root = -1, .bytes = bytes};
    pattern_row_t from, to;
    comm_move_t move = {.reach = COMM_REACH_ALL,
                        .source = comm_row(&from, source, bytes, bytes),
                        .destination = comm_row(&to, destination, bytes, bytes)};
    return comm_run_move(comm, &signature, &move, call);
}

uncopy_status_t uncopy_comm_reduce_scatter(uncopy_comm_t *comm, const void *source,
                                           void *destination, int64_t count, uncopy_dtype_t dtype,
                                           uncopy_reduction_t reduction,
                                           const uncopy_comm_call_t *call)
{
    int32_t size = comm->comm->size;
    size_t bytes = 0;
    TRY(comm_check_count(count, dtype, size, &bytes));
    TRY(comm_check_reduces(dtype, reduction));
    TRY(comm_check_address(source, bytes, "a source"));
    TRY(comm_check_address(destination, bytes, "a destination"));
    TRY(comm_check_overlap(destination, bytes, source, bytes * (size_t)size,
                           bytes * (size_t)comm->comm->rank));
    comm_signature_t signature = {.operation = COMM_REDUCE_SCATTER,
                                  .dtype = dtype,
                                  .reduction = reduction,
                                  .root = -1,
                                  .bytes = bytes};
    pattern_row_t from, to;
    pattern_t sources = comm_row(&from, source, bytes, bytes);
    pattern_t destinations = comm_row(&to, destination, bytes, 0);
    TRY(comm_begin(comm->comm, &signature, call));
    return comm_end(comm->comm, comm_reduce_scatter(comm->comm, &sources, &destinations));
}

static uncopy_status_t run_all_reduce(uncopy_comm_t *comm, const void *source, void *destination,
                                      int64_t count, const comm_signature_t *kind,
                                      const uncopy_comm_call_t *call)
{
    comm_signature_t signature = *kind;
    size_t bytes = 0;
    bool has_result = kind->root < 0 || kind->root == comm->comm->rank;
    TRY(comm_check_count(count, kind->dtype, 1, &bytes));
    TRY(comm_check_reduces(kind->dtype, kind->reduction));
    TRY(comm_check_address(source, bytes, "a source"));
    if (has_result) {
        TRY(comm_check_address(destination, bytes, "a destination"));
        TRY(comm_check_overlap(source, bytes, destination, bytes, 0));
    }
    signature.bytes = bytes;
    TRY(comm_begin(comm->comm, &signature, call));
    return comm_end(comm->comm,
                    comm_all_reduce(comm->comm, source, destination, (size_t)count, kind->root));
}

uncopy_status_t uncopy_comm_all_reduce(uncopy_comm_t *comm, const void *source, void *destination,
                                       int64_t count, uncopy_dtype_t dtype,
                                       uncopy_reduction_t reduction, const uncopy_comm_call_t *call)
{
    comm_signature_t kind = {
        .operation = COMM_ALL_REDUCE, .dtype = dtype, .reduction = reduction, .root = -1};
    return run_all_reduce(comm, source, destination, count, &kind, call);
}

uncopy_status_t uncopy_comm_reduce(uncopy_comm_t *comm, const void *source, void *destination,
                                   int64_t count, uncopy_dtype_t dtype,
                                   uncopy_reduction_t reduction, int32_t root,
                                   const uncopy_comm_call_t *call)
{
    TRY(comm_check_root(comm, root));
    comm_signature_t kind = {
        .operation = COMM_REDUCE, .dtype = dtype, .reduction = reduction, .root = root};
    return run_all_reduce(comm, source, destination, count, &kind, call);
}
