/* Collectives between the processes (ranks) of one host, over shared memory.
 *
 * A communicator joins `size` ranks under a name. Every rank makes it by the same call, in any
 * process or thread, and then calls the same collectives in the same order. A process may hold any
 * number of communicators, of any subsets of ranks, at once.
 *
 * Synchronous: a call returns when its result is in place and its source may be written again. It
 * takes no other thread's help and needs no Python, so it may be made from any thread; release an
 * interpreter lock around it. Whoever wants asynchronous collectives (c10d's Work) runs the calls
 * of one communicator on an ordered thread of its own, one a communicator: this library starts no
 * thread for it. Two threads that call collectives of one communicator at once are served one
 * after the other; that every rank has the same order is the caller's care. Transfers (send,
 * receive) stand beside the collectives: they may run in other threads at the same time.
 *
 * Memory: a buffer inside a window (uncopy_window_create) is read by the peers where it lies;
 * ordinary memory is staged through shared memory in chunks, or read by the kernel's cross-process
 * copy where that is permitted and faster. The engine finds out by address; ranks need not agree.
 * Whole ranges must lie in one window to count as inside.
 *
 * Results: moves carry bytes, of any dtype. Reductions accumulate in f32 (f64: in f64; integers
 * wrap in their own width; bool: sum is or, product is and), take ranks in the order 0, 1, ..
 * size-1 and round once, so that all ranks get the same bits, whatever algorithm the size picks.
 *
 * Failure: every call has a deadline. A dead peer, a peer that left, an abort, an interrupt, a late
 * peer and calls that do not match are errors on every rank. After UNCOPY_ERROR_PEER, _TIMEOUT,
 * _ABORTED, _MISMATCH or _INTERRUPTED the communicator is broken for good: later calls return the
 * same code at once, and the destination of the failing call is undefined. A rank that had
 * already sent all that a collective needed from it when it died may leave its peers with a
 * success of that collective; their next one fails. UNCOPY_ERROR_ARGUMENT is found before anything
 * is sent and breaks nothing, so the peers go on waiting for this rank.
 *
 * After fork the child must not use a communicator of its parent: calls fail with
 * UNCOPY_ERROR_GROUP, release frees only the child's own copies.
 *
 * Where ranks cannot share memory (another host, another user, namespaces that keep descriptors
 * apart) uncopy_comm_create returns UNCOPY_ERROR_APART on every rank: use another engine. */
#ifndef UNCOPY_COMM_H
#define UNCOPY_COMM_H

#include <stddef.h>
#include <stdint.h>

#include "uncopy/context.h"
#include "uncopy/dtype.h"
#include "uncopy/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct uncopy_comm uncopy_comm_t;
typedef struct uncopy_window uncopy_window_t;

/* ---------------------------------------------------------------- making a communicator */

/* A place where the ranks find each other: keys to bytes, as c10d's stores. Used only inside
 * uncopy_comm_create, from the calling thread. Keys begin with the communicator's name and are
 * never reused, so a name serves once a store. Each entry returns UNCOPY_OK, or another code after
 * wording it with uncopy_host_fail; the words are passed on. */
typedef struct uncopy_comm_store {
    void *self;
    uncopy_status_t (*set)(void *self, const char *key, const void *value, size_t size);
    /* Waits until key exists, at most timeout_ns (then UNCOPY_ERROR_TIMEOUT), and copies its value,
     * at most capacity bytes, setting *out_size to its size. */
    uncopy_status_t (*get)(void *self, const char *key, int64_t timeout_ns, void *value,
                           size_t capacity, size_t *out_size);
} uncopy_comm_store_t;

/* Asked about every 10 ms of a wait, from the waiting thread: non-zero ends the wait with
 * UNCOPY_ERROR_INTERRUPTED (Ctrl-C in Python: PyErr_CheckSignals under the interpreter's lock).
 * is_raised may be NULL: never. */
typedef struct uncopy_comm_interrupt {
    void *self;
    int (*is_raised)(void *self);
} uncopy_comm_interrupt_t;

