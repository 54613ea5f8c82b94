/* Bound: a function called directly, with the checks that Dynamo's guards would make.
 *
 * Checked here: the number of positional arguments, constants, and that no argument needs a
 * gradient while grad mode is on. Types are checked as arguments are read; dtypes, sizes and
 * strides by the library, before it does anything. Whatever fails goes to `miss`. */
#include <string.h>

#include "function.h"

enum { INLINE_SOURCES = 64 };

/* One argument of the function: a position of the call, or a tensor that is held. */
typedef struct bound_source {
    Py_ssize_t position;
    PyObject *tensor;
} bound_source_t;

typedef struct bound_constant {
    Py_ssize_t position;
    PyObject *value;
} bound_constant_t;

typedef struct bound_object {
    PyObject_HEAD vectorcallfunc vectorcall;
    PyObject *weak_references;
    PyObject *function;
    PyObject *tree;
    PyObject *miss;
    bound_source_t *sources;
    Py_ssize_t num_sources;
    bound_constant_t *constants;
    Py_ssize_t num_constants;
    Py_ssize_t positions;
    long long misses;
    long long calls;
} bound_object_t;

/* Results */

/* The index that a tree's leaf is; -1 with an exception. */
static Py_ssize_t leaf_index(PyObject *tree, Py_ssize_t num_outputs)
{
    Py_ssize_t index = PyLong_AsSsize_t(tree);
    if (!PyErr_Occurred() && (index < 0 || index >= num_outputs)) {
        PyErr_Format(PyExc_ValueError, "a result is output %zd of %zd", index, num_outputs);
    }
    return PyErr_Occurred() ? -1 : index;
}

/* The word and the children of an inner node, borrowed; -1 with an exception. */
static int node_parts(PyObject *tree, PyObject **out_word, PyObject **out_children)
{
    if (!PyTuple_Check(tree) || PyTuple_GET_SIZE(tree) != 2 ||
        !PyUnicode_Check(PyTuple_GET_ITEM(tree, 0))) {
        PyErr_Format(PyExc_TypeError, "%R is no tree of results", tree);
        return -1;
    }
    *out_word = PyTuple_GET_ITEM(tree, 0);
    *out_children = PyTuple_GET_ITEM(tree, 1);
    bool is_dict = PyUnicode_CompareWithASCIIString(*out_word, "dict") == 0;
    bool is_list = PyUnicode_CompareWithASCIIString(*out_word, "list") == 0;
    bool is_tuple = PyUnicode_CompareWithASCIIString(*out_word, "tuple") == 0;
    bool fits = is_dict ? PyDict_Check(*out_children)
                        : (is_list || is_tuple) &&
                              (PyList_Check(*out_children) || PyTuple_Check(*out_children));
    if (!fits) {
        PyErr_Format(PyExc_TypeError, "%R is no tree of results", tree);
        return -1;
    }
    return 0;
}

static PyObject *tree_build(PyObject *tree, PyObject *results);

static PyObject *tree_build_sequence(PyObject *children, PyObject *results, bool is_list)
{
    Py_ssize_t count = PySequence_Fast_GET_SIZE(children);
    PyObject *built = is_list ? PyList_New(count) : PyTuple_New(count);
    for (Py_ssize_t i = 0; built != NULL && i < count; i++) {
        PyObject *child = tree_build(PySequence_Fast_GET_ITEM(children, i), results);
        if (child == NULL) {
            Py_CLEAR(built);
        } else if (is_list) {
            PyList_SET_ITEM(built, i, child);
        } else {
            PyTuple_SET_ITEM(built, i, child);
        }
    }
    return built;
}

static PyObject *tree_build_dict(PyObject *children, PyObject *results)
{
    PyObject *built = PyDict_New();
    PyObject *key, *child;
    Py_ssize_t position = 0;
    while (built != NULL && PyDict_Next(children, &position, &key, &child)) {
        PyObject *value = tree_build(child, results);
        if (value == NULL || PyDict_SetItem(built, key, value) != 0) {
            Py_CLEAR(built);
        }
        Py_XDECREF(value);
    }
    return built;
}

/* The caller's structure of results; new reference. */
static PyObject *tree_build(PyObject *tree, PyObject *results)
{
    if (PyLong_Check(tree)) {
        Py_ssize_t index = leaf_index(tree, PyTuple_GET_SIZE(results));
        return index >= 0 ? Py_NewRef(PyTuple_GET_ITEM(results, index)) : NULL;
    }
    PyObject *word, *children;
    if (node_parts(tree, &word, &children) != 0 || Py_EnterRecursiveCall(" in a tree of results")) {
        return NULL;
    }
    PyObject *built =
        PyDict_Check(children)
            ? tree_build_dict(children, results)
            : tree_build_sequence(children, results, PyUnicode_READ_CHAR(word, 0) == 'l');
    Py_LeaveRecursiveCall();
    return built;
}

