/* How a rank's source is published, and how its peers see it.
 *
 * Each rank decides for itself by where its source lies, and says so in its header: in a window
 * (peers read it there), readable by the kernel's cross-process copy, or staged in payloads. A
 * reader takes each peer as published, so ranks need not agree. */
#ifndef COMM_SOURCE_H
#define COMM_SOURCE_H

#include "comm/comm.h"

/* A peer's source as this rank sees it in the running collective. */
typedef struct source_view {
    comm_source_t kind;
    uint32_t rounds;   /* STAGED */
    uint64_t address;  /* READ: this rank's part in the peer's process */
    pattern_t pattern; /* WINDOW: rows at this process's addresses */
    pattern_row_t row; /* the only one, where there is one */
} source_view_t;

/* Announces source in the next header: picks the way, fills address, window and rows. bytes: of the
 * taker with the most; part_bytes: of a payload's part. most_read: the most bytes of
 * a plain source that takers may read with the kernel's copy; 0: none.
 * Returns what was announced. */
comm_source_t source_announce(comm_t *comm, const pattern_t *source, size_t bytes,
                              size_t part_bytes, size_t most_read);

/* Reads peer's header of the running step, of which this rank takes bytes. rows: room for
 * source_num_rows rows. view is used where it is, not copied. Errors: UNCOPY_ERROR_SYSTEM (a header
 * that names no memory). */
UNCOPY_MUST_CHECK uncopy_status_t source_view(comm_t *comm, int32_t peer, size_t bytes,
                                              bool is_by_rank, pattern_row_t *rows,
                                              source_view_t *view);
size_t source_num_rows(comm_t *comm, int32_t peer);

#endif