/* Whether sources in ordinary memory may be read with process_vm_readv. */
typedef enum uncopy_comm_reads {
    UNCOPY_COMM_READS_PROBED = 0, /* where a probe between all ranks succeeds */
    UNCOPY_COMM_READS_OFF = 1,
} uncopy_comm_reads_t;

typedef struct uncopy_comm_options {
    const char *name; /* 1 to 100 bytes, the same on all ranks; copied */
    int32_t rank;
    int32_t size; /* 1 to UNCOPY_COMM_MAX_SIZE */
    /* Of making the communicator and of each call; 0: 30 minutes. */
    int64_t timeout_ns;
    const uncopy_comm_store_t *store; /* borrowed for the call; or NULL and */
    const char *directory;            /* an existing folder that all ranks can write: files in it,
                                         removed again, do the store's work */
    uncopy_comm_interrupt_t interrupt;
    int64_t chunk_bytes; /* one of a rank's two staging areas; 0: 512 KiB; the same on all ranks */
    /* A result of at least so many bytes (twice as many where it is read soon, see
     * uncopy_comm_reuse_t) is written past the caches; 0: 32 MiB. */
    int64_t streaming_bytes;
    uncopy_comm_reads_t reads;
} uncopy_comm_options_t;

#define UNCOPY_COMM_MAX_SIZE 64

/* Makes the communicator, together with the other ranks. context NULL: the system's allocator.
 * Errors, on all ranks that got as far: UNCOPY_ERROR_ARGUMENT (an option; options that differ
 * between ranks), UNCOPY_ERROR_APART (no shared memory between some pair of ranks: the message
 * names the pair and the cause), UNCOPY_ERROR_TIMEOUT (a rank did not come), UNCOPY_ERROR_MEMORY,
 * UNCOPY_ERROR_HOST (the store), UNCOPY_ERROR_SYSTEM. */
UNCOPY_API UNCOPY_MUST_CHECK uncopy_status_t uncopy_comm_create(
    uncopy_context_t *context, const uncopy_comm_options_t *options, uncopy_comm_t **out_comm);

/* Makes communicators of parts of parent; a collective of parent. Ranks with equal color form one,
 * ranked by key, then by rank in parent; color negative: in none, *out_comm is set to NULL. Name
 * and options are the parent's, the name with the color appended. */
UNCOPY_API UNCOPY_MUST_CHECK uncopy_status_t uncopy_comm_split(uncopy_comm_t *parent, int32_t color,
                                                               int32_t key,
                                                               uncopy_comm_t **out_comm);

UNCOPY_API void uncopy_comm_retain(uncopy_comm_t *comm);
/* Not collective. The last release leaves the communicator: a peer that still waits for this rank
 * gets UNCOPY_ERROR_PEER ("left"). Its windows stay until each is released. NULL is allowed. */
UNCOPY_API void uncopy_comm_release(uncopy_comm_t *comm);

UNCOPY_API int32_t uncopy_comm_rank(const uncopy_comm_t *comm);
UNCOPY_API int32_t uncopy_comm_size(const uncopy_comm_t *comm);
/* Borrowed until the release. */
UNCOPY_API const char *uncopy_comm_name(const uncopy_comm_t *comm);
UNCOPY_API int64_t uncopy_comm_timeout(const uncopy_comm_t *comm);
/* For calls that begin later; need not agree between ranks. timeout_ns above 0, else
 * UNCOPY_ERROR_ARGUMENT. */
UNCOPY_API UNCOPY_MUST_CHECK uncopy_status_t uncopy_comm_set_timeout(uncopy_comm_t *comm,
                                                                     int64_t timeout_ns);

/* UNCOPY_OK, or the code that broke the communicator, with the thread's message set to its
 * words. */
UNCOPY_API UNCOPY_MUST_CHECK uncopy_status_t uncopy_comm_state(uncopy_comm_t *comm);
/* 1 while the process of rank lives and holds the communicator, else 0. Never waits. */
UNCOPY_API int uncopy_comm_is_alive(uncopy_comm_t *comm, int32_t rank);
/* Breaks the communicator: calls that wait in it, on any rank and in any thread, return
 * UNCOPY_ERROR_ABORTED with the reason (at most 127 bytes are kept) within a millisecond or so. Any
 * thread, at any time. */