/* Whether a tree is sound: building it on a tuple of None finds out. */
static int tree_check(PyObject *tree, Py_ssize_t num_outputs)
{
    PyObject *results = PyTuple_New(num_outputs);
    if (results == NULL) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < num_outputs; i++) {
        PyTuple_SET_ITEM(results, i, Py_NewRef(Py_None));
    }
    PyObject *built = tree_build(tree, results);
    Py_DECREF(results);
    Py_XDECREF(built);
    return built != NULL ? 0 : -1;
}

/* Calls */

/* 1 when constants are what they were, 0 when not; an exception in a comparison counts as not. */
static int constants_match(const bound_object_t *self, PyObject *const *arguments)
{
    for (Py_ssize_t i = 0; i < self->num_constants; i++) {
        PyObject *value = self->constants[i].value;
        PyObject *given = arguments[self->constants[i].position];
        if (given == value) {
            continue;
        }
        int is_equal =
            Py_TYPE(given) == Py_TYPE(value) ? PyObject_RichCompareBool(given, value, Py_EQ) : 0;
        if (is_equal < 0) {
            PyErr_Clear();
        }
        if (is_equal <= 0) {
            return 0;
        }
    }
    return 1;
}

/* 1 when a tensor needs a gradient in the present grad mode, -1 with an exception. */
static int needs_gradient(PyObject *const *tensors, Py_ssize_t count)
{
    int is_on = grad_mode_is_on();
    for (Py_ssize_t i = 0; is_on == 1 && i < count; i++) {
        int needs = core_is_tensor(tensors[i]) ? tensor_requires_grad(tensors[i]) : 0;
        if (needs != 0) {
            return needs;
        }
    }
    return is_on < 0 ? -1 : 0;
}

static PyObject *call_miss(bound_object_t *self, PyObject *const *arguments, size_t flags,
                           PyObject *keywords)
{
    self->misses++;
    PyObject *miss = Py_NewRef(self->miss);
    PyObject *result = PyObject_Vectorcall(miss, arguments, flags, keywords);
    Py_DECREF(miss);
    return result;
}

/* Runs the function with its tensors in place; *out_is_refused means a miss. */
static PyObject *run_tensors(bound_object_t *self, PyObject *const *tensors, bool *out_is_refused)
{
    int needs = needs_gradient(tensors, self->num_sources);
    if (needs != 0) {
        *out_is_refused = needs > 0;
        return NULL;
    }
    PyObject *results = function_run((function_object_t *)self->function, tensors,
                                     (size_t)self->num_sources, out_is_refused);
    if (results == NULL) {
        return NULL;
    }
    PyObject *built = tree_build(self->tree, results);
    Py_DECREF(results);
    return built;
}

static PyObject *run_bound(bound_object_t *self, PyObject *const *arguments, bool *out_is_refused)
{
    PyObject *inline_tensors[INLINE_SOURCES];
    PyObject **tensors = inline_tensors;
    if (self->num_sources > INLINE_SOURCES) {
        tensors = PyMem_Malloc((size_t)self->num_sources * sizeof(*tensors));
        if (tensors == NULL) {
            return PyErr_NoMemory();
        }
    }
    for (Py_ssize_t i = 0; i < self->num_sources; i++) {
        const bound_source_t *source = &self->sources[i];
        tensors[i] = source->tensor != NULL ? source->tensor : arguments[source->position];
    }
    PyObject *result = run_tensors(self, tensors, out_is_refused);
    if (tensors != inline_tensors) {
        PyMem_Free(tensors);
    }
    return result;
}

static PyObject *bound_vectorcall(PyObject *object, PyObject *const *arguments, size_t flags,
                                  PyObject *keywords)
{
    bound_object_t *self = (bound_object_t *)object;
    self->calls++;
    bool is_refused = (keywords != NULL && PyTuple_GET_SIZE(keywords) > 0) ||
                      PyVectorcall_NARGS(flags) != self->positions ||
                      !constants_match(self, arguments);
    PyObject *result = is_refused ? NULL : run_bound(self, arguments, &is_refused);
    return is_refused ? call_miss(self, arguments, flags, keywords) : result;
}

/* Creation */

static int sources_set(bound_object_t *self, PyObject *sequence)
{
    PyObject *fast = PySequence_Fast(sequence, "sources is no sequence");
    if (fast == NULL) {
        return -1;
    }
    Py_ssize_t count = PySequence_Fast_GET_SIZE(fast);
    self->sources = PyMem_Calloc((size_t)count + 1, sizeof(*self->sources));
    if (self->sources == NULL) {
        PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; self->sources != NULL && i < count && !PyErr_Occurred(); i++) {
        PyObject *source = PySequence_Fast_GET_ITEM(fast, i);
        if (core_is_tensor(source)) {
            self->sources[i].tensor = Py_NewRef(source);
        } else {
            Py_ssize_t position = PyLong_AsSsize_t(source);
            self->sources[i].position = position;
            if (!PyErr_Occurred() && (position < 0 || position >= self->positions)) {
                PyErr_Format(PyExc_ValueError, "source %zd is position %zd of %zd", i, position,
                             self->positions);
            }
        }
        self->num_sources++;
    }
    Py_DECREF(fast);
    return PyErr_Occurred() ? -1 : 0;
}

