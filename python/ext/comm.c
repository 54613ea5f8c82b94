/* Communicator: a communicator of the library, with calls that take tensors. */
#include "comm.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "tensor.h"

/* Making: the store's entries call back into Python */

typedef struct store_calls {
    PyObject *set; /* set(key, bytes) */
    PyObject *get; /* get(key, seconds) -> bytes; raises TimeoutError */
    PyObject *error_type, *error_value, *error_traceback;
} store_calls_t;

static uncopy_status_t keep_store_error(store_calls_t *store)
{
    uncopy_status_t status =
        PyErr_ExceptionMatches(PyExc_TimeoutError) ? UNCOPY_ERROR_TIMEOUT : UNCOPY_ERROR_HOST;
    Py_CLEAR(store->error_type);
    Py_CLEAR(store->error_value);
    Py_CLEAR(store->error_traceback);
    PyErr_Fetch(&store->error_type, &store->error_value, &store->error_traceback);
    (void)uncopy_host_fail("the store raised an exception");
    return status;
}

static uncopy_status_t store_set(void *self, const char *key, const void *value, size_t size)
{
    store_calls_t *store = self;
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *returned =
        PyObject_CallFunction(store->set, "sy#", key, (const char *)value, (Py_ssize_t)size);
    uncopy_status_t status = returned != NULL ? UNCOPY_OK : keep_store_error(store);
    Py_XDECREF(returned);
    PyGILState_Release(state);
    return status;
}

static int take_value(PyObject *value, void *place, size_t capacity, size_t *out_size)
{
    char *bytes = NULL;
    Py_ssize_t size = 0;
    if (value == NULL || PyBytes_AsStringAndSize(value, &bytes, &size) != 0) {
        return -1;
    }
    if ((size_t)size > capacity) {
        PyErr_Format(PyExc_ValueError, "a store's value has %zd bytes, at most %zu are wanted",
                     size, capacity);
        return -1;
    }
    memcpy(place, bytes, (size_t)size);
    *out_size = (size_t)size;
    return 0;
}

static uncopy_status_t store_get(void *self, const char *key, int64_t timeout_ns, void *value,
                                 size_t capacity, size_t *out_size)
{
    store_calls_t *store = self;
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *found = PyObject_CallFunction(store->get, "sd", key, (double)timeout_ns / 1e9);
    uncopy_status_t status =
        take_value(found, value, capacity, out_size) == 0 ? UNCOPY_OK : keep_store_error(store);
    Py_XDECREF(found);
    PyGILState_Release(state);
    return status;
}

/* Raises what making a communicator failed with: hosts apart is no error but None. */
static PyObject *raise_creation(uncopy_status_t status, store_calls_t *store)
{
    if (PyErr_Occurred() != NULL) { /* of a signal's handler */
        return NULL;
    }
    if (status == UNCOPY_ERROR_HOST && store->error_type != NULL) {
        PyErr_Restore(store->error_type, store->error_value, store->error_traceback);
        store->error_type = store->error_value = store->error_traceback = NULL;
        return NULL;
    }
    return error_raise(status);
}

static uncopy_status_t create_comm(store_calls_t *calls, const char *name, int rank, int size,
                                   double seconds, uncopy_comm_t **out_comm)
{
    uncopy_comm_store_t store = {calls, store_set, store_get};
    uncopy_comm_options_t options = {.name = name,
                                     .rank = rank,
                                     .size = size,
                                     .timeout_ns = (int64_t)(seconds * 1e9),
                                     .store = &store};
    options.interrupt.is_raised = exchange_is_signalled;
    const char *reads = getenv("UNCOPY_COMM_READS");
    options.reads =
        reads != NULL && strcmp(reads, "0") == 0 ? UNCOPY_COMM_READS_OFF : UNCOPY_COMM_READS_PROBED;
    uncopy_status_t status;
    Py_BEGIN_ALLOW_THREADS;
    status = uncopy_comm_create(core.context, &options, out_comm);
    Py_END_ALLOW_THREADS;
    return status;
}

