/* Plan: a plan of the library as Python reads it. It keeps plan and function alive. */

#include "error.h"
#include "object.h"

PyObject *plan_object_create(const uncopy_plan_t *plan, uncopy_function_t *function)
{
    plan_object_t *self = (plan_object_t *)core.plan_type->tp_alloc(core.plan_type, 0);
    if (self == NULL) {
        return NULL;
    }
    /* Retaining changes a count, not the plan. */
    self->plan = (uncopy_plan_t *)(uintptr_t)plan;
    self->function = function;
    uncopy_plan_retain(self->plan);
    uncopy_function_retain(function);
    return (PyObject *)self;
}

static void plan_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    plan_object_t *self = (plan_object_t *)object;
    if (self->weak_references != NULL) {
        PyObject_ClearWeakRefs(object);
    }
    uncopy_plan_release(self->plan);
    uncopy_function_release(self->function);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyObject *plan_text(PyObject *object, PyObject *unused)
{
    (void)unused;
    char *text = NULL;
    uncopy_status_t status = uncopy_plan_print(((plan_object_t *)object)->plan, &text);
    return status == UNCOPY_OK ? text_take(text) : error_raise(status);
}

static PyObject *plan_explain(PyObject *object, PyObject *unused)
{
    (void)unused;
    char *text = NULL;
    uncopy_status_t status = uncopy_plan_explain(((plan_object_t *)object)->plan, &text);
    return status == UNCOPY_OK ? text_take(text) : error_raise(status);
}

static PyObject *plan_counts(PyObject *object, PyObject *unused)
{
    (void)unused;
    uncopy_plan_counts_t counts;
    uncopy_plan_count(((plan_object_t *)object)->plan, &counts);
    return Py_BuildValue(
        "{sLsLsLsLsLsLsLsLsLsLsLsL}", "instructions", (long long)counts.instructions, "moves",
        (long long)counts.moves, "bytes_moved", (long long)counts.bytes_moved, "copies",
        (long long)counts.copies, "bytes_copied", (long long)counts.bytes_copied, "externs",
        (long long)counts.externs, "collectives", (long long)counts.collectives, "arena_bytes",
        (long long)counts.arena_bytes, "arena_lower_bound_bytes",
        (long long)counts.arena_lower_bound_bytes, "removed", (long long)counts.removed, "cost_ns",
        (long long)counts.cost_ns, "made_bytes", (long long)counts.made_bytes);
}

static PyObject *copy_at(const uncopy_plan_t *plan, size_t index)
{
    uncopy_copy_t copy;
    uncopy_status_t status = uncopy_plan_copy(plan, index, &copy);
    if (status != UNCOPY_OK) {
        return error_raise(status);
    }
    return Py_BuildValue("{szszsLszsi}", "reason", copy.reason, "words", copy.words, "bytes",
                         (long long)copy.bytes, "file", copy.file, "line", copy.line);
}

static PyObject *extern_at(const uncopy_plan_t *plan, size_t index)
{
    const char *file = NULL;
    int line = 0;
    const char *target = uncopy_plan_extern(plan, index, &file, &line);
    return Py_BuildValue("{szszsi}", "target", target, "file", file, "line", line);
}

static PyObject *list_of(const uncopy_plan_t *plan, size_t count,
                         PyObject *(*at)(const uncopy_plan_t *, size_t))
{
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < count; i++) {
        PyObject *element = at(plan, i);
        if (element == NULL || PyList_Append(list, element) != 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(element);
    }
    return list;
}

static PyObject *plan_copies(PyObject *object, PyObject *unused)
{
    (void)unused;
    const uncopy_plan_t *plan = ((plan_object_t *)object)->plan;
    return list_of(plan, uncopy_plan_num_copies(plan), copy_at);
}

static PyObject *plan_externs(PyObject *object, PyObject *unused)
{
    (void)unused;
    const uncopy_plan_t *plan = ((plan_object_t *)object)->plan;
    return list_of(plan, uncopy_plan_num_externs(plan), extern_at);
}

static PyMethodDef plan_methods[] = {
    {"text", plan_text, METH_NOARGS, "The plan as a person reads it."},
    {"explain", plan_explain, METH_NOARGS, "The plan in words."},
    {"counts", plan_counts, METH_NOARGS, "What one run does."},
    {"copies", plan_copies, METH_NOARGS, "Each copy that stayed."},
    {"externs", plan_externs, METH_NOARGS, "Each operation that the host runs."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef plan_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(plan_object_t, weak_references), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot plan_slots[] = {
    {Py_tp_dealloc, (void *)(uintptr_t)plan_dealloc},
    {Py_tp_methods, plan_methods},
    {Py_tp_members, plan_members},
    {Py_tp_doc, "One plan of a function, alive as long as it is held."},
    {0, NULL},
};

PyTypeObject *plan_type_create(void)
{
    PyType_Spec spec = {.name = "uncopy._core.Plan",
                        .basicsize = sizeof(plan_object_t),
                        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION |
                                 Py_TPFLAGS_IMMUTABLETYPE,
                        .slots = plan_slots};
    return (PyTypeObject *)PyType_FromSpec(&spec);
}
