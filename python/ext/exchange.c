/* Jobs, lanes and stations. Invariants and ownership are in exchange.h. */
#include "exchange.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "error.h"

enum { POLL_NS = 50 * 1000 * 1000 };

struct exchange_lane {
    exchange_kind_t kind; /* EXCHANGE_BARRIER: of the collectives */
    int32_t peer;
    int64_t tag;
    exchange_job_t *head, *tail;
    bool is_busy;    /* a job of it runs */
    bool has_thread; /* a thread serves it */
    exchange_lane_t *next;
};

struct exchange_station {
    atomic_long references;
    uncopy_comm_t *comm;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a job was done, or a lane became idle */
    exchange_lane_t collectives;
    exchange_lane_t *transfers;
    pid_t process; /* that made it: its threads are not in a fork's child */
    char *group_name;
    exchange_station_t *next; /* among those published */
};

uncopy_comm_t *exchange_comm(const exchange_station_t *station)
{
    return station->comm;
}

/* Stations */

exchange_station_t *exchange_station_create(uncopy_comm_t *comm)
{
    exchange_station_t *station = calloc(1, sizeof(*station));
    pthread_condattr_t attributes;
    if (station == NULL || pthread_condattr_init(&attributes) != 0) {
        free(station);
        uncopy_comm_release(comm);
        PyErr_NoMemory();
        return NULL;
    }
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_mutex_init(&station->lock, NULL);
    (void)pthread_cond_init(&station->changed, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    atomic_init(&station->references, 1);
    station->comm = comm;
    station->process = getpid();
    return station;
}

void exchange_station_retain(exchange_station_t *station)
{
    /* relaxed: whoever calls holds a reference already */
    atomic_fetch_add_explicit(&station->references, 1, memory_order_relaxed);
}

void exchange_station_release(exchange_station_t *station)
{
    /* acq_rel: pairs with the other releases */
    if (station == NULL ||
        atomic_fetch_sub_explicit(&station->references, 1, memory_order_acq_rel) != 1) {
        return;
    }
    while (station->transfers != NULL) {
        exchange_lane_t *lane = station->transfers;
        station->transfers = lane->next;
        free(lane);
    }
    uncopy_comm_release(station->comm);
    (void)pthread_cond_destroy(&station->changed);
    (void)pthread_mutex_destroy(&station->lock);
    free(station->group_name);
    free(station);
}

/* Jobs */

exchange_job_t *exchange_job_create(exchange_station_t *station, exchange_kind_t kind)
{
    exchange_job_t *job = calloc(1, sizeof(*job));
    if (job == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    atomic_init(&job->references, 1);
    exchange_station_retain(station);
    job->station = station;
    job->kind = kind;
    return job;
}

void exchange_job_retain(exchange_job_t *job)
{
    /* relaxed: whoever calls holds a reference already */
    atomic_fetch_add_explicit(&job->references, 1, memory_order_relaxed);
}

void exchange_job_release(exchange_job_t *job)
{
    /* acq_rel: pairs with the other releases */
    if (job == NULL || atomic_fetch_sub_explicit(&job->references, 1, memory_order_acq_rel) != 1) {
        return;
    }
    if ((job->kept != NULL || job->callbacks != NULL) && Py_IsInitialized()) {
        PyGILState_STATE state = PyGILState_Ensure();
        Py_CLEAR(job->kept);
        Py_CLEAR(job->callbacks);
        PyGILState_Release(state);
    }
    exchange_station_release(job->station);
    free(job->destinations);
    free(job->sources);
    free(job);
}

/* Running, without the GIL */

static uncopy_status_t gather_segments(const exchange_job_t *job, const uncopy_comm_call_t *call,
                                       bool is_reducing)
{
    uncopy_comm_t *comm = job->station->comm;
    Py_ssize_t count = job->num_destinations;
    uncopy_comm_segment_t *segments = calloc((size_t)count + 1, sizeof(*segments));
    if (segments == NULL) {
        return uncopy_host_fail("no memory for a list of segments");
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        int64_t bytes = is_reducing ? job->destinations[i].bytes : job->sources[i].bytes;
        segments[i] =
            (uncopy_comm_segment_t){job->sources[i].data, job->destinations[i].data, bytes, 0};
    }
    uncopy_status_t status =
        is_reducing ? uncopy_comm_reduce_scatter_segments(comm, segments, count, job->dtype,
                                                          job->reduction, call)
                    : uncopy_comm_all_gather_segments(comm, segments, count, job->dtype, call);
    free(segments);
    return status;
}

static uncopy_status_t run_reductions(const exchange_job_t *job, const uncopy_comm_call_t *call)
{
    uncopy_comm_t *comm = job->station->comm;
    int64_t width = (int64_t)uncopy_dtype_size(job->dtype);
    uncopy_status_t status = UNCOPY_OK;
    for (Py_ssize_t i = 0; status == UNCOPY_OK && i < job->num_sources; i++) {
        const uncopy_comm_block_t *source = &job->sources[i];
        void *destination = job->destinations[i].data;
        status =
            job->kind == EXCHANGE_ALL_REDUCE
                ? uncopy_comm_all_reduce(comm, source->data, destination, source->bytes / width,
                                         job->dtype, job->reduction, call)
                : uncopy_comm_reduce(comm, source->data, destination, source->bytes / width,
                                     job->dtype, job->reduction, job->peer, call);
    }
    return status;
}

static uncopy_status_t run_broadcasts(const exchange_job_t *job, const uncopy_comm_call_t *call)
{
    int64_t width = (int64_t)uncopy_dtype_size(job->dtype);
    uncopy_status_t status = UNCOPY_OK;
    for (Py_ssize_t i = 0; status == UNCOPY_OK && i < job->num_destinations; i++) {
        const uncopy_comm_block_t *buffer = &job->destinations[i];
        status = uncopy_comm_broadcast(job->station->comm, buffer->data, buffer->bytes / width,
                                       job->dtype, job->peer, call);
    }
    return status;
}

static uncopy_status_t run_transfers(const exchange_job_t *job, const uncopy_comm_call_t *call)
{
    bool is_send = job->kind == EXCHANGE_SEND;
    const uncopy_comm_block_t *blocks = is_send ? job->sources : job->destinations;
    Py_ssize_t count = is_send ? job->num_sources : job->num_destinations;
    uncopy_status_t status = UNCOPY_OK;
    for (Py_ssize_t i = 0; status == UNCOPY_OK && i < count; i++) {
        uncopy_transfer_t transfer = {.kind =
                                          is_send ? UNCOPY_TRANSFER_SEND : UNCOPY_TRANSFER_RECEIVE,
                                      .peer = job->peer,
                                      .tag = job->tag,
                                      .data = blocks[i].data,
                                      .bytes = blocks[i].bytes,
                                      .dtype = job->dtype};
        status = uncopy_comm_transfer(job->station->comm, &transfer, 1, call);
    }
    return status;
}

/* Calls of one source and one destination. */
static uncopy_status_t run_pair(const exchange_job_t *job, const uncopy_comm_call_t *call)
{
    uncopy_comm_t *comm = job->station->comm;
    const void *source = job->sources[0].data;
    void *destination = job->destinations[0].data;
    int64_t width = (int64_t)uncopy_dtype_size(job->dtype);
    int64_t size = uncopy_comm_size(comm);
    switch (job->kind) {
    case EXCHANGE_ALL_GATHER:
        return uncopy_comm_all_gather(comm, source, destination, job->sources[0].bytes / width,
                                      job->dtype, call);
    case EXCHANGE_REDUCE_SCATTER:
        return uncopy_comm_reduce_scatter(comm, source, destination,
                                          job->destinations[0].bytes / width, job->dtype,
                                          job->reduction, call);
    default:
        return uncopy_comm_all_to_all(comm, source, destination,
                                      job->sources[0].bytes / width / size, job->dtype, call);
    }
}

static uncopy_status_t run_blocks(const exchange_job_t *job, const uncopy_comm_call_t *call)
{
    uncopy_comm_t *comm = job->station->comm;
    int64_t width = (int64_t)uncopy_dtype_size(job->dtype);
    switch (job->kind) {
    case EXCHANGE_ALL_GATHER_BLOCKS:
        return uncopy_comm_all_gather_blocks(comm, job->sources[0].data, job->destinations,
                                             job->dtype, call);
    case EXCHANGE_REDUCE_SCATTER_BLOCKS:
        return uncopy_comm_reduce_scatter_blocks(comm, job->sources, job->destinations[0].data,
                                                 job->dtype, job->reduction, call);
    case EXCHANGE_GATHER:
        return uncopy_comm_gather(comm, job->sources[0].data, job->sources[0].bytes / width,
                                  job->num_destinations > 0 ? job->destinations : NULL, job->dtype,
                                  job->peer, call);
    case EXCHANGE_SCATTER:
        return uncopy_comm_scatter(comm, job->num_sources > 0 ? job->sources : NULL,
                                   job->destinations[0].data, job->destinations[0].bytes / width,
                                   job->dtype, job->peer, call);
    default:
        return uncopy_comm_all_to_all_blocks(comm, job->sources, job->destinations, job->dtype,
                                             call);
    }
}

int exchange_is_signalled(void *self)
{
    (void)self;
    PyGILState_STATE state = PyGILState_Ensure();
    int found = PyErr_CheckSignals() != 0;
    PyGILState_Release(state);
    return found;
}

static uncopy_status_t run(const exchange_job_t *job)
{
    uncopy_comm_call_t call = {.timeout_ns = job->timeout_ns};
    call.interrupt.is_raised = job->is_inline ? exchange_is_signalled : NULL;
    switch (job->kind) {
    case EXCHANGE_BARRIER:
        return uncopy_comm_barrier(job->station->comm, &call);
    case EXCHANGE_ALL_GATHER:
    case EXCHANGE_REDUCE_SCATTER:
    case EXCHANGE_ALL_TO_ALL:
        return run_pair(job, &call);
    case EXCHANGE_ALL_GATHER_SEGMENTS:
    case EXCHANGE_REDUCE_SCATTER_SEGMENTS:
        return gather_segments(job, &call, job->kind == EXCHANGE_REDUCE_SCATTER_SEGMENTS);
    case EXCHANGE_ALL_REDUCE:
    case EXCHANGE_REDUCE:
        return run_reductions(job, &call);
    case EXCHANGE_BROADCAST:
        return run_broadcasts(job, &call);
    case EXCHANGE_ALL_GATHER_BLOCKS:
    case EXCHANGE_REDUCE_SCATTER_BLOCKS:
    case EXCHANGE_GATHER:
    case EXCHANGE_SCATTER:
    case EXCHANGE_ALL_TO_ALL_BLOCKS:
        return run_blocks(job, &call);
    case EXCHANGE_SEND:
    case EXCHANGE_RECEIVE:
        return run_transfers(job, &call);
    case EXCHANGE_NUM_KINDS:
        break;
    }
    return uncopy_host_fail("no such collective");
}

/* Needs the GIL. An exception of a callback has nobody to go to. */
static void call_back(PyObject *callbacks)
{
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(callbacks); i++) {
        PyObject *returned = PyObject_CallNoArgs(PyList_GET_ITEM(callbacks, i));
        if (returned == NULL) {
            PyErr_WriteUnraisable(PyList_GET_ITEM(callbacks, i));
        }
        Py_XDECREF(returned);
    }
}

static void finish(exchange_job_t *job, uncopy_status_t status)
{
    exchange_station_t *station = job->station;
    (void)pthread_mutex_lock(&station->lock);
    job->status = status;
    if (status != UNCOPY_OK) {
        const char *words = uncopy_last_message();
        size_t length = strnlen(words, sizeof(job->message) - 1);
        memcpy(job->message, words, length);
        job->message[length] = '\0';
    }
    job->is_done = true;
    PyObject *callbacks = job->callbacks;
    job->callbacks = NULL;
    (void)pthread_cond_broadcast(&station->changed);
    (void)pthread_mutex_unlock(&station->lock);
    if (callbacks != NULL && Py_IsInitialized()) {
        PyGILState_STATE state = PyGILState_Ensure();
        call_back(callbacks);
        Py_DECREF(callbacks);
        PyGILState_Release(state);
    }
}

/* Lanes */

typedef struct served_lane {
    exchange_station_t *station; /* counted */
    exchange_lane_t *lane;
} served_lane_t;

/* The lane's next job, its lane marked busy; NULL, and the thread's end, where there is none. */
static exchange_job_t *take_job(const served_lane_t *served)
{
    exchange_lane_t *lane = served->lane;
    (void)pthread_mutex_lock(&served->station->lock);
    while (lane->is_busy && lane->head != NULL) {
        (void)pthread_cond_wait(&served->station->changed, &served->station->lock);
    }
    exchange_job_t *job = lane->head;
    if (job != NULL) {
        lane->head = job->next;
        lane->tail = lane->head == NULL ? NULL : lane->tail;
        lane->is_busy = true;
    } else {
        lane->has_thread = false;
    }
    (void)pthread_mutex_unlock(&served->station->lock);
    return job;
}

static void leave_lane(exchange_station_t *station, exchange_lane_t *lane)
{
    (void)pthread_mutex_lock(&station->lock);
    lane->is_busy = false;
    (void)pthread_cond_broadcast(&station->changed);
    (void)pthread_mutex_unlock(&station->lock);
}

static void *serve_lane(void *argument)
{
    served_lane_t served = *(served_lane_t *)argument;
    free(argument);
    for (exchange_job_t *job = take_job(&served); job != NULL; job = take_job(&served)) {
        finish(job, run(job));
        leave_lane(served.station, served.lane);
        exchange_job_release(job);
    }
    exchange_station_release(served.station);
    return NULL;
}

/* Under the station's lock. */
static int start_thread(exchange_station_t *station, exchange_lane_t *lane)
{
    served_lane_t *served = malloc(sizeof(*served));
    pthread_attr_t attributes;
    pthread_t thread;
    if (served == NULL || pthread_attr_init(&attributes) != 0) {
        free(served);
        return ENOMEM;
    }
    *served = (served_lane_t){station, lane};
    exchange_station_retain(station);
    (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    int failed = pthread_create(&thread, &attributes, serve_lane, served);
    (void)pthread_attr_destroy(&attributes);
    if (failed != 0) {
        free(served);
        exchange_station_release(station);
    }
    lane->has_thread = failed == 0;
    return failed;
}

static bool is_transfer(exchange_kind_t kind)
{
    return kind == EXCHANGE_SEND || kind == EXCHANGE_RECEIVE;
}

/* Under the station's lock; NULL without memory. */
static exchange_lane_t *find_lane(exchange_station_t *station, const exchange_job_t *job)
{
    if (!is_transfer(job->kind)) {
        return &station->collectives;
    }
    exchange_lane_t *lane = station->transfers;
    while (lane != NULL &&
           (lane->kind != job->kind || lane->peer != job->peer || lane->tag != job->tag)) {
        lane = lane->next;
    }
    if (lane == NULL) {
        lane = calloc(1, sizeof(*lane));
    } else {
        return lane;
    }
    if (lane != NULL) {
        lane->kind = job->kind;
        lane->peer = job->peer;
        lane->tag = job->tag;
        lane->next = station->transfers;
        station->transfers = lane;
    }
    return lane;
}

/* Takes the lane for the calling thread, or queues the job on it. Needs no GIL. Returns an
 * errno. */
static int enter_lane(exchange_job_t *job, bool is_async, exchange_lane_t **out_lane)
{
    exchange_station_t *station = job->station;
    int failed = 0;
    (void)pthread_mutex_lock(&station->lock);
    exchange_lane_t *lane = find_lane(station, job);
    job->is_inline = lane != NULL && !is_async && !lane->is_busy && lane->head == NULL;
    if (lane == NULL) {
        failed = ENOMEM;
    } else if (job->is_inline) {
        lane->is_busy = true;
    } else {
        failed = lane->has_thread ? 0 : start_thread(station, lane);
        if (failed == 0) {
            exchange_job_retain(job);
            *(lane->tail == NULL ? &lane->head : &lane->tail->next) = job;
            lane->tail = job;
        }
    }
    (void)pthread_mutex_unlock(&station->lock);
    *out_lane = lane;
    return failed;
}

int exchange_start(exchange_job_t *job, bool is_async)
{
    if (job->station->process != getpid()) {
        PyErr_Format(PyExc_RuntimeError,
                     "the group \"%s\" belongs to the parent process: make one in the child",
                     uncopy_comm_name(job->station->comm));
        return -1;
    }
    exchange_lane_t *lane = NULL;
    int failed;
    Py_BEGIN_ALLOW_THREADS;
    failed = enter_lane(job, is_async, &lane);
    if (failed == 0 && job->is_inline) {
        finish(job, run(job));
        leave_lane(job->station, lane);
    }
    Py_END_ALLOW_THREADS;
    if (failed != 0) {
        errno = failed;
        PyErr_SetFromErrno(PyExc_OSError);
        return -1;
    }
    return PyErr_Occurred() != NULL ? -1 : 0;
}

/* Waiting */

static struct timespec later(int64_t ns)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t total = now.tv_nsec + ns;
    now.tv_sec += (time_t)(total / 1000000000);
    now.tv_nsec = (long)(total % 1000000000);
    return now;
}

bool exchange_is_done(exchange_job_t *job)
{
    (void)pthread_mutex_lock(&job->station->lock);
    bool is_done = job->is_done;
    (void)pthread_mutex_unlock(&job->station->lock);
    return is_done;
}

/* One slice of a wait, without the GIL. */
static bool wait_slice(exchange_job_t *job, int64_t ns)
{
    struct timespec until = later(ns);
    int failed = 0;
    (void)pthread_mutex_lock(&job->station->lock);
    while (!job->is_done && failed == 0) {
        failed = pthread_cond_timedwait(&job->station->changed, &job->station->lock, &until);
    }
    bool is_done = job->is_done;
    (void)pthread_mutex_unlock(&job->station->lock);
    return is_done;
}

int exchange_wait(exchange_job_t *job, int64_t timeout_ns)
{
    int64_t left = timeout_ns;
    bool is_done = exchange_is_done(job);
    while (!is_done && (timeout_ns < 0 || left > 0)) {
        int64_t slice = timeout_ns < 0 || left > POLL_NS ? POLL_NS : left;
        Py_BEGIN_ALLOW_THREADS;
        is_done = wait_slice(job, slice);
        Py_END_ALLOW_THREADS;
        left -= slice;
        if (!is_done && PyErr_CheckSignals() != 0) {
            return -1;
        }
    }
    return is_done;
}

bool exchange_raise(exchange_job_t *job)
{
    if (!exchange_is_done(job) || job->status == UNCOPY_OK) {
        return false;
    }
    error_raise_words(job->status, job->message);
    return true;
}

int exchange_on_done(exchange_job_t *job, PyObject *callback)
{
    PyObject *fresh = PyList_New(0);
    if (fresh == NULL) {
        return -1;
    }
    (void)pthread_mutex_lock(&job->station->lock);
    bool is_done = job->is_done;
    if (!is_done && job->callbacks == NULL) {
        job->callbacks = Py_NewRef(fresh);
    }
    int failed = is_done ? 0 : PyList_Append(job->callbacks, callback);
    (void)pthread_mutex_unlock(&job->station->lock);
    Py_DECREF(fresh);
    if (is_done) {
        PyObject *returned = PyObject_CallNoArgs(callback);
        failed = returned == NULL ? -1 : 0;
        Py_XDECREF(returned);
    }
    return failed;
}

bool exchange_drain(exchange_station_t *station, bool (*is_interrupted)(void *self), void *self)
{
    const exchange_lane_t *lane = &station->collectives;
    bool is_idle = false;
    while (!is_idle) {
        struct timespec until = later(POLL_NS);
        int failed = 0;
        (void)pthread_mutex_lock(&station->lock);
        while ((lane->is_busy || lane->head != NULL) && failed == 0) {
            failed = pthread_cond_timedwait(&station->changed, &station->lock, &until);
        }
        is_idle = !lane->is_busy && lane->head == NULL;
        (void)pthread_mutex_unlock(&station->lock);
        if (!is_idle && is_interrupted(self)) {
            return false;
        }
    }
    return true;
}

/* Published stations */

static pthread_mutex_t published_lock = PTHREAD_MUTEX_INITIALIZER;
static exchange_station_t *published;

static void unlink_published(const exchange_station_t *station)
{
    exchange_station_t **place = &published;
    while (*place != NULL && *place != station) {
        place = &(*place)->next;
    }
    if (*place != NULL) {
        *place = station->next;
    }
}

int exchange_publish(exchange_station_t *station, const char *group_name)
{
    char *copy = strdup(group_name);
    if (copy == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    (void)pthread_mutex_lock(&published_lock);
    unlink_published(station);
    free(station->group_name);
    station->group_name = copy;
    station->next = published;
    published = station;
    (void)pthread_mutex_unlock(&published_lock);
    return 0;
}

void exchange_withdraw(exchange_station_t *station)
{
    (void)pthread_mutex_lock(&published_lock);
    unlink_published(station);
    (void)pthread_mutex_unlock(&published_lock);
}

exchange_station_t *exchange_find(const char *group_name)
{
    (void)pthread_mutex_lock(&published_lock);
    exchange_station_t *found = published;
    while (found != NULL && strcmp(found->group_name, group_name) != 0) {
        found = found->next;
    }
    if (found != NULL) {
        exchange_station_retain(found);
    }
    (void)pthread_mutex_unlock(&published_lock);
    return found;
}

const char *exchange_kind_name(exchange_kind_t kind)
{
    static const char *const names[EXCHANGE_NUM_KINDS] = {
        [EXCHANGE_BARRIER] = "barrier",
        [EXCHANGE_ALL_GATHER] = "all_gather",
        [EXCHANGE_ALL_GATHER_BLOCKS] = "all_gather_blocks",
        [EXCHANGE_ALL_GATHER_SEGMENTS] = "all_gather_segments",
        [EXCHANGE_REDUCE_SCATTER] = "reduce_scatter",
        [EXCHANGE_REDUCE_SCATTER_BLOCKS] = "reduce_scatter_blocks",
        [EXCHANGE_REDUCE_SCATTER_SEGMENTS] = "reduce_scatter_segments",
        [EXCHANGE_ALL_REDUCE] = "all_reduce",
        [EXCHANGE_REDUCE] = "reduce",
        [EXCHANGE_BROADCAST] = "broadcast",
        [EXCHANGE_GATHER] = "gather",
        [EXCHANGE_SCATTER] = "scatter",
        [EXCHANGE_ALL_TO_ALL] = "all_to_all",
        [EXCHANGE_ALL_TO_ALL_BLOCKS] = "all_to_all_blocks",
        [EXCHANGE_SEND] = "send",
        [EXCHANGE_RECEIVE] = "receive",
    };
    return (unsigned)kind < EXCHANGE_NUM_KINDS ? names[kind] : NULL;
}