static PyObject *wrap_comm(PyTypeObject *type, uncopy_comm_t *comm)
{
    exchange_station_t *station = exchange_station_create(comm);
    communicator_object_t *self =
        station != NULL ? (communicator_object_t *)type->tp_alloc(type, 0) : NULL;
    if (self == NULL) {
        exchange_station_release(station);
        return NULL;
    }
    self->station = station;
    return (PyObject *)self;
}

static PyObject *communicator_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"name", "rank", "size", "timeout", "set", "get", NULL};
    const char *name;
    int rank, size;
    double timeout;
    store_calls_t store = {0};
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "siidOO:Communicator", names, &name,
                                     &rank, &size, &timeout, &store.set, &store.get)) {
        return NULL;
    }
    uncopy_comm_t *comm = NULL;
    uncopy_status_t status = create_comm(&store, name, rank, size, timeout, &comm);
    PyObject *made = status == UNCOPY_OK ? wrap_comm(type, comm) : raise_creation(status, &store);
    Py_XDECREF(store.error_type);
    Py_XDECREF(store.error_value);
    Py_XDECREF(store.error_traceback);
    return made;
}

/* Tensors as blocks */

static bool is_row_major(const uncopy_argument_t *argument)
{
    int64_t expected = 1;
    for (int32_t d = argument->rank - 1; d >= 0; d--) {
        if (argument->sizes[d] == 0) {
            return true;
        }
        if (argument->sizes[d] != 1 && argument->strides[d] != expected) {
            return false;
        }
        expected *= argument->sizes[d];
    }
    return true;
}

static int read_block(PyObject *tensor, const char *what, Py_ssize_t number, bool is_written,
                      uncopy_comm_block_t *out, uncopy_dtype_t *out_dtype)
{
    tensor_dims_t dims;
    uncopy_argument_t argument;
    if (!core_is_tensor(tensor)) {
        PyErr_Format(PyExc_TypeError, "%s %zd is of type %s, not a tensor", what, number,
                     Py_TYPE(tensor)->tp_name);
        return -1;
    }
    if (tensor_read(tensor, what, (size_t)number, is_written, &argument, dims) != 0) {
        return -1;
    }
    if (!is_row_major(&argument)) {
        PyErr_Format(PyExc_ValueError, "%s %zd is not contiguous", what, number);
        return -1;
    }
    int64_t count = 1;
    for (int32_t d = 0; d < argument.rank; d++) {
        count *= argument.sizes[d];
    }
    *out_dtype = argument.dtype;
    *out = (uncopy_comm_block_t){argument.data, count * (int64_t)uncopy_dtype_size(argument.dtype)};
    return 0;
}

/* Reads a sequence of tensors. dtype: of the tensors so far, and of these together: u8 for bytes of
 * several. */