UNCOPY_API void uncopy_comm_abort(uncopy_comm_t *comm, const char *reason);

/* ---------------------------------------------------------------- calls */

/* What becomes of a result right after the call: decides how large results are written. */
typedef enum uncopy_comm_reuse {
    /* read next, or unknown: past the caches from 2 * streaming_bytes */
    UNCOPY_COMM_REUSE_SOON = 0,
    UNCOPY_COMM_REUSE_LATER = 1, /* past the caches from streaming_bytes */
} uncopy_comm_reuse_t;

/* Of one call; every call takes NULL for none. */
typedef struct uncopy_comm_call {
    int64_t timeout_ns;                /* 0: the communicator's */
    uncopy_comm_interrupt_t interrupt; /* is_raised NULL: the communicator's */
    uncopy_comm_reuse_t reuse;
} uncopy_comm_call_t;

typedef enum uncopy_reduction {
#define REDUCTION(name, value, text) UNCOPY_REDUCE_##name = (value),
#include "uncopy/reduction.def"
#undef REDUCTION
} uncopy_reduction_t;

/* Text name as in messages ("sum"), NULL for a value that is none. Static storage. */
UNCOPY_API const char *uncopy_reduction_name(uncopy_reduction_t reduction);
/* 1 where the engine reduces dtype by reduction: sum, product, min, max of f64, f32, f16, bf16, i8,
 * i16, i32, i64, u8, bool; avg of the floats; band, bor, bxor of the integers and bool. Floats: min
 * and max give NaN if any element is NaN. avg multiplies the sum by 1/size in the accumulator. */
UNCOPY_API int uncopy_comm_reduces(uncopy_dtype_t dtype, uncopy_reduction_t reduction);

/* Bytes at an address, of a size of their own: one for each rank where a call takes an array.
 * Sources are only read. bytes is a multiple of the dtype's size. */
typedef struct uncopy_comm_block {
    void *data; /* may be NULL where bytes is 0 */
    int64_t bytes;
} uncopy_comm_block_t;

/* Counts are elements, at least 0; count 0 is a valid call that still waits for the peers. Sources
 * and destinations do not overlap, but where "in place" says how they may. Equal on all ranks,
 * else UNCOPY_ERROR_MISMATCH: operation, dtype, reduction, root, counts (of the whole group, or of
 * the pair where the call says so). The message names both ranks with what each called. */

/* Every rank waits until all have come. */
UNCOPY_API UNCOPY_MUST_CHECK uncopy_status_t uncopy_comm_barrier(uncopy_comm_t *comm,
                                                                 const uncopy_comm_call_t *call);

/* destination[p * count ...] = rank p's source[0 .. count). In place: source is the own slot,
 * destination + rank * count elements. */
UNCOPY_API UNCOPY_MUST_CHECK uncopy_status_t
uncopy_comm_all_gather(uncopy_comm_t *comm, const void *source, void *destination, int64_t count,
                       uncopy_dtype_t dtype, const uncopy_comm_call_t *call);

/* Uneven, or to places apart: rank p's source arrives in destinations[p] (size of them), whose
 * bytes are equal on all ranks; source is destinations[rank].bytes long, in place where it is
 * destinations[rank].data. */
UNCOPY_API UNCOPY_MUST_CHECK uncopy_status_t uncopy_comm_all_gather_blocks(
    uncopy_comm_t *comm, const void *source, const uncopy_comm_block_t *destinations,
    uncopy_dtype_t dtype, const uncopy_comm_call_t *call);

/* One of many pieces that one call moves: for a piece at (offset, length) of a flat buffer give
 * base + offset. stride_bytes: from one rank's part to the next, 0: bytes. */
typedef struct uncopy_comm_segment {
    void *source;
    void *destination;
    int64_t bytes; /* of one rank's part, the same on all ranks */
    int64_t stride_bytes;
} uncopy_comm_segment_t;

/* All gathers of a list in one: for each segment rank p's source arrives at destination + p *
 * stride. In place by segment. Segments are equal in number and bytes on all ranks. */
UNCOPY_API UNCOPY_MUST_CHECK uncopy_status_t uncopy_comm_all_gather_segments(
    uncopy_comm_t *comm, const uncopy_comm_segment_t *segments, int64_t num_segments,
    uncopy_dtype_t dtype, const uncopy_comm_call_t *call);

