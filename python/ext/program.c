/* Program and Number: the building calls of uncopy/program.h as methods.
 *
 * Beside the library's program the object notes which arguments operations write; a run takes those
 * by the pointer that makes a copy-on-write storage their own. */
#include "error.h"
#include "object.h"

#include <string.h>

PyObject *text_take(char *text)
{
    PyObject *string = PyUnicode_FromString(text);
    uncopy_text_release(core.context, text);
    return string;
}

int64_t *integers_from_sequence(PyObject *sequence, const char *what, Py_ssize_t *out_count)
{
    PyObject *fast = PySequence_Fast(sequence, what);
    if (fast == NULL) {
        return NULL;
    }
    Py_ssize_t count = PySequence_Fast_GET_SIZE(fast);
    int64_t *integers = PyMem_Calloc((size_t)count + 1, sizeof(*integers));
    if (integers == NULL) {
        PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; integers != NULL && i < count; i++) {
        integers[i] = PyLong_AsLongLong(PySequence_Fast_GET_ITEM(fast, i));
        if (integers[i] == -1 && PyErr_Occurred()) {
            PyMem_Free(integers);
            integers = NULL;
        }
    }
    Py_DECREF(fast);
    *out_count = count;
    return integers;
}

/* Number */

static PyObject *number_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"value", NULL};
    PyObject *value;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O:Number", names, &value)) {
        return NULL;
    }
    uncopy_operand_t operand = {.view = UNCOPY_NONE, .is_integer = PyLong_Check(value)};
    if (operand.is_integer) {
        operand.integer = PyLong_AsLongLong(value);
        operand.number = PyErr_Occurred() ? 0.0 : PyLong_AsDouble(value);
    } else {
        operand.number = PyFloat_AsDouble(value);
    }
    if (PyErr_Occurred()) {
        return NULL;
    }
    number_object_t *self = (number_object_t *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->operand = operand;
    }
    return (PyObject *)self;
}

static void plain_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyType_Slot number_slots[] = {
    {Py_tp_new, (void *)(uintptr_t)number_new},
    {Py_tp_dealloc, (void *)(uintptr_t)plain_dealloc},
    {Py_tp_doc, "A number read by an operation in place of a view."},
    {0, NULL},
};

PyTypeObject *number_type_create(void)
{
    PyType_Spec spec = {.name = "uncopy._core.Number",
                        .basicsize = sizeof(number_object_t),
                        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
                        .slots = number_slots};
    return (PyTypeObject *)PyType_FromSpec(&spec);
}

/* Program */

static program_object_t *program_allocate(PyTypeObject *type)
{
    return (program_object_t *)type->tp_alloc(type, 0);
}

static void program_dealloc(PyObject *object)
{
    program_object_t *self = (program_object_t *)object;
    uncopy_program_release(self->program);
    PyMem_Free(self->view_arguments);
    PyMem_Free(self->is_written);
    plain_dealloc(object);
}

static int require_initialized(void)
{
    if (core.context != NULL) {
        return 0;
    }
    uncopy_status_t status = uncopy_context_create(NULL, NULL, &core.context);
    if (status != UNCOPY_OK) {
        error_raise(status);
        return -1;
    }
    return 0;
}

static PyObject *program_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"name", NULL};
    const char *name;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "s:Program", names, &name) ||
        require_initialized() != 0) {
        return NULL;
    }
    program_object_t *self = program_allocate(type);
    if (self == NULL) {
        return NULL;
    }
    uncopy_status_t status = uncopy_program_create(core.context, name, &self->program);
    if (status != UNCOPY_OK) {
        Py_DECREF(self);
        return error_raise(status);
    }
    return (PyObject *)self;
}

static PyObject *program_parse(PyObject *unused, PyObject *text)
{
    (void)unused;
    Py_ssize_t length = 0;
    const char *bytes = PyUnicode_AsUTF8AndSize(text, &length);
    if (bytes == NULL || require_initialized() != 0) {
        return NULL;
    }
    program_object_t *self = program_allocate(core.program_type);
    if (self == NULL) {
        return NULL;
    }
    self->may_write_all = true;
    uncopy_status_t status =
        uncopy_program_parse(core.context, bytes, (size_t)length, &self->program);
    if (status != UNCOPY_OK) {
        Py_DECREF(self);
        return error_raise(status);
    }
    return (PyObject *)self;
}