static int read_blocks(PyObject *tensors, const char *what, bool is_written,
                       uncopy_comm_block_t **out_blocks, Py_ssize_t *out_count, int *dtype)
{
    Py_ssize_t count = PySequence_Fast_GET_SIZE(tensors);
    uncopy_comm_block_t *blocks = calloc((size_t)count + 1, sizeof(*blocks));
    if (blocks == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    *out_blocks = blocks; /* the job's from here on */
    for (Py_ssize_t i = 0; i < count; i++) {
        uncopy_dtype_t found;
        if (read_block(PySequence_Fast_GET_ITEM(tensors, i), what, i, is_written, &blocks[i],
                       &found) != 0) {
            return -1;
        }
        bool is_mixed = *dtype >= 0 && *dtype != (int)found;
        *dtype = is_mixed ? (int)UNCOPY_DTYPE_U8 : (int)found;
    }
    *out_count = count;
    return 0;
}

static int fill_job(exchange_job_t *job, PyObject *destinations, PyObject *sources)
{
    int dtype = -1;
    job->kept = PyTuple_Pack(2, destinations, sources);
    if (job->kept == NULL ||
        read_blocks(destinations, "destination", true, &job->destinations, &job->num_destinations,
                    &dtype) != 0 ||
        read_blocks(sources, "source", false, &job->sources, &job->num_sources, &dtype) != 0) {
        return -1;
    }
    job->dtype = dtype < 0 ? UNCOPY_DTYPE_U8 : (uncopy_dtype_t)dtype;
    return 0;
}

/* The numbers of tensors that each kind takes; -1: as many as there are ranks; -2: any, equal on
 * both sides; -3: any. */
enum { EACH_RANK = -1, PAIRS = -2, ANY = -3 };

static const struct {
    int destinations, sources;
} shapes[EXCHANGE_NUM_KINDS] = {
    [EXCHANGE_BARRIER] = {0, 0},
    [EXCHANGE_ALL_GATHER] = {1, 1},
    [EXCHANGE_ALL_GATHER_BLOCKS] = {EACH_RANK, 1},
    [EXCHANGE_ALL_GATHER_SEGMENTS] = {PAIRS, PAIRS},
    [EXCHANGE_REDUCE_SCATTER] = {1, 1},
    [EXCHANGE_REDUCE_SCATTER_BLOCKS] = {1, EACH_RANK},
    [EXCHANGE_REDUCE_SCATTER_SEGMENTS] = {PAIRS, PAIRS},
    [EXCHANGE_ALL_REDUCE] = {PAIRS, PAIRS},
    [EXCHANGE_REDUCE] = {PAIRS, PAIRS},
    [EXCHANGE_BROADCAST] = {ANY, 0},
    [EXCHANGE_GATHER] = {ANY, 1},
    [EXCHANGE_SCATTER] = {1, ANY},
    [EXCHANGE_ALL_TO_ALL] = {1, 1},
    [EXCHANGE_ALL_TO_ALL_BLOCKS] = {EACH_RANK, EACH_RANK},
    [EXCHANGE_SEND] = {0, ANY},
    [EXCHANGE_RECEIVE] = {ANY, 0},
};

static bool has_shape(int wanted, Py_ssize_t found, Py_ssize_t ranks)
{
    return wanted >= 0 ? found == wanted : wanted == EACH_RANK ? found == ranks : true;
}

/* What the library cannot know, since it gets one count: the other side's size. */
static int check_bytes(const exchange_job_t *job, int64_t ranks)
{
    int64_t destination = job->num_destinations > 0 ? job->destinations[0].bytes : 0;
    int64_t source = job->num_sources > 0 ? job->sources[0].bytes : 0;
    bool fits = true;
    switch (job->kind) {
    case EXCHANGE_ALL_GATHER:
        fits = destination == source * ranks;
        break;
    case EXCHANGE_REDUCE_SCATTER:
        fits = source == destination * ranks;
        break;
    case EXCHANGE_ALL_TO_ALL:
        fits =
            source == destination && source % (ranks * (int64_t)uncopy_dtype_size(job->dtype)) == 0;
        break;
    default:
        break;
    }
    for (Py_ssize_t i = 0; fits && shapes[job->kind].sources == PAIRS && i < job->num_sources;
         i++) {
        int64_t from = job->sources[i].bytes, to = job->destinations[i].bytes;
        fits = job->kind == EXCHANGE_ALL_GATHER_SEGMENTS       ? to == from * ranks
               : job->kind == EXCHANGE_REDUCE_SCATTER_SEGMENTS ? from == to * ranks
                                                               : from == to;
    }
    if (!fits) {
        PyErr_Format(PyExc_ValueError,
                     "%s of %lld ranks: a source of %lld bytes does not fit a destination of %lld",
                     exchange_kind_name(job->kind), (long long)ranks, (long long)source,
                     (long long)destination);
        return -1;
    }
    return 0;
}

static int check_job(const exchange_job_t *job)
{
    Py_ssize_t ranks = uncopy_comm_size(exchange_comm(job->station));
    bool fits =
        has_shape(shapes[job->kind].destinations, job->num_destinations, ranks) &&
        has_shape(shapes[job->kind].sources, job->num_sources, ranks) &&
        (shapes[job->kind].destinations != PAIRS || job->num_destinations == job->num_sources);
    if (!fits) {
        PyErr_Format(PyExc_ValueError, "%s of %zd ranks takes no %zd destinations and %zd sources",
                     exchange_kind_name(job->kind), ranks, job->num_destinations, job->num_sources);
        return -1;
    }
    return check_bytes(job, ranks);
}

static exchange_job_t *make_job(exchange_station_t *station, int kind, PyObject *destinations,
                                PyObject *sources)
{
    if (kind < 0 || kind >= EXCHANGE_NUM_KINDS) {
        PyErr_Format(PyExc_ValueError, "there is no collective number %d", kind);
        return NULL;
    }
    PyObject *to = PySequence_Fast(destinations, "destinations is no sequence");
    PyObject *from = to != NULL ? PySequence_Fast(sources, "sources is no sequence") : NULL;
    exchange_job_t *job = from != NULL ? exchange_job_create(station, (exchange_kind_t)kind) : NULL;
    if (job != NULL && (fill_job(job, to, from) != 0 || check_job(job) != 0)) {
        exchange_job_release(job);
        job = NULL;
    }
    Py_XDECREF(to);
    Py_XDECREF(from);
    return job;
}

static exchange_station_t *open_station(PyObject *object)
{
    exchange_station_t *station = ((communicator_object_t *)object)->station;
    if (station == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "the communicator is closed");
    }
    return station;
}

