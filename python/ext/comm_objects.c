/* Job: one call of a communicator in flight. Window: memory that the ranks of a communicator read
 * where it lies. */
#include "comm.h"
#include "error.h"

/* Job */

PyObject *job_object_create(exchange_job_t *job)
{
    job_object_t *self = (job_object_t *)core.job_type->tp_alloc(core.job_type, 0);
    if (self == NULL) {
        exchange_job_release(job);
        return NULL;
    }
    self->job = job;
    return (PyObject *)self;
}

static PyObject *job_wait(PyObject *object, PyObject *const *arguments, Py_ssize_t count)
{
    exchange_job_t *job = ((job_object_t *)object)->job;
    double seconds = count > 0 && arguments[0] != Py_None ? PyFloat_AsDouble(arguments[0]) : -1.0;
    if (PyErr_Occurred()) {
        return NULL;
    }
    bool is_bounded = seconds > 0 && seconds < 9e9;
    int is_done = exchange_wait(job, is_bounded ? (int64_t)(seconds * 1e9) : -1);
    if (is_done < 0 || exchange_raise(job)) {
        return NULL;
    }
    if (!is_done) {
        return PyErr_Format(PyExc_RuntimeError, "%s was not done within %R seconds",
                            exchange_kind_name(job->kind), arguments[0]);
    }
    Py_RETURN_NONE;
}

static PyObject *job_is_done(PyObject *object, PyObject *unused)
{
    (void)unused;
    return PyBool_FromLong(exchange_is_done(((job_object_t *)object)->job));
}

static PyObject *job_error(PyObject *object, PyObject *unused)
{
    (void)unused;
    if (!exchange_raise(((job_object_t *)object)->job)) {
        Py_RETURN_NONE;
    }
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    return value;
}

static PyObject *job_on_done(PyObject *object, PyObject *callback)
{
    if (exchange_on_done(((job_object_t *)object)->job, callback) != 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static void job_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    exchange_job_release(((job_object_t *)object)->job);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyMethodDef job_methods[] = {
    {"wait", (PyCFunction)(void (*)(void))job_wait, METH_FASTCALL,
     "Waits at most so many seconds (None: for ever); raises the call's error."},
    {"is_done", job_is_done, METH_NOARGS, "Whether the call has ended."},
    {"error", job_error, METH_NOARGS, "The exception it ended with, or None."},
    {"on_done", job_on_done, METH_O, "Calls a function when the call has ended."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot job_slots[] = {
    {Py_tp_dealloc, (void *)(uintptr_t)job_dealloc},
    {Py_tp_methods, job_methods},
    {Py_tp_doc, "One call of a communicator."},
    {0, NULL},
};

PyTypeObject *job_type_create(void)
{
    PyType_Spec spec = {.name = "uncopy._core.Job",
                        .basicsize = sizeof(job_object_t),
                        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE |
                                 Py_TPFLAGS_DISALLOW_INSTANTIATION,
                        .slots = job_slots};
    return (PyTypeObject *)PyType_FromSpec(&spec);
}

/* Window */

typedef struct window_object {
    PyObject_HEAD uncopy_window_t *window;
} window_object_t;

PyObject *window_object_create(const communicator_object_t *communicator, int64_t bytes)
{
    uncopy_comm_t *comm = exchange_comm(communicator->station);
    uncopy_comm_call_t call = {.timeout_ns = 0};
    call.interrupt.is_raised = exchange_is_signalled;
    uncopy_window_t *window = NULL;
    uncopy_status_t status;
    Py_BEGIN_ALLOW_THREADS;
    status = uncopy_window_create(comm, bytes, &call, &window);
    Py_END_ALLOW_THREADS;
    if (status != UNCOPY_OK) {
        return PyErr_Occurred() != NULL ? NULL : error_raise(status);
    }
    window_object_t *self = (window_object_t *)core.window_type->tp_alloc(core.window_type, 0);
    if (self == NULL) {
        uncopy_window_release(window);
        return NULL;
    }
    self->window = window;
    return (PyObject *)self;
}

static PyObject *window_address(PyObject *object, void *unused)
{
    (void)unused;
    return PyLong_FromVoidPtr(uncopy_window_data(((window_object_t *)object)->window));
}

static PyObject *window_bytes(PyObject *object, void *unused)
{
    (void)unused;
    return PyLong_FromLongLong(uncopy_window_bytes(((window_object_t *)object)->window));
}

static void window_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    uncopy_window_release(((window_object_t *)object)->window);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyGetSetDef window_getset[] = {
    {"address", window_address, NULL, "Address of the first byte.", NULL},
    {"bytes", window_bytes, NULL, "Size in bytes.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot window_slots[] = {
    {Py_tp_dealloc, (void *)(uintptr_t)window_dealloc},
    {Py_tp_getset, window_getset},
    {Py_tp_doc, "Memory of this rank that the peers read where it lies."},
    {0, NULL},
};

PyTypeObject *window_type_create(void)
{
    PyType_Spec spec = {.name = "uncopy._core.Window",
                        .basicsize = sizeof(window_object_t),
                        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE |
                                 Py_TPFLAGS_DISALLOW_INSTANTIATION,
                        .slots = window_slots};
    return (PyTypeObject *)PyType_FromSpec(&spec);
}
