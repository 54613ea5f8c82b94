/* What differs between ways to share memory: a table of functions. transport_shared.c is for
 * processes of one host, transport_loopback.c for threads of one process (tests). Everything else
 * of the engine works on the segments that a transport maps.
 *
 * To add one: fill a transport_calls_t, map the segments, give both to comm_start. */
#ifndef COMM_TRANSPORT_H
#define COMM_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "comm/layout.h"

/* Memory of a window: the own part writable, the peers' to be read. */
typedef struct transport_memory {
    char *parts[UNCOPY_COMM_MAX_SIZE]; /* NULL where bytes is 0 */
    size_t bytes[UNCOPY_COMM_MAX_SIZE];
    int descriptor; /* of the own part while it is being made, else -1 */
} transport_memory_t;

/* Where an injected delay or fault may strike. */
typedef enum transport_point {
    TRANSPORT_BEFORE_POST,
    TRANSPORT_BEFORE_COPY,
} transport_point_t;

typedef struct transport_calls {
    const char *name;
    /* Whether rank's process has ended. May cost a system call if is_thorough. */
    bool (*is_dead)(void *self, int32_t rank, bool is_thorough);
    /* The number by which people know rank's process. */
    int32_t (*process)(void *self, int32_t rank);
    /* A window's own part of memory->bytes[own rank], zeroed, and its delivery to all peers.
     * Between this and window_map the engine makes sure that every rank has come so far. */
    uncopy_status_t (*window_make)(void *self, uint32_t window, transport_memory_t *memory);
    /* The peers' parts, whose bytes are known now. */
    uncopy_status_t (*window_map)(void *self, uint32_t window, transport_memory_t *memory);
    /* Ends this rank's use of rank's part. */
    void (*window_unmap)(void *self, uint32_t window, int32_t rank, char *part, size_t bytes);
    /* Copies from an address of another rank's process. NULL: cannot. */
    uncopy_status_t (*read)(void *self, int32_t rank, uint64_t address, void *destination,
                            size_t bytes);
    /* Called at points for tests; NULL: nothing. */
    void (*pause)(void *self, transport_point_t point);
    /* Leaves and unmaps. is_child: called in a forked child, which must not touch shared state. */
    void (*release)(void *self, bool is_child);
} transport_calls_t;

typedef struct transport {
    const transport_calls_t *calls;
    void *self;
} transport_t;

#endif