static PyObject *communicator_start(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"kind",    "destinations", "sources", "reduction", "peer",
                            "timeout", "is_async",     "tag",     NULL};
    int kind, reduction = 0, peer = 0, is_async = 0;
    long long tag = 0;
    double timeout = 0;
    PyObject *destinations, *sources;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "iOO|iidpL:start", names, &kind,
                                     &destinations, &sources, &reduction, &peer, &timeout,
                                     &is_async, &tag)) {
        return NULL;
    }
    exchange_station_t *station = open_station(object);
    exchange_job_t *job = station != NULL ? make_job(station, kind, destinations, sources) : NULL;
    if (job == NULL) {
        return NULL;
    }
    job->reduction = (uncopy_reduction_t)reduction;
    job->peer = peer;
    job->tag = tag;
    job->timeout_ns = timeout > 0 && timeout < 9e9 ? (int64_t)(timeout * 1e9) : 0;
    if (exchange_start(job, is_async != 0) != 0) {
        exchange_job_release(job);
        return NULL;
    }
    return job_object_create(job);
}

/* Other methods */

static PyObject *communicator_window(PyObject *object, PyObject *bytes)
{
    int64_t size = PyLong_AsLongLong(bytes);
    if (PyErr_Occurred() || open_station(object) == NULL) {
        return NULL;
    }
    return window_object_create((communicator_object_t *)object, size);
}