static PyObject *program_text(PyObject *object, PyObject *unused)
{
    (void)unused;
    char *text = NULL;
    uncopy_status_t status = uncopy_program_print(((program_object_t *)object)->program, &text);
    return status == UNCOPY_OK ? text_take(text) : error_raise(status);
}

/* A layout whose arrays are held until layout_end. */
typedef struct held_layout {
    uncopy_layout_t layout;
    int64_t *sizes;
    int64_t *strides;
} held_layout_t;

static void layout_end(held_layout_t *held)
{
    PyMem_Free(held->sizes);
    PyMem_Free(held->strides);
}

static int layout_begin(int dtype, PyObject *sizes, PyObject *strides, held_layout_t *out)
{
    Py_ssize_t rank = 0, num_strides = 0;
    *out = (held_layout_t){0};
    out->sizes = integers_from_sequence(sizes, "sizes is no sequence", &rank);
    if (out->sizes != NULL) {
        out->strides = integers_from_sequence(strides, "strides is no sequence", &num_strides);
    }
    if (out->strides == NULL) {
        layout_end(out);
        return -1;
    }
    if (rank != num_strides) {
        PyErr_Format(PyExc_ValueError, "%zd sizes with %zd strides", rank, num_strides);
    }
    if (rank != num_strides) {
        layout_end(out);
        return -1;
    }
    out->layout = (uncopy_layout_t){.dtype = (uncopy_dtype_t)dtype,
                                    .rank = rank > INT32_MAX ? INT32_MAX : (int32_t)rank,
                                    .sizes = out->sizes,
                                    .strides = out->strides};
    return 0;
}

/* Makes room for one more view and one more argument. */
static int program_reserve(program_object_t *self)
{
    if (self->num_views == self->views_capacity) {
        size_t capacity = self->views_capacity * 2 + 16;
        int32_t *views =
            PyMem_Realloc(self->view_arguments, capacity * sizeof(*self->view_arguments));
        if (views == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        self->view_arguments = views;
        self->views_capacity = capacity;
    }
    if (self->num_arguments == self->arguments_capacity) {
        size_t capacity = self->arguments_capacity * 2 + 16;
        bool *written = PyMem_Realloc(self->is_written, capacity * sizeof(*self->is_written));
        if (written == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        self->is_written = written;
        self->arguments_capacity = capacity;
    }
    return 0;
}

/* Notes which argument a new view lies in. The library numbers views in order of adding; a program
 * whose views are numbered otherwise counts as one that writes everything. */
static void program_note_view(program_object_t *self, uncopy_view_t view, int32_t argument)
{
    if (view != self->num_views) {
        self->may_write_all = true;
        return;
    }
    self->view_arguments[self->num_views++] = argument;
}

static int32_t program_argument_of(const program_object_t *self, uint64_t view)
{
    return view < self->num_views ? self->view_arguments[view] : -1;
}

static PyObject *program_add_argument(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"name", "dtype", "sizes", "strides", NULL};
    program_object_t *self = (program_object_t *)object;
    const char *name;
    int dtype;
    PyObject *sizes, *strides;
    held_layout_t held;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "ziOO:add_argument", names, &name, &dtype,
                                     &sizes, &strides) ||
        program_reserve(self) != 0 || layout_begin(dtype, sizes, strides, &held) != 0) {
        return NULL;
    }
    uncopy_view_t view = UNCOPY_NONE;
    uncopy_status_t status = uncopy_program_add_argument(self->program, name, &held.layout, &view);
    layout_end(&held);
    if (status != UNCOPY_OK) {
        return error_raise(status);
    }
    program_note_view(self, view, (int32_t)self->num_arguments);
    self->is_written[self->num_arguments++] = false;
    return PyLong_FromUnsignedLong(view);
}

static PyObject *program_add_storage(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"name", "fresh", "dtype", "sizes", "strides", NULL};
    program_object_t *self = (program_object_t *)object;
    const char *name;
    int dtype, is_fresh;
    PyObject *sizes, *strides;
    held_layout_t held;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "zpiOO:add_storage", names, &name,
                                     &is_fresh, &dtype, &sizes, &strides) ||
        program_reserve(self) != 0 || layout_begin(dtype, sizes, strides, &held) != 0) {
        return NULL;
    }
    uncopy_view_t view = UNCOPY_NONE;
    uncopy_storage_kind_t kind = is_fresh ? UNCOPY_STORAGE_FRESH : UNCOPY_STORAGE_SCRATCH;
    uncopy_status_t status =
        uncopy_program_add_storage(self->program, name, kind, &held.layout, &view);
    layout_end(&held);
    if (status != UNCOPY_OK) {
        return error_raise(status);
    }
    program_note_view(self, view, -1);
    return PyLong_FromUnsignedLong(view);
}