/* destination[0 .. count) = reduction over p of rank p's source[rank * count ...]. In place:
 * destination is source + rank * count elements. */
UNCOPY_API UNCOPY_MUST_CHECK uncopy_status_t uncopy_comm_reduce_scatter(
    uncopy_comm_t *comm, const void *source, void *destination, int64_t count, uncopy_dtype_t dtype,
    uncopy_reduction_t reduction, const uncopy_comm_call_t *call);

/* Uneven: sources[p] (size of them, bytes equal on all ranks) is reduced to rank p's destination.
 * In place where destination is sources[rank].data. */
UNCOPY_API UNCOPY_MUST_CHECK uncopy_status_t uncopy_comm_reduce_scatter_blocks(
    uncopy_comm_t *comm, const uncopy_comm_block_t *sources, void *destination,
    uncopy_dtype_t dtype, uncopy_reduction_t reduction, const uncopy_comm_call_t *call);

/* Of a list: each segment's source + p * stride is reduced to rank p's destination. */
UNCOPY_API UNCOPY_MUST_CHECK uncopy_status_t uncopy_comm_reduce_scatter_segments(
    uncopy_comm_t *comm, const uncopy_comm_segment_t *segments, int64_t num_segments,
    uncopy_dtype_t dtype, uncopy_reduction_t reduction, const uncopy_comm_call_t *call);

/* destination[i] = reduction over p of rank p's source[i]. In place: destination is source. */
UNCOPY_API UNCOPY_MUST_CHECK uncopy_status_t uncopy_comm_all_reduce(
    uncopy_comm_t *comm, const void *source, void *destination, int64_t count, uncopy_dtype_t dtype,
    uncopy_reduction_t reduction, const uncopy_comm_call_t *call);

/* As all_reduce, on root alone; destination is ignored elsewhere and may be NULL there. */
UNCOPY_API UNCOPY_MUST_CHECK uncopy_status_t uncopy_comm_reduce(
    uncopy_comm_t *comm, const void *source, void *destination, int64_t count, uncopy_dtype_t dtype,
    uncopy_reduction_t reduction, int32_t root, const uncopy_comm_call_t *call);

/* Every rank's buffer becomes root's. */
UNCOPY_API UNCOPY_MUST_CHECK uncopy_status_t uncopy_comm_broadcast(uncopy_comm_t *comm,
                                                                   void *buffer, int64_t count,
                                                                   uncopy_dtype_t dtype,
                                                                   int32_t root,
                                                                   const uncopy_comm_call_t *call);

/* Rank p's source arrives in root's destinations[p] (ignored elsewhere, may be NULL there), whose
 * bytes are the pair's. In place on root. */
UNCOPY_API UNCOPY_MUST_CHECK uncopy_status_t uncopy_comm_gather(
    uncopy_comm_t *comm, const void *source, int64_t count, const uncopy_comm_block_t *destinations,
    uncopy_dtype_t dtype, int32_t root, const uncopy_comm_call_t *call);

/* Root's sources[p] (ignored elsewhere, may be NULL there) arrives in rank p's destination. In
 * place on root. */
UNCOPY_API UNCOPY_MUST_CHECK uncopy_status_t uncopy_comm_scatter(uncopy_comm_t *comm,
                                                                 const uncopy_comm_block_t *sources,
                                                                 void *destination, int64_t count,
                                                                 uncopy_dtype_t dtype, int32_t root,
                                                                 const uncopy_comm_call_t *call);

/* destination[p * count ...] = rank p's source[rank * count ...]. Never in place. */
UNCOPY_API UNCOPY_MUST_CHECK uncopy_status_t
uncopy_comm_all_to_all(uncopy_comm_t *comm, const void *source, void *destination, int64_t count,
                       uncopy_dtype_t dtype, const uncopy_comm_call_t *call);

/* Uneven: sources[p] goes to rank p, where it arrives in destinations[this rank]; bytes are the
 * pair's. For byte counts and offsets give base + offset. */
