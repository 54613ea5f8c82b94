/* Ranks that are threads of one process, for tests: the engine above is the same, memory is the
 * process's own, and delays and deaths are injected.
 *
 * Owner: whoever created it; it outlives its communicators. */
#ifndef COMM_TRANSPORT_LOOPBACK_H
#define COMM_TRANSPORT_LOOPBACK_H

#include "comm/comm.h"

typedef struct loopback loopback_t;

/* What happens at a point of a rank's call; may sleep. */
typedef struct loopback_fault {
    void *self;
    void (*strike)(void *self, int32_t rank, transport_point_t point);
} loopback_fault_t;

typedef struct loopback_options {
    int32_t size;
    size_t chunk_bytes, streaming_bytes;
    bool is_crowded;
    bool can_read; /* reads of other ranks' ordinary memory are plain copies */
    int64_t timeout_ns;
    loopback_fault_t fault; /* strike NULL: none */
} loopback_options_t;

UNCOPY_MUST_CHECK uncopy_status_t loopback_create(const uncopy_allocator_t *allocator,
                                                  const loopback_options_t *options,
                                                  loopback_t **out_loopback);
/* After all its communicators. */
void loopback_release(loopback_t *loopback);
/* Rank's end; for one thread at a time, as any communicator. */
UNCOPY_MUST_CHECK uncopy_status_t loopback_join(loopback_t *loopback, int32_t rank,
                                                comm_t **out_comm);
/* From now on rank counts as dead. */
void loopback_kill(loopback_t *loopback, int32_t rank);

#endif