static PyObject *program_add_view(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"name",    "of",           "dtype",        "sizes",
                            "strides", "offset_bytes", "from_storage", NULL};
    program_object_t *self = (program_object_t *)object;
    const char *name;
    unsigned int of;
    int dtype, is_from_storage;
    long long offset_bytes;
    PyObject *sizes, *strides;
    held_layout_t held;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "zIiOOLp:add_view", names, &name, &of,
                                     &dtype, &sizes, &strides, &offset_bytes, &is_from_storage)) {
        return NULL;
    }
    if (program_reserve(self) != 0 || layout_begin(dtype, sizes, strides, &held) != 0) {
        return NULL;
    }
    uncopy_view_t view = UNCOPY_NONE;
    uncopy_status_t status = uncopy_program_add_view(self->program, name, of, &held.layout,
                                                     offset_bytes, is_from_storage, &view);
    layout_end(&held);
    if (status != UNCOPY_OK) {
        return error_raise(status);
    }
    program_note_view(self, view, program_argument_of(self, of));
    return PyLong_FromUnsignedLong(view);
}

static PyObject *program_add_symbol(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"name", "argument", "kind", "dim", NULL};
    const char *name;
    unsigned int argument;
    int kind, dim;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "sIii:add_symbol", names, &name,
                                     &argument, &kind, &dim)) {
        return NULL;
    }
    uncopy_dim_t symbol = 0;
    uncopy_status_t status =
        uncopy_program_add_symbol(((program_object_t *)object)->program, name, argument,
                                  (uncopy_symbol_kind_t)kind, dim, &symbol);
    return status == UNCOPY_OK ? PyLong_FromLongLong(symbol) : error_raise(status);
}

static PyObject *program_add_expression(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"kind", "a", "b", NULL};
    int kind;
    long long a, b;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "iLL:add_expression", names, &kind, &a,
                                     &b)) {
        return NULL;
    }
    uncopy_dim_t dim = 0;
    uncopy_status_t status = uncopy_program_add_expression(
        ((program_object_t *)object)->program, (uncopy_expression_kind_t)kind, a, b, &dim);
    return status == UNCOPY_OK ? PyLong_FromLongLong(dim) : error_raise(status);
}

static PyObject *program_add_number(PyObject *object, PyObject *dim)
{
    long long value = PyLong_AsLongLong(dim);
    if (value == -1 && PyErr_Occurred()) {
        return NULL;
    }
    size_t number = 0;
    uncopy_status_t status =
        uncopy_program_add_number(((program_object_t *)object)->program, value, &number);
    return status == UNCOPY_OK ? PyLong_FromSize_t(number) : error_raise(status);
}

static PyObject *program_add_group(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"token", "name", "size", "rank", NULL};
    const char *token, *name;
    int size, rank;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "ssii:add_group", names, &token, &name,
                                     &size, &rank)) {
        return NULL;
    }
    uncopy_group_t group = UNCOPY_NONE;
    uncopy_status_t status = uncopy_program_add_group(((program_object_t *)object)->program, token,
                                                      name, size, rank, &group);
    return status == UNCOPY_OK ? PyLong_FromUnsignedLong(group) : error_raise(status);
}

/* Arrays of one operation, held while it is added. */
typedef struct held_operation {
    uncopy_operand_t *reads;
    uncopy_view_t *writes;
    uncopy_view_t *returns;
    uncopy_attribute_t *attributes;
    Py_ssize_t num_reads, num_writes, num_returns, num_attributes;
} held_operation_t;

static void operation_end(held_operation_t *held)
{
    PyMem_Free(held->reads);
    PyMem_Free(held->writes);
    PyMem_Free(held->returns);
    PyMem_Free(held->attributes);
}

