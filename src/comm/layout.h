/* What lies in shared memory: one segment a rank, mapped by all ranks of the communicator.
 *
 * The segment's owner writes its slots; peers read them. Peers write only what is marked so.
 *
 *     page 0   nonce | left, dead | mutex | abort record | bell
 *     slot 0   sizes[64] | header (one line) | payload (chunk bytes)
 *     slot 1   likewise
 *     channel to rank 0 .. size-1: posted | taken | cells   (transfers, see transfer.c)
 *
 * Atomics: `flag` and `sleepers` pair as in wait.h; every plain field of a slot is written before
 * the release of its flag and read after an acquire of it. */
#ifndef COMM_LAYOUT_H
#define COMM_LAYOUT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "uncopy/comm.h"

enum {
    COMM_LINE = 64,
    COMM_PAGE = 4096,
    COMM_WORDS = 192, /* bytes of an abort record's words, with their end */
    COMM_CELL_BYTES = 32 << 10,
    COMM_CELLS = 4, /* of a channel */
};

/* How a rank's source is readable in this collective. */
typedef enum comm_source {
    COMM_SOURCE_NONE = 0,   /* nothing to read */
    COMM_SOURCE_STAGED = 1, /* in payloads, a chunk a step */
    COMM_SOURCE_WINDOW = 2, /* where it lies, in a window */
    COMM_SOURCE_READ = 3,   /* where it lies, with process_vm_readv */
} comm_source_t;

/* One line. The first three fields change at every step, the rest at the first step of a
 * collective. */
typedef struct comm_header {
    _Alignas(COMM_LINE) _Atomic uint32_t flag; /* the step that this slot holds */
    _Atomic uint32_t sleepers;                 /* written by peers too */
    _Atomic int32_t cpu;                       /* where the owner ran when it posted */
    uint8_t operation, dtype, reduction, source;
    int32_t root;
    uint32_t sequence; /* number of the collective */
    uint64_t bytes;    /* of the call, as its operation counts them */
    uint64_t shape;    /* hash of the list of sizes, 0 for even calls */
    uint64_t address;  /* source WINDOW: offset; READ: address in the owner's process */
    uint32_t window;   /* source WINDOW: its number */
    uint32_t rounds;   /* source STAGED: steps that carry payload */
    uint32_t rows;     /* source WINDOW: 0: one row at address; else so many rows in the payload */
    uint32_t strided;  /* source WINDOW, one row: each rank's part follows the one before */
} comm_header_t;

_Static_assert(sizeof(comm_header_t) == COMM_LINE, "a header is one line");

/* A row of a source that is more than one run: see pattern.h. */
typedef struct comm_remote_row {
    uint64_t offset, bytes, stride;
    uint32_t window, spare;
} comm_remote_row_t;

typedef struct comm_slot {
    _Alignas(COMM_LINE) int64_t sizes[UNCOPY_COMM_MAX_SIZE]; /* bytes for each rank, where they are
                                                                the pair's */
    comm_header_t header;
    char payload[];
} comm_slot_t;

/* state: 0 empty, 1 being written, 2 readable. Written by whoever comes first, any rank. */
typedef struct comm_abort {
    _Atomic uint32_t state;
    uint32_t code;
    uint32_t sequence; /* of the collective in which, or after which, the writer gave up */
    char words[COMM_WORDS];
} comm_abort_t;

/* A word to sleep on. */
typedef struct comm_bell {
    _Alignas(COMM_LINE) _Atomic uint32_t rings;
    _Atomic uint32_t sleepers;
} comm_bell_t;

typedef struct comm_segment {
    _Alignas(COMM_PAGE) uint64_t nonce;        /* proves which memory this is */
    _Alignas(COMM_LINE) _Atomic uint32_t left; /* the owner released the communicator */
    _Atomic uint32_t dead;                     /* a peer saw the owner's death */
    _Alignas(COMM_LINE) pthread_mutex_t alive; /* robust; its holder sleeps, see alive.h */
    _Alignas(COMM_LINE) comm_abort_t abort;    /* peers write */
    _Alignas(COMM_LINE) comm_bell_t bell;      /* peers ring */
} comm_segment_t;

_Static_assert(sizeof(comm_segment_t) == COMM_PAGE, "the first page");

/* One message piece of a channel. */
typedef struct comm_cell {
    _Alignas(COMM_LINE) int64_t tag; /* of the message's first cell, likewise the rest */
    int64_t bytes;                   /* of the message */
    uint64_t address;                /* source WINDOW: offset */
    uint32_t window;
    uint8_t dtype, source, is_first, spare;
    uint32_t part; /* bytes in this cell */
    _Alignas(COMM_LINE) char payload[COMM_CELL_BYTES];
} comm_cell_t;

/* From the segment's owner to one peer: cells are used in turn. */
typedef struct comm_channel {
    _Alignas(COMM_LINE) _Atomic uint32_t posted; /* cells written, by the owner */
    _Alignas(COMM_LINE) _Atomic uint32_t taken;  /* cells read, by the peer */
    _Alignas(COMM_PAGE) comm_cell_t cells[COMM_CELLS];
} comm_channel_t;

/* Distance between a segment's slots, and where they and the channels begin. */
static inline size_t comm_slot_bytes(size_t chunk_bytes)
{
    size_t bytes = sizeof(comm_slot_t) + chunk_bytes;
    return (bytes + COMM_PAGE - 1) / COMM_PAGE * COMM_PAGE;
}

/* Bytes of a segment that are touched by every communicator: all but the channels. */
static inline size_t comm_segment_used_bytes(size_t chunk_bytes)
{
    return sizeof(comm_segment_t) + 2 * comm_slot_bytes(chunk_bytes);
}

static inline size_t comm_segment_bytes(size_t chunk_bytes, int32_t size)
{
    return comm_segment_used_bytes(chunk_bytes) + (size_t)size * sizeof(comm_channel_t);
}

static inline comm_slot_t *comm_segment_slot(comm_segment_t *segment, size_t chunk_bytes,
                                             uint32_t step)
{
    char *first = (char *)segment + sizeof(comm_segment_t);
    return (comm_slot_t *)(void *)(first + (step & 1U) * comm_slot_bytes(chunk_bytes));
}

static inline comm_channel_t *comm_segment_channel(comm_segment_t *segment, size_t chunk_bytes,
                                                   int32_t rank)
{
    char *first = (char *)segment + comm_segment_used_bytes(chunk_bytes);
    return (comm_channel_t *)(void *)(first + (size_t)rank * sizeof(comm_channel_t));
}

#endif
