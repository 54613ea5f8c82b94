/* Transfers behind their public form. */
#include "api/comm.h"
#include "base/dtype.h"
#include "base/status.h"

static uncopy_status_t check(const uncopy_comm_t *comm, const uncopy_transfer_t *t, int64_t i)
{
    bool is_kind = t->kind == UNCOPY_TRANSFER_SEND || t->kind == UNCOPY_TRANSFER_RECEIVE;
    if (!is_kind || t->peer < 0 || t->peer >= comm->comm->size || t->peer == comm->comm->rank) {
        return status_fail(UNCOPY_ERROR_ARGUMENT,
                           "transfer %lld: kind %d, peer %d of rank %d of %d", (long long)i,
                           (int)t->kind, t->peer, comm->comm->rank, comm->comm->size);
    }
    if (!dtype_is_valid(t->dtype) || t->bytes < 0 || (t->bytes > 0 && t->data == NULL) ||
        t->bytes % (int64_t)uncopy_dtype_size(t->dtype) != 0) {
        return status_fail(UNCOPY_ERROR_ARGUMENT, "transfer %lld: %lld bytes of dtype %d at %p",
                           (long long)i, (long long)t->bytes, (int)t->dtype, t->data);
    }
    return UNCOPY_OK;
}

uncopy_status_t uncopy_comm_transfer(uncopy_comm_t *comm, const uncopy_transfer_t *transfers,
                                     int64_t num_transfers, const uncopy_comm_call_t *call)
{
    if (num_transfers < 0 || num_transfers > INT32_MAX ||
        (num_transfers > 0 && transfers == NULL)) {
        return status_fail(UNCOPY_ERROR_ARGUMENT, "%lld transfers", (long long)num_transfers);
    }
    for (int64_t i = 0; i < num_transfers; i++) {
        TRY(check(comm, &transfers[i], i));
    }
    return comm_transfer(comm->comm, transfers, num_transfers, call);
}