static int read_from_object(PyObject *object, uncopy_operand_t *out)
{
    if (Py_TYPE(object) == core.number_type) {
        *out = ((number_object_t *)object)->operand;
        return 0;
    }
    unsigned long view = PyLong_AsUnsignedLong(object);
    if (PyErr_Occurred()) {
        return -1;
    }
    if (view >= UNCOPY_NONE) {
        PyErr_Format(PyExc_ValueError, "there is no view %lu", view);
        return -1;
    }
    *out = (uncopy_operand_t){.view = (uncopy_view_t)view};
    return 0;
}

static int reads_begin(PyObject *sequence, held_operation_t *held)
{
    PyObject *fast = PySequence_Fast(sequence, "reads is no sequence");
    if (fast == NULL) {
        return -1;
    }
    held->num_reads = PySequence_Fast_GET_SIZE(fast);
    held->reads = PyMem_Calloc((size_t)held->num_reads + 1, sizeof(*held->reads));
    int failed = held->reads == NULL ? -1 : 0;
    if (failed) {
        PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; !failed && i < held->num_reads; i++) {
        failed = read_from_object(PySequence_Fast_GET_ITEM(fast, i), &held->reads[i]);
    }
    Py_DECREF(fast);
    return failed;
}

static uncopy_view_t *views_from_sequence(PyObject *sequence, const char *what,
                                          Py_ssize_t *out_count)
{
    int64_t *integers = integers_from_sequence(sequence, what, out_count);
    if (integers == NULL) {
        return NULL;
    }
    uncopy_view_t *views = PyMem_Calloc((size_t)*out_count + 1, sizeof(*views));
    if (views == NULL) {
        PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; views != NULL && i < *out_count; i++) {
        if (integers[i] < 0 || integers[i] >= UNCOPY_NONE) {
            PyErr_Format(PyExc_ValueError, "there is no view %lld", (long long)integers[i]);
            PyMem_Free(views);
            views = NULL;
            break;
        }
        views[i] = (uncopy_view_t)integers[i];
    }
    PyMem_Free(integers);
    return views;
}

static int attributes_begin(PyObject *dict, held_operation_t *held)
{
    if (dict == Py_None) {
        return 0;
    }
    if (!PyDict_Check(dict)) {
        PyErr_SetString(PyExc_TypeError, "attributes is no dict");
        return -1;
    }
    held->attributes = PyMem_Calloc((size_t)PyDict_GET_SIZE(dict) + 1, sizeof(*held->attributes));
    if (held->attributes == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    PyObject *key, *value;
    Py_ssize_t position = 0;
    while (PyDict_Next(dict, &position, &key, &value)) {
        uncopy_attribute_t *attribute = &held->attributes[held->num_attributes++];
        attribute->name = PyUnicode_AsUTF8(key);
        attribute->value = attribute->name != NULL ? PyFloat_AsDouble(value) : 0.0;
        if (PyErr_Occurred()) {
            return -1;
        }
    }
    return 0;
}

static void program_note_writes(program_object_t *self, const uncopy_operation_t *operation)
{
    bool is_extern = strcmp(operation->name, "extern") == 0;
    self->may_write_all |= is_extern && !(operation->effects & UNCOPY_EFFECT_AUDITED);
    for (size_t i = 0; i < operation->num_writes; i++) {
        int32_t argument = program_argument_of(self, operation->writes[i]);
        if (argument >= 0) {
            self->is_written[argument] = true;
        }
    }
}

static PyObject *program_add_operation(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"name",   "reads",   "writes",  "returns", "attributes", "group",
                            "target", "effects", "host_id", "file",    "line",       NULL};
    program_object_t *self = (program_object_t *)object;
    uncopy_operation_t operation = {.group = UNCOPY_NONE, .host_id = -1};
    PyObject *reads, *writes, *returns = NULL, *attributes = Py_None, *group = Py_None;
    long long host_id = -1;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "sOO|O$OOzILzi:add_operation", names,
                                     &operation.name, &reads, &writes, &returns, &attributes,
                                     &group, &operation.target, &operation.effects, &host_id,
                                     &operation.file, &operation.line)) {
        return NULL;
    }
    operation.host_id = host_id;
    if (group != Py_None) {
        operation.group = (uncopy_group_t)PyLong_AsUnsignedLong(group);
        if (PyErr_Occurred()) {
            return NULL;
        }
    }
    held_operation_t held = {0};
    bool is_ready = reads_begin(reads, &held) == 0 && attributes_begin(attributes, &held) == 0;
    if (is_ready) {
        held.writes = views_from_sequence(writes, "writes is no sequence", &held.num_writes);
        is_ready = held.writes != NULL;
    }
    if (is_ready && returns != NULL) {
        held.returns = views_from_sequence(returns, "returns is no sequence", &held.num_returns);
        is_ready = held.returns != NULL;
    }
    if (!is_ready) {
        operation_end(&held);
        return NULL;
    }
    operation.reads = held.reads;
    operation.num_reads = (size_t)held.num_reads;
    operation.writes = held.writes;
    operation.num_writes = (size_t)held.num_writes;
    operation.returns = held.returns;
    operation.num_returns = (size_t)held.num_returns;
    operation.attributes = held.attributes;
    operation.num_attributes = (size_t)held.num_attributes;
    uncopy_status_t status = uncopy_program_add_operation(self->program, &operation);
    if (status == UNCOPY_OK) {
        program_note_writes(self, &operation);
    }
    operation_end(&held);
    if (status != UNCOPY_OK) {
        return error_raise(status);
    }
    Py_RETURN_NONE;
}

