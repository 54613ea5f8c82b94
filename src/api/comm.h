/* The objects behind communicator and window handles, and checks that their calls share. */
#ifndef API_COMM_H
#define API_COMM_H

#include <stdatomic.h>

#include "comm/comm.h"
#include "uncopy/context.h"

/* users: public references; holders: those, all together, and one for each window. The first to end
 * makes the rank leave, the second frees. */
struct uncopy_comm {
    atomic_size_t users, holders;
    uncopy_context_t *context; /* NULL: none */
    uncopy_allocator_t allocator;
    comm_t *comm;
};

/* A handle without its communicator yet; retains context, which may be NULL. */
UNCOPY_MUST_CHECK uncopy_status_t comm_handle_make(uncopy_context_t *context,
                                                   const uncopy_allocator_t *allocator,
                                                   uncopy_comm_t **out_handle);
/* With its communicator, if it has one. */
void comm_handle_free(uncopy_comm_t *handle);
void comm_handle_drop_holder(uncopy_comm_t *handle);

/* Bytes of count elements in *out_bytes; that many times parts must be countable too. */
UNCOPY_MUST_CHECK uncopy_status_t comm_check_count(int64_t count, uncopy_dtype_t dtype,
                                                   int32_t parts, size_t *out_bytes);
UNCOPY_MUST_CHECK uncopy_status_t comm_check_address(const void *address, size_t bytes,
                                                     const char *what);
UNCOPY_MUST_CHECK uncopy_status_t comm_check_root(const uncopy_comm_t *comm, int32_t root);
UNCOPY_MUST_CHECK uncopy_status_t comm_check_reduces(uncopy_dtype_t dtype,
                                                     uncopy_reduction_t reduction);
/* The two ranges are apart, or part begins exactly at whole + slot. */
UNCOPY_MUST_CHECK uncopy_status_t comm_check_overlap(const void *part, size_t part_bytes,
                                                     const void *whole, size_t whole_bytes,
                                                     size_t slot);

/* One row of bytes for each rank, stride apart. */
pattern_t comm_row(pattern_row_t *row, const void *address, size_t bytes, size_t stride);
UNCOPY_MUST_CHECK uncopy_status_t comm_run_move(uncopy_comm_t *comm,
                                                const comm_signature_t *signature,
                                                const comm_move_t *move,
                                                const uncopy_comm_call_t *call);

#endif
