/* One rank's end of a communicator, and the room's face to api.
 *
 * Owner: whoever created it. Threads: collectives are served one at a time (lock), transfers stand
 * beside them (transfer_lock), comm_abort and the readers may be called at any time. */
#ifndef COMM_COMM_H
#define COMM_COMM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "comm/layout.h"
#include "comm/pattern.h"
#include "comm/transport.h"
#include "comm/wait.h"
#include "uncopy/comm.h"

enum { COMM_NAME_BYTES = 128 };

typedef struct comm comm_t;
typedef struct comm_window comm_window_t;
typedef struct comm_posted comm_posted_t; /* a transfer in progress, see transfer.c */

/* The operations that a header can name; text for messages. */
typedef enum comm_operation {
    COMM_BARRIER = 0,
    COMM_ALL_GATHER,
    COMM_REDUCE_SCATTER,
    COMM_ALL_REDUCE,
    COMM_REDUCE,
    COMM_BROADCAST,
    COMM_GATHER,
    COMM_SCATTER,
    COMM_ALL_TO_ALL,
    COMM_WINDOW_CREATE,
    COMM_SPLIT,
} comm_operation_t;

const char *comm_operation_name(comm_operation_t operation);

/* What each rank says of the call it makes; compared at the first step. */
typedef struct comm_signature {
    comm_operation_t operation;
    uncopy_dtype_t dtype;
    uncopy_reduction_t reduction;
    int32_t root;
    uint64_t bytes; /* equal on all ranks; 0 where sizes are the pair's */
    uint64_t shape; /* hash of a list of sizes; 0: none */
} comm_signature_t;

/* What differs from call to call and is no part of the signature. */
typedef struct comm_deadline {
    int64_t timeout_ns, end_ns; /* end_ns 0: no wait has been slow yet */
    uncopy_comm_interrupt_t interrupt;
} comm_deadline_t;

typedef struct comm_counters {
    atomic_llong calls, one_step, staged, direct, steps;
    atomic_llong bytes_staged, bytes_window, bytes_read, bytes_streamed;
    atomic_llong waits_slept, wait_ns;
} comm_counters_t;

struct comm {
    uncopy_allocator_t allocator;
    char name[COMM_NAME_BYTES];
    int32_t rank, size;
    size_t chunk_bytes, streaming_bytes;
    bool is_crowded; /* more ranks than cores, by agreement */
    bool can_read;   /* transport reads between all ranks, by agreement */
    atomic_llong timeout_ns;
    uncopy_comm_interrupt_t interrupt;
    pid_t process;
    transport_t transport;
    comm_segment_t *segments[UNCOPY_COMM_MAX_SIZE];

    pthread_mutex_t lock;      /* what follows belongs to the running collective */
    uint32_t step;             /* last posted */
    uint32_t first_step;       /* of the running collective */
    _Atomic uint32_t sequence; /* of the running or last collective; fault_break reads it */
    atomic_bool is_running;    /* a collective; likewise */
    comm_signature_t signature;
    comm_deadline_t deadline;
    waiter_t waiter;
    uncopy_comm_reuse_t reuse;
    bool past_caches; /* how this call writes, see comm_set_landing */
    uint32_t num_windows_made;
    void *scratch; /* rows of patterns; grows */
    size_t scratch_bytes;

    pthread_mutex_t window_lock;
    comm_window_t *windows; /* newest first */

    pthread_mutex_t transfer_lock;
    comm_posted_t *posted, **posted_end; /* in the order of the calls */
    struct comm_inbox *inboxes[UNCOPY_COMM_MAX_SIZE];

    comm_counters_t counters;
};

/* What a transport has made ready. */
typedef struct comm_setup {
    uncopy_allocator_t allocator;
    const char *name;
    int32_t rank, size;
    size_t chunk_bytes, streaming_bytes;
    bool is_crowded, can_read;
    int64_t timeout_ns;
    uncopy_comm_interrupt_t interrupt;
    comm_segment_t *const *segments;
    transport_t transport; /* taken over, also on failure */
} comm_setup_t;

UNCOPY_MUST_CHECK uncopy_status_t comm_start(const comm_setup_t *setup, comm_t **out_comm);
/* Bootstraps over the options' store or directory (bootstrap.c). Options are checked. */
UNCOPY_MUST_CHECK uncopy_status_t comm_create(const uncopy_allocator_t *allocator,
                                              const uncopy_comm_options_t *options,
                                              comm_t **out_comm);