UNCOPY_API UNCOPY_MUST_CHECK uncopy_status_t uncopy_comm_all_to_all_blocks(
    uncopy_comm_t *comm, const uncopy_comm_block_t *sources,
    const uncopy_comm_block_t *destinations, uncopy_dtype_t dtype, const uncopy_comm_call_t *call);

/* ---------------------------------------------------------------- transfers between two ranks */

typedef enum uncopy_transfer_kind {
    UNCOPY_TRANSFER_SEND = 0,
    UNCOPY_TRANSFER_RECEIVE = 1,
} uncopy_transfer_kind_t;

/* A receive takes the oldest message of its peer with its tag; bytes and dtype must be the
 * sender's, else UNCOPY_ERROR_MISMATCH. */
typedef struct uncopy_transfer {
    uncopy_transfer_kind_t kind;
    int32_t peer; /* another rank */
    int64_t tag;
    void *data;
    int64_t bytes;
    uncopy_dtype_t dtype;
} uncopy_transfer_t;

/* Runs all transfers, each moving on as its peer does, and returns when the last is complete: so
 * two ranks that send to each other in one call do not block each other. Several threads may be in
 * transfers of one communicator; sends to one peer are taken in the order of the calls. A send is
 * complete when data may be written again, which may be before it is received. */
UNCOPY_API UNCOPY_MUST_CHECK uncopy_status_t
uncopy_comm_transfer(uncopy_comm_t *comm, const uncopy_transfer_t *transfers, int64_t num_transfers,
                     const uncopy_comm_call_t *call);

/* ---------------------------------------------------------------- windows */

/* Memory of this rank that every peer reads where it lies. A collective: each rank asks for its own
 * size, at least 0 bytes. The memory is zero, aligned to a page, and of the system's shared memory,
 * not the context's. Made once, used often: it takes about 2 ms a MiB. Errors beside the usual:
 * UNCOPY_ERROR_MEMORY on every rank when one of them has none. */
UNCOPY_API UNCOPY_MUST_CHECK uncopy_status_t uncopy_window_create(uncopy_comm_t *comm,
                                                                  int64_t bytes,
                                                                  const uncopy_comm_call_t *call,
                                                                  uncopy_window_t **out_window);
/* Not collective, in any order. The memory is gone for this rank; the window is closed when every
 * rank has released it. No call may be using it. May come after the communicator's release. NULL is
 * allowed. */
UNCOPY_API void uncopy_window_release(uncopy_window_t *window);
UNCOPY_API void *uncopy_window_data(const uncopy_window_t *window);
UNCOPY_API int64_t uncopy_window_bytes(const uncopy_window_t *window);
/* A peer's memory, read only, until this rank's release; order reads against the peer's writes by a
 * barrier. The own memory for the own rank. */
UNCOPY_API const void *uncopy_window_peer_data(const uncopy_window_t *window, int32_t rank);
/* The window of comm that holds all of [address, address + bytes), or NULL. Borrowed. */
UNCOPY_API uncopy_window_t *uncopy_comm_find_window(uncopy_comm_t *comm, const void *address,
                                                    int64_t bytes);

/* ---------------------------------------------------------------- what happened */

/* Of this rank, since the communicator was made or counts were reset. Bytes are those that this
 * rank read from peers. */
typedef struct uncopy_comm_counts {
    int64_t calls;          /* collectives and transfers */
    int64_t one_step;       /* of them: in one step, payload beside the header */
    int64_t staged, direct; /* of them: with some peer's bytes staged in chunks; with all bytes read
                               where they lie */
    int64_t steps;
    int64_t bytes_staged;   /* through shared memory beside the header or in chunks */
    int64_t bytes_window;   /* from windows */
    int64_t bytes_read;     /* with process_vm_readv */
    int64_t bytes_streamed; /* of all these: written past the caches */
    int64_t waits_slept;    /* waits that went to sleep */
    int64_t wait_ns;        /* spent in waits that did not end at once */
} uncopy_comm_counts_t;

UNCOPY_API void uncopy_comm_counts(const uncopy_comm_t *comm, uncopy_comm_counts_t *out_counts);
UNCOPY_API void uncopy_comm_reset_counts(uncopy_comm_t *comm);

#ifdef __cplusplus
}
#endif

#endif