static PyObject *program_add_output(PyObject *object, PyObject *number)
{
    unsigned long view = PyLong_AsUnsignedLong(number);
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (view >= UNCOPY_NONE) {
        return PyErr_Format(PyExc_ValueError, "there is no view %lu", view);
    }
    uncopy_status_t status =
        uncopy_program_add_output(((program_object_t *)object)->program, (uncopy_view_t)view);
    if (status != UNCOPY_OK) {
        return error_raise(status);
    }
    Py_RETURN_NONE;
}

static PyObject *program_verify(PyObject *object, PyObject *unused)
{
    (void)unused;
    uncopy_status_t status = uncopy_program_verify(((program_object_t *)object)->program);
    if (status != UNCOPY_OK) {
        return error_raise(status);
    }
    Py_RETURN_NONE;
}

#define WITH_KEYWORDS(function) (PyCFunction)(void (*)(void))(function)

static PyMethodDef program_methods[] = {
    {"parse", program_parse, METH_O | METH_STATIC, "A program from its text."},
    {"text", program_text, METH_NOARGS, "The program in the text language."},
    {"add_argument", WITH_KEYWORDS(program_add_argument), METH_VARARGS | METH_KEYWORDS,
     "Adds the next argument; returns its view."},
    {"add_storage", WITH_KEYWORDS(program_add_storage), METH_VARARGS | METH_KEYWORDS,
     "Adds a storage just large enough for a layout; returns its view."},
    {"add_view", WITH_KEYWORDS(program_add_view), METH_VARARGS | METH_KEYWORDS,
     "Adds a view of the storage that view `of` belongs to."},
    {"add_symbol", WITH_KEYWORDS(program_add_symbol), METH_VARARGS | METH_KEYWORDS,
     "Adds a symbol for a size, a stride or the value of an argument; returns its dim."},
    {"add_expression", WITH_KEYWORDS(program_add_expression), METH_VARARGS | METH_KEYWORDS,
     "Adds an expression of two dims; returns its dim."},
    {"add_number", program_add_number, METH_O, "Appends a number that plans know."},
    {"add_group", WITH_KEYWORDS(program_add_group), METH_VARARGS | METH_KEYWORDS,
     "Adds a group of ranks."},
    {"add_operation", WITH_KEYWORDS(program_add_operation), METH_VARARGS | METH_KEYWORDS,
     "Appends an operation."},
    {"add_output", program_add_output, METH_O, "Appends an output."},
    {"verify", program_verify, METH_NOARGS, "Checks the whole program."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot program_slots[] = {
    {Py_tp_new, (void *)(uintptr_t)program_new},
    {Py_tp_dealloc, (void *)(uintptr_t)program_dealloc},
    {Py_tp_methods, program_methods},
    {Py_tp_doc, "A program under construction. Views and groups are ints."},
    {0, NULL},
};

PyTypeObject *program_type_create(void)
{
    PyType_Spec spec = {.name = "uncopy._core.Program",
                        .basicsize = sizeof(program_object_t),
                        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
                        .slots = program_slots};
    return (PyTypeObject *)PyType_FromSpec(&spec);
}