/* Tells the peers that this rank makes no more calls. */
void comm_leave(comm_t *comm);
/* See uncopy_comm_split; *out_comm NULL for a negative color. */
UNCOPY_MUST_CHECK uncopy_status_t comm_split(comm_t *parent, int32_t color, int32_t key,
                                             comm_t **out_comm);
/* Leaves and frees all. */
void comm_release(comm_t *comm);

/* Begins a call: the lock, fork, broken, deadline. comm_end gives the lock back and passes status
 * on. */
UNCOPY_MUST_CHECK uncopy_status_t comm_begin(comm_t *comm, const comm_signature_t *signature,
                                             const uncopy_comm_call_t *call);
uncopy_status_t comm_end(comm_t *comm, uncopy_status_t status);
/* The deadline of a call that begins now. call may be NULL. */
comm_deadline_t comm_deadline(comm_t *comm, const uncopy_comm_call_t *call);
/* UNCOPY_ERROR_GROUP in a forked child. */
UNCOPY_MUST_CHECK uncopy_status_t comm_check_process(const comm_t *comm);

/* So many bytes are going to land on this rank: decides how the call writes. */
void comm_set_landing(comm_t *comm, size_t bytes);
/* Memory for the running collective, valid until its end; grows. NULL with the message set. */
void *comm_scratch(comm_t *comm, size_t bytes);

static inline void comm_count(atomic_llong *counter, int64_t amount)
{
    /* relaxed: a statistic */
    (void)atomic_fetch_add_explicit(counter, amount, memory_order_relaxed);
}

static inline void comm_pause(const comm_t *comm, transport_point_t point)
{
    if (comm->transport.calls->pause != NULL) {
        comm->transport.calls->pause(comm->transport.self, point);
    }
}

/* Collectives, between comm_begin and comm_end of the same signature. Patterns as in pattern.h;
 * arguments are checked. */
UNCOPY_MUST_CHECK uncopy_status_t comm_barrier(comm_t *comm);

/* Who sends in a move: all ranks, or root alone; who takes likewise. */
typedef enum comm_reach {
    COMM_REACH_ALL,       /* all_gather, all_to_all */
    COMM_REACH_FROM_ROOT, /* broadcast, scatter */
    COMM_REACH_TO_ROOT,   /* gather */
} comm_reach_t;

typedef struct comm_move {
    comm_reach_t reach;
    bool is_shared;  /* every taker gets the same bytes */
    bool is_by_rank; /* senders' patterns are, also on ranks that send nothing */
    bool is_by_pair; /* sizes are the pair's: the source's are published and checked by takers */
    pattern_t source, destination; /* by taker, by sender; rows empty where a rank has none */
} comm_move_t;

UNCOPY_MUST_CHECK uncopy_status_t comm_move(comm_t *comm, const comm_move_t *move);

/* source by taker; the own part of destination is its only one. */
UNCOPY_MUST_CHECK uncopy_status_t comm_reduce_scatter(comm_t *comm, const pattern_t *source,
                                                      const pattern_t *destination);

/* root negative: all_reduce. destination is NULL on other ranks than root. */
UNCOPY_MUST_CHECK uncopy_status_t comm_all_reduce(comm_t *comm, const void *source,
                                                  void *destination, size_t count, int32_t root);

/* transfers, whole calls */
UNCOPY_MUST_CHECK uncopy_status_t comm_transfer(comm_t *comm, const uncopy_transfer_t *transfers,
                                                int64_t num_transfers,
                                                const uncopy_comm_call_t *call);

/* Windows: see window.c. */
struct comm_window {
    comm_window_t *next;
    comm_t *comm;
    void *handle; /* api's */
    uint32_t number;
    int64_t bytes;             /* asked for */
    bool is_released;          /* by this rank */
    transport_memory_t memory; /* parts[p] NULL: unmapped */
};

/* can_keep false: fails with UNCOPY_ERROR_MEMORY on every rank, for a caller who has no memory. */
UNCOPY_MUST_CHECK uncopy_status_t comm_window_create(comm_t *comm, int64_t bytes, bool can_keep,
                                                     const uncopy_comm_call_t *call,
                                                     comm_window_t **out_window);
/* The record lives on until all ranks have released theirs. */
void comm_window_release(comm_window_t *window);
/* Unmaps and frees all records. */
void comm_windows_release(comm_t *comm);
/* The window, not released, that holds all of the bytes, or NULL. */
comm_window_t *comm_window_find(comm_t *comm, const void *address, size_t bytes);
/* Where bytes at offset of rank's part of a window lie here; NULL: there are none such. */
char *comm_window_resolve(comm_t *comm, uint32_t number, int32_t rank, uint64_t offset,
                          uint64_t bytes);

#endif