static int constants_set(bound_object_t *self, PyObject *dict)
{
    self->constants = PyMem_Calloc((size_t)PyDict_GET_SIZE(dict) + 1, sizeof(*self->constants));
    if (self->constants == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    PyObject *key, *value;
    Py_ssize_t position = 0;
    while (PyDict_Next(dict, &position, &key, &value)) {
        Py_ssize_t place = PyLong_AsSsize_t(key);
        if (!PyErr_Occurred() && (place < 0 || place >= self->positions)) {
            PyErr_Format(PyExc_ValueError, "a constant is at position %zd of %zd", place,
                         self->positions);
        }
        if (PyErr_Occurred()) {
            return -1;
        }
        self->constants[self->num_constants++] = (bound_constant_t){place, Py_NewRef(value)};
    }
    return 0;
}

static int check_parts(const bound_object_t *self)
{
    const function_object_t *function = (const function_object_t *)self->function;
    if ((size_t)self->num_sources != function->num_arguments) {
        PyErr_Format(PyExc_ValueError, "%zd sources for a function of %zu arguments",
                     self->num_sources, function->num_arguments);
        return -1;
    }
    return tree_check(self->tree, PyTuple_GET_SIZE(function->outputs));
}

static PyObject *bound_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"function", "sources", "constants", "positions", "tree", "miss", NULL};
    PyObject *function, *sources, *constants, *tree, *miss;
    Py_ssize_t positions;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O!OO!nOO:Bound", names,
                                     core.function_type, &function, &sources, &PyDict_Type,
                                     &constants, &positions, &tree, &miss)) {
        return NULL;
    }
    if (!PyCallable_Check(miss)) {
        PyErr_SetString(PyExc_TypeError, "miss is not callable");
        return NULL;
    }
    bound_object_t *self = (bound_object_t *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->vectorcall = bound_vectorcall;
    self->function = Py_NewRef(function);
    self->tree = Py_NewRef(tree);
    self->miss = Py_NewRef(miss);
    self->positions = positions;
    if (sources_set(self, sources) != 0 || constants_set(self, constants) != 0 ||
        check_parts(self) != 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static int bound_traverse(PyObject *object, visitproc visit, void *arg)
{
    bound_object_t *self = (bound_object_t *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->function);
    Py_VISIT(self->tree);
    Py_VISIT(self->miss);
    for (Py_ssize_t i = 0; i < self->num_sources; i++) {
        Py_VISIT(self->sources[i].tensor);
    }
    for (Py_ssize_t i = 0; i < self->num_constants; i++) {
        Py_VISIT(self->constants[i].value);
    }
    return 0;
}

/* Nothing calls an object that the collector has found unreachable: all may go. */
static int bound_clear(PyObject *object)
{
    bound_object_t *self = (bound_object_t *)object;
    Py_ssize_t num_sources = self->num_sources, num_constants = self->num_constants;
    self->num_sources = self->num_constants = 0;
    self->positions = -1;
    for (Py_ssize_t i = 0; i < num_sources; i++) {
        Py_CLEAR(self->sources[i].tensor);
    }
    for (Py_ssize_t i = 0; i < num_constants; i++) {
        Py_CLEAR(self->constants[i].value);
    }
    Py_CLEAR(self->tree);
    Py_CLEAR(self->function);
    PyObject *miss = self->miss;
    self->miss = Py_NewRef(Py_None);
    Py_XDECREF(miss);
    return 0;
}

static void bound_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    bound_object_t *self = (bound_object_t *)object;
    PyObject_GC_UnTrack(object);
    if (self->weak_references != NULL) {
        PyObject_ClearWeakRefs(object);
    }
    bound_clear(object);
    Py_CLEAR(self->miss);
    PyMem_Free(self->sources);
    PyMem_Free(self->constants);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyMemberDef bound_members[] = {
    {"misses", T_LONGLONG, offsetof(bound_object_t, misses), READONLY, "Calls that missed."},
    {"calls", T_LONGLONG, offsetof(bound_object_t, calls), READONLY, "All calls."},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(bound_object_t, vectorcall), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(bound_object_t, weak_references), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot bound_slots[] = {
    {Py_tp_new, (void *)(uintptr_t)bound_new},
    {Py_tp_dealloc, (void *)(uintptr_t)bound_dealloc},
    {Py_tp_traverse, (void *)(uintptr_t)bound_traverse},
    {Py_tp_clear, (void *)(uintptr_t)bound_clear},
    {Py_tp_call, (void *)(uintptr_t)PyVectorcall_Call},
    {Py_tp_members, bound_members},
    {Py_tp_doc, "A function bound for direct calls."},
    {0, NULL},
};

PyTypeObject *bound_type_create(void)
{
    PyType_Spec spec = {.name = "uncopy._core.Bound",
                        .basicsize = sizeof(bound_object_t),
                        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
                                 Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE,
                        .slots = bound_slots};
    return (PyTypeObject *)PyType_FromSpec(&spec);
}
