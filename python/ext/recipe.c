/* Slot, Recipe and Output: what Python says of how the host runs an operation and how results
 * leave.
 *
 * A recipe is taken apart when it is made: its arguments become one array in calling order, each a
 * value, an operand's number, or a container that holds slots somewhere. Running it is then one
 * pass over that array. */
#include "object.h"

#include <string.h>

/* Slot */

static PyObject *slot_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"index", "number", NULL};
    Py_ssize_t index;
    int is_number = 0;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "n|$p:Slot", names, &index, &is_number)) {
        return NULL;
    }
    if (index < 0) {
        return PyErr_Format(PyExc_ValueError, "slot %zd; a slot is not negative", index);
    }
    slot_object_t *self = (slot_object_t *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->index = index;
        self->is_number = is_number != 0;
    }
    return (PyObject *)self;
}

static void slot_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyType_Slot slot_slots[] = {
    {Py_tp_new, (void *)(uintptr_t)slot_new},
    {Py_tp_dealloc, (void *)(uintptr_t)slot_dealloc},
    {Py_tp_doc, "Marks a tensor or a number in a recipe's arguments."},
    {0, NULL},
};

PyTypeObject *slot_type_create(void)
{
    PyType_Spec spec = {.name = "uncopy._core.Slot",
                        .basicsize = sizeof(slot_object_t),
                        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
                        .slots = slot_slots};
    return (PyTypeObject *)PyType_FromSpec(&spec);
}

/* Recipe */

/* 1: value holds a slot somewhere inside; -1 with an exception. */
static int holds_slot(PyObject *value)
{
    if (Py_TYPE(value) == core.slot_type) {
        return 1;
    }
    if (Py_EnterRecursiveCall(" in a recipe's arguments")) {
        return -1;
    }
    int found = 0;
    if (PyTuple_Check(value) || PyList_Check(value)) {
        Py_ssize_t count = PySequence_Fast_GET_SIZE(value);
        for (Py_ssize_t i = 0; found == 0 && i < count; i++) {
            found = holds_slot(PySequence_Fast_GET_ITEM(value, i));
        }
    } else if (PyDict_Check(value)) {
        PyObject *key, *element;
        Py_ssize_t position = 0;
        while (found == 0 && PyDict_Next(value, &position, &key, &element)) {
            found = holds_slot(element);
        }
    }
    Py_LeaveRecursiveCall();
    return found;
}

static int item_set(recipe_item_t *item, PyObject *value)
{
    if (Py_TYPE(value) == core.slot_type) {
        const slot_object_t *slot = (slot_object_t *)value;
        item->slot = slot->is_number ? RECIPE_NUMBER - slot->index : slot->index;
    } else {
        int found = holds_slot(value);
        if (found < 0) {
            return -1;
        }
        item->slot = found ? RECIPE_NESTED : RECIPE_VALUE;
    }
    item->value = Py_NewRef(value);
    return 0;
}

/* Names of the keywords in calling order, and the same with "out" behind. */
static int names_set(recipe_object_t *self, PyObject *keywords)
{
    Py_ssize_t count = PyDict_GET_SIZE(keywords), i = 0;
    self->names_out = PyTuple_New(count + 1);
    self->names = count > 0 ? PyTuple_New(count) : NULL;
    if (self->names_out == NULL || (count > 0 && self->names == NULL)) {
        return -1;
    }
    PyObject *key, *value;
    Py_ssize_t position = 0;
    while (PyDict_Next(keywords, &position, &key, &value)) {
        if (!PyUnicode_Check(key)) {
            PyErr_SetString(PyExc_TypeError, "a keyword of a recipe is no str");
            return -1;
        }
        PyTuple_SET_ITEM(self->names, i, Py_NewRef(key));
        PyTuple_SET_ITEM(self->names_out, i, Py_NewRef(key));
        if (item_set(&self->items[self->num_items], value) != 0) {
            return -1;
        }
        self->num_items++;
        i++;
    }
    PyTuple_SET_ITEM(self->names_out, count, Py_NewRef(core.name.out));
    return 0;
}

static int results_set(recipe_object_t *self, PyObject *results)
{
    int64_t *indices =
        integers_from_sequence(results, "results is no sequence", &self->num_results);
    if (indices == NULL) {
        return -1;
    }
    self->results = PyMem_Calloc((size_t)self->num_results + 1, sizeof(*self->results));
    if (self->results == NULL) {
        PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; self->results != NULL && i < self->num_results; i++) {
        self->results[i] = (Py_ssize_t)indices[i];
    }
    PyMem_Free(indices);
    return self->results != NULL ? 0 : -1;
}

