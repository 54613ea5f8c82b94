/* Shared memory between processes: a sealed memfd a rank, mapped by all.
 *
 * Made in three parts, between which the bootstrap exchanges what each rank knows: make (own
 * segment, socket, guard), deliver (to one peer), map (all peers' segments). */
#ifndef COMM_TRANSPORT_SHARED_H
#define COMM_TRANSPORT_SHARED_H

#include "comm/socket.h"
#include "comm/transport.h"
#include "uncopy/context.h"

typedef struct transport_shared transport_shared_t;

/* What a rank tells the others of itself; goes through the store, so plain bytes. */
typedef struct transport_card {
    uint64_t nonce;                      /* of the segment; the token of messages to this rank */
    uint64_t probe_address, probe_value; /* for process_vm_readv */
    int32_t process;
    char socket_name[SOCKET_NAME_BYTES];
} transport_card_t;

/* cards[rank] is filled; the array stays the caller's and is read again until map. */
UNCOPY_MUST_CHECK uncopy_status_t transport_shared_make(const uncopy_allocator_t *allocator,
                                                        int32_t rank, int32_t size,
                                                        size_t chunk_bytes,
                                                        transport_card_t *out_card,
                                                        transport_shared_t **out_shared);
/* Keeps all cards. */
void transport_shared_set_cards(transport_shared_t *shared, const transport_card_t *cards);
UNCOPY_MUST_CHECK uncopy_status_t transport_shared_deliver(transport_shared_t *shared,
                                                           int32_t peer);
/* Receives from the peers whose bit is set in expected, maps and verifies. Errors:
 * UNCOPY_ERROR_APART, UNCOPY_ERROR_SYSTEM, UNCOPY_ERROR_MEMORY. */
UNCOPY_MUST_CHECK uncopy_status_t transport_shared_map(transport_shared_t *shared,
                                                       uint64_t expected);
/* Whether every peer's memory can be read with process_vm_readv, by reading a random value. */
bool transport_shared_probe_reads(transport_shared_t *shared);
comm_segment_t *const *transport_shared_segments(const transport_shared_t *shared);
transport_t transport_shared_transport(transport_shared_t *shared);
/* For one that was not handed to comm_start. */
void transport_shared_release(transport_shared_t *shared);

#endif