static PyObject *communicator_publish(PyObject *object, PyObject *name)
{
    const char *text = PyUnicode_AsUTF8(name);
    exchange_station_t *station = text != NULL ? open_station(object) : NULL;
    if (station == NULL || exchange_publish(station, text) != 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static void close_station(communicator_object_t *self)
{
    if (self->station != NULL) {
        exchange_withdraw(self->station);
        exchange_station_release(self->station);
        self->station = NULL;
    }
}

static PyObject *communicator_close(PyObject *object, PyObject *unused)
{
    (void)unused;
    close_station((communicator_object_t *)object);
    Py_RETURN_NONE;
}

static PyObject *communicator_abort(PyObject *object, PyObject *reason)
{
    const char *text = PyUnicode_AsUTF8(reason);
    exchange_station_t *station = text != NULL ? open_station(object) : NULL;
    if (station == NULL) {
        return NULL;
    }
    uncopy_comm_abort(exchange_comm(station), text);
    Py_RETURN_NONE;
}

static PyObject *communicator_set_timeout(PyObject *object, PyObject *seconds)
{
    double value = PyFloat_AsDouble(seconds);
    exchange_station_t *station = PyErr_Occurred() == NULL ? open_station(object) : NULL;
    if (station == NULL) {
        return NULL;
    }
    uncopy_status_t status =
        uncopy_comm_set_timeout(exchange_comm(station), (int64_t)(value * 1e9));
    return status == UNCOPY_OK ? Py_NewRef(Py_None) : error_raise(status);
}

static PyObject *communicator_is_alive(PyObject *object, PyObject *rank)
{
    long number = PyLong_AsLong(rank);
    exchange_station_t *station = PyErr_Occurred() == NULL ? open_station(object) : NULL;
    return station != NULL
               ? PyBool_FromLong(uncopy_comm_is_alive(exchange_comm(station), (int32_t)number))
               : NULL;
}

static PyObject *communicator_state(PyObject *object, PyObject *unused)
{
    (void)unused;
    exchange_station_t *station = open_station(object);
    if (station == NULL) {
        return NULL;
    }
    uncopy_status_t status = uncopy_comm_state(exchange_comm(station));
    return Py_BuildValue("z", status == UNCOPY_OK ? NULL : uncopy_last_message());
}

static PyObject *communicator_counts(PyObject *object, PyObject *unused)
{
    (void)unused;
    exchange_station_t *station = open_station(object);
    if (station == NULL) {
        return NULL;
    }
    uncopy_comm_counts_t counts;
    uncopy_comm_counts(exchange_comm(station), &counts);
    return Py_BuildValue("{sLsLsLsLsLsLsLsLsLsLsL}", "calls", (long long)counts.calls, "one_step",
                         (long long)counts.one_step, "staged", (long long)counts.staged, "direct",
                         (long long)counts.direct, "steps", (long long)counts.steps, "bytes_staged",
                         (long long)counts.bytes_staged, "bytes_window",
                         (long long)counts.bytes_window, "bytes_read", (long long)counts.bytes_read,
                         "bytes_streamed", (long long)counts.bytes_streamed, "waits_slept",
                         (long long)counts.waits_slept, "wait_ns", (long long)counts.wait_ns);
}

static void communicator_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    communicator_object_t *self = (communicator_object_t *)object;
    if (self->weak_references != NULL) {
        PyObject_ClearWeakRefs(object);
    }
    close_station(self);
    type->tp_free(object);
    Py_DECREF(type);
}

#define WITH_KEYWORDS(function) (PyCFunction)(void (*)(void))(function)

static PyMethodDef communicator_methods[] = {
    {"start", WITH_KEYWORDS(communicator_start), METH_VARARGS | METH_KEYWORDS,
     "Starts a collective or a transfer; returns its Job."},
    {"window", communicator_window, METH_O, "Memory that peers read where it lies; a collective."},
    {"publish", communicator_publish, METH_O, "Lets plans find it by the name of its group."},
    {"close", communicator_close, METH_NOARGS, "Leaves; jobs in flight end by themselves."},
    {"abort", communicator_abort, METH_O, "Ends all calls in it, on every rank, with an error."},
    {"set_timeout", communicator_set_timeout, METH_O, "Seconds for calls that begin later."},
    {"is_alive", communicator_is_alive, METH_O, "Whether a rank lives and holds it."},
    {"state", communicator_state, METH_NOARGS, "What broke it, None while it is whole."},
    {"counts", communicator_counts, METH_NOARGS, "What it did, by name."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef communicator_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(communicator_object_t, weak_references), READONLY,
     NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot communicator_slots[] = {
    {Py_tp_new, (void *)(uintptr_t)communicator_new},
    {Py_tp_dealloc, (void *)(uintptr_t)communicator_dealloc},
    {Py_tp_methods, communicator_methods},
    {Py_tp_members, communicator_members},
    {Py_tp_doc, "The ranks of one host that exchange tensors over shared memory."},
    {0, NULL},
};

PyTypeObject *communicator_type_create(void)
{
    PyType_Spec spec = {.name = "uncopy._core.Communicator",
                        .basicsize = sizeof(communicator_object_t),
                        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
                        .slots = communicator_slots};
    return (PyTypeObject *)PyType_FromSpec(&spec);
}
