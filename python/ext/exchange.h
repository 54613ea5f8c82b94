/* Collectives and transfers of one communicator, in the order in which they are called: at once in
 * the calling thread, or one after the other on a thread of their own.
 *
 * A station pairs a communicator with its lanes. Lane 0 takes the collectives; transfers have a
 * lane for each peer, direction and tag, since one that waits must not hold up another. A lane's
 * thread runs while it has work. A job is one call with the tensors whose bytes it moves.
 *
 * Ownership: stations and jobs are counted; a job keeps its tensors until it is done and nobody
 * holds it. Threads: all functions need the GIL unless they say otherwise; jobs run without it. */
#ifndef UNCOPY_EXT_EXCHANGE_H
#define UNCOPY_EXT_EXCHANGE_H

#include <stdatomic.h>

#include "state.h"

typedef enum exchange_kind {
    EXCHANGE_BARRIER,
    EXCHANGE_ALL_GATHER,
    EXCHANGE_ALL_GATHER_BLOCKS,
    EXCHANGE_ALL_GATHER_SEGMENTS,
    EXCHANGE_REDUCE_SCATTER,
    EXCHANGE_REDUCE_SCATTER_BLOCKS,
    EXCHANGE_REDUCE_SCATTER_SEGMENTS,
    EXCHANGE_ALL_REDUCE, /* of each pair of destination and source */
    EXCHANGE_REDUCE,     /* likewise */
    EXCHANGE_BROADCAST,  /* of each destination */
    EXCHANGE_GATHER,
    EXCHANGE_SCATTER,
    EXCHANGE_ALL_TO_ALL,
    EXCHANGE_ALL_TO_ALL_BLOCKS,
    EXCHANGE_SEND,    /* of each source */
    EXCHANGE_RECEIVE, /* into each destination */
    EXCHANGE_NUM_KINDS,
} exchange_kind_t;

const char *exchange_kind_name(exchange_kind_t kind);

typedef struct exchange_lane exchange_lane_t;
typedef struct exchange_station exchange_station_t;

enum { EXCHANGE_MESSAGE_BYTES = 512 };

typedef struct exchange_job {
    atomic_long references;
    exchange_station_t *station; /* counted */
    exchange_kind_t kind;
    uncopy_comm_block_t *destinations, *sources;
    Py_ssize_t num_destinations, num_sources;
    uncopy_dtype_t dtype;
    uncopy_reduction_t reduction;
    int32_t peer; /* root of a collective, the other rank of a transfer */
    int64_t tag;
    int64_t timeout_ns;
    bool is_inline; /* runs in the calling thread, which polls signals */
    /* under the station's lock */
    bool is_done;
    uncopy_status_t status;
    char message[EXCHANGE_MESSAGE_BYTES];
    PyObject *kept;      /* the tensors */
    PyObject *callbacks; /* list or NULL, called without arguments when the job is done */
    struct exchange_job *next;
} exchange_job_t;

/* Takes over the reference to comm. NULL with an exception. */
exchange_station_t *exchange_station_create(uncopy_comm_t *comm);
/* No GIL needed. */
void exchange_station_retain(exchange_station_t *station);
void exchange_station_release(exchange_station_t *station);
uncopy_comm_t *exchange_comm(const exchange_station_t *station);

/* A job without blocks; NULL with an exception. */
exchange_job_t *exchange_job_create(exchange_station_t *station, exchange_kind_t kind);
void exchange_job_retain(exchange_job_t *job);
void exchange_job_release(exchange_job_t *job);

/* Runs the job here where its lane is idle and is_async is false, else on its lane's thread.
 * Returns -1 with an exception where no thread can be had, or where a signal's handler raised. An
 * error of the job itself is the job's. */
int exchange_start(exchange_job_t *job, bool is_async);

/* Waits until the job is done, at most timeout_ns (below 0: for ever), polling signals. 1: done, 0:
 * not in time, -1 with an exception of a signal's handler. */
int exchange_wait(exchange_job_t *job, int64_t timeout_ns);

bool exchange_is_done(exchange_job_t *job);

/* Raises the job's error if it has one; whether it did. */
bool exchange_raise(exchange_job_t *job);

/* Calls callback when the job is done, at once if it is. -1 with an exception. */
int exchange_on_done(exchange_job_t *job, PyObject *callback);

/* For uncopy_comm_interrupt_t: whether a signal's handler raised; the exception stays set in this
 * thread. Takes the GIL. */
int exchange_is_signalled(void *self);

/* Waits until no collective of the station is in flight. No GIL needed; 0 where is_interrupted says
 * so. */
bool exchange_drain(exchange_station_t *station, bool (*is_interrupted)(void *self), void *self);

/* ---- the stations that plans find, by the name of their group ---- */

/* Under a name that another station has, the newer one is found. -1 with an exception. */
int exchange_publish(exchange_station_t *station, const char *group_name);
void exchange_withdraw(exchange_station_t *station);
/* Counted, or NULL. No GIL needed. */
exchange_station_t *exchange_find(const char *group_name);

#endif