static int recipe_fill(recipe_object_t *self, PyObject *arguments, PyObject *keywords,
                       PyObject *results)
{
    Py_ssize_t num_positional = PyTuple_GET_SIZE(arguments);
    size_t count = (size_t)(num_positional + PyDict_GET_SIZE(keywords));
    self->items = PyMem_Calloc(count + 1, sizeof(*self->items));
    if (self->items == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < num_positional; i++) {
        if (item_set(&self->items[i], PyTuple_GET_ITEM(arguments, i)) != 0) {
            return -1;
        }
        self->num_items++;
    }
    self->num_positional = num_positional;
    return names_set(self, keywords) != 0 ? -1 : results_set(self, results);
}

static PyObject *recipe_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"call", "out", "args", "kwargs", "results", NULL};
    PyObject *call, *out, *call_arguments, *call_keywords, *results;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OOO!O!O:Recipe", names, &call, &out,
                                     &PyTuple_Type, &call_arguments, &PyDict_Type, &call_keywords,
                                     &results)) {
        return NULL;
    }
    if (!PyCallable_Check(call) || (out != Py_None && !PyCallable_Check(out))) {
        PyErr_SetString(PyExc_TypeError, "call and out of a recipe must be callable");
        return NULL;
    }
    recipe_object_t *self = (recipe_object_t *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->call = Py_NewRef(call);
    self->out = out != Py_None ? Py_NewRef(out) : NULL;
    if (recipe_fill(self, call_arguments, call_keywords, results) != 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static int recipe_traverse(PyObject *object, visitproc visit, void *arg)
{
    recipe_object_t *self = (recipe_object_t *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->call);
    Py_VISIT(self->out);
    for (Py_ssize_t i = 0; i < self->num_items; i++) {
        Py_VISIT(self->items[i].value);
    }
    return 0;
}

/* A function that runs holds its recipes; clearing leaves values in place that a call may pass. */
static int recipe_clear(PyObject *object)
{
    recipe_object_t *self = (recipe_object_t *)object;
    Py_CLEAR(self->call);
    Py_CLEAR(self->out);
    Py_ssize_t count = self->num_items;
    self->num_items = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_CLEAR(self->items[i].value);
    }
    return 0;
}

static void recipe_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    recipe_object_t *self = (recipe_object_t *)object;
    PyObject_GC_UnTrack(object);
    recipe_clear(object);
    Py_CLEAR(self->names);
    Py_CLEAR(self->names_out);
    PyMem_Free(self->items);
    PyMem_Free(self->results);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyType_Slot recipe_slots[] = {
    {Py_tp_new, (void *)(uintptr_t)recipe_new},
    {Py_tp_dealloc, (void *)(uintptr_t)recipe_dealloc},
    {Py_tp_traverse, (void *)(uintptr_t)recipe_traverse},
    {Py_tp_clear, (void *)(uintptr_t)recipe_clear},
    {Py_tp_doc, "How the host runs one operation."},
    {0, NULL},
};

PyTypeObject *recipe_type_create(void)
{
    PyType_Spec spec = {.name = "uncopy._core.Recipe",
                        .basicsize = sizeof(recipe_object_t),
                        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
                        .slots = recipe_slots};
    return (PyTypeObject *)PyType_FromSpec(&spec);
}

/* Output */

static PyObject *output_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"index", "requires_grad", "is_view", "value", "number", NULL};
    Py_ssize_t index, number = -1;
    int requires_grad = 0, is_view = 0;
    PyObject *value = Py_None;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "n|$ppOn:Output", names, &index,
                                     &requires_grad, &is_view, &value, &number)) {
        return NULL;
    }
    output_object_t *self = (output_object_t *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->index = index;
        self->number = number;
        self->requires_grad = requires_grad != 0;
        self->is_view = is_view != 0;
        self->value = Py_NewRef(value);
    }
    return (PyObject *)self;
}

static int output_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(((output_object_t *)object)->value);
    return 0;
}

static int output_clear(PyObject *object)
{
    output_object_t *self = (output_object_t *)object;
    PyObject *value = self->value;
    self->value = Py_NewRef(Py_None);
    Py_XDECREF(value);
    return 0;
}

static void output_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    Py_CLEAR(((output_object_t *)object)->value);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyType_Slot output_slots[] = {
    {Py_tp_new, (void *)(uintptr_t)output_new},
    {Py_tp_dealloc, (void *)(uintptr_t)output_dealloc},
    {Py_tp_traverse, (void *)(uintptr_t)output_traverse},
    {Py_tp_clear, (void *)(uintptr_t)output_clear},
    {Py_tp_doc, "One element of a function's result."},
    {0, NULL},
};

PyTypeObject *output_type_create(void)
{
    PyType_Spec spec = {.name = "uncopy._core.Output",
                        .basicsize = sizeof(output_object_t),
                        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
                        .slots = output_slots};
    return (PyTypeObject *)PyType_FromSpec(&spec);
}
