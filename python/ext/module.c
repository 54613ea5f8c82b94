/* The module uncopy._core: its functions, its constants, and the state that the other files use. */
#include <stdio.h>
#include <string.h>

#include "comm.h"
#include "error.h"
#include "object.h"

core_state_t core;

/* torch's names of our dtypes. */
static const char *const dtype_names[CORE_NUM_DTYPES] = {
    [UNCOPY_DTYPE_BOOL] = "bool",
    [UNCOPY_DTYPE_U8] = "uint8",
    [UNCOPY_DTYPE_I8] = "int8",
    [UNCOPY_DTYPE_I16] = "int16",
    [UNCOPY_DTYPE_I32] = "int32",
    [UNCOPY_DTYPE_I64] = "int64",
    [UNCOPY_DTYPE_F16] = "float16",
    [UNCOPY_DTYPE_BF16] = "bfloat16",
    [UNCOPY_DTYPE_F32] = "float32",
    [UNCOPY_DTYPE_F64] = "float64",
    [UNCOPY_DTYPE_C32] = "complex32",
    [UNCOPY_DTYPE_C64] = "complex64",
    [UNCOPY_DTYPE_C128] = "complex128",
    [UNCOPY_DTYPE_U16] = "uint16",
    [UNCOPY_DTYPE_U32] = "uint32",
    [UNCOPY_DTYPE_U64] = "uint64",
    [UNCOPY_DTYPE_F8E4M3FN] = "float8_e4m3fn",
    [UNCOPY_DTYPE_F8E5M2] = "float8_e5m2",
    [UNCOPY_DTYPE_F8E4M3FNUZ] = "float8_e4m3fnuz",
    [UNCOPY_DTYPE_F8E5M2FNUZ] = "float8_e5m2fnuz",
};

int core_dtype_find(PyObject *dtype)
{
    for (int i = 0; i < CORE_NUM_DTYPES; i++) {
        if (core.dtypes[i] == dtype) {
            return i;
        }
    }
    return -1;
}

PyObject *core_tuple_from_int64(const int64_t *values, Py_ssize_t count)
{
    PyObject *tuple = PyTuple_New(count);
    for (Py_ssize_t i = 0; tuple != NULL && i < count; i++) {
        PyObject *value = PyLong_FromLongLong(values[i]);
        if (value == NULL) {
            Py_CLEAR(tuple);
        } else {
            PyTuple_SET_ITEM(tuple, i, value);
        }
    }
    return tuple;
}

/* Initialisation */

/* The object at a dotted path below a module; new reference. */
static PyObject *find_path(PyObject *module, const char *path)
{
    PyObject *found = Py_NewRef(module);
    while (found != NULL && *path != '\0') {
        size_t length = strcspn(path, ".");
        PyObject *name = PyUnicode_FromStringAndSize(path, (Py_ssize_t)length);
        PyObject *next = name != NULL ? PyObject_GetAttr(found, name) : NULL;
        Py_XDECREF(name);
        Py_SETREF(found, next);
        path += path[length] == '.' ? length + 1 : length;
    }
    return found;
}

/* A helper that was given, else PyTorch's own function. */
static PyObject *find_helper(PyObject *helpers, PyObject *torch, const char *name, const char *path)
{
    PyObject *given = PyDict_GetItemString(helpers, name);
    return given != NULL ? Py_NewRef(given) : find_path(torch, path);
}

static int find_helpers(PyObject *helpers, PyObject *torch)
{
#define HELPER(name, path)                                       \
    core.helper.name = find_helper(helpers, torch, #name, path); \
    if (core.helper.name == NULL) {                              \
        return -1;                                               \
    }
    CORE_HELPERS(HELPER)
#undef HELPER
    return 0;
}

static int find_dtypes(PyObject *torch)
{
    for (int i = 0; i < CORE_NUM_DTYPES; i++) {
        core.dtypes[i] = PyObject_GetAttrString(torch, dtype_names[i]);
        if (core.dtypes[i] == NULL) {
            PyErr_Clear();
        }
    }
    core.strided = PyObject_GetAttrString(torch, "strided");
    if (core.strided == NULL || core.dtypes[UNCOPY_DTYPE_F32] == NULL ||
        core.dtypes[UNCOPY_DTYPE_U8] == NULL || core.dtypes[UNCOPY_DTYPE_F64] == NULL ||
        core.dtypes[UNCOPY_DTYPE_C64] == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "torch has no strided layout or lacks basic dtypes");
        return -1;
    }
    return 0;
}

static int create_context(void)
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

static PyObject *initialize(PyObject *module, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {
        "tensor_type", "parameter_type", "torch_library", "strict_error", "helpers", "forced_off",
        NULL};
    PyObject *tensor_type, *parameter_type, *strict_error, *helpers, *forced_off;
    const char *library;
    (void)module;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "$O!O!sOO!O:initialize", names,
                                     &PyType_Type, &tensor_type, &PyType_Type, &parameter_type,
                                     &library, &strict_error, &PyDict_Type, &helpers,
                                     &forced_off)) {
        return NULL;
    }
    if (core.is_initialized) {
        PyErr_SetString(PyExc_RuntimeError, "initialize() was called before");
        return NULL;
    }
    if (!PyAnySet_Check(forced_off) || !PyExceptionClass_Check(strict_error)) {
        PyErr_SetString(PyExc_TypeError,
                        "forced_off must be a set, strict_error an exception type");
        return NULL;
    }
    core.tensor_type = (PyTypeObject *)Py_NewRef(tensor_type);
    core.parameter_type = (PyTypeObject *)Py_NewRef(parameter_type);
    core.strict_error = Py_NewRef(strict_error);
    PyObject *torch = PyImport_ImportModule("torch");
    PyObject *used = NULL;
    if (torch != NULL && find_dtypes(torch) == 0 && find_helpers(helpers, torch) == 0 &&
        create_context() == 0) {
        used = torch_abi_initialize(library, forced_off);
    }
    Py_XDECREF(torch);
    core.is_initialized = used != NULL;
    return used;
}

/* Functions */

static PyObject *dtype_code(PyObject *module, PyObject *dtype)
{
    (void)module;
    int code = core_dtype_find(dtype);
    if (code < 0) {
        PyErr_SetObject(PyExc_KeyError, dtype);
        return NULL;
    }
    return PyLong_FromLong(code);
}

static PyObject *operation_find(PyObject *module, PyObject *name)
{
    (void)module;
    const char *text = PyUnicode_AsUTF8(name);
    return text != NULL ? Py_BuildValue("z", uncopy_operation_find(text)) : NULL;
}

static PyObject *operation_accepts(PyObject *module, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"name", "reads", "result", NULL};
    const char *name;
    PyObject *reads;
    int result;
    (void)module;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "sOi:operation_accepts", names, &name,
                                     &reads, &result)) {
        return NULL;
    }
    Py_ssize_t count = 0;
    int64_t *codes = integers_from_sequence(reads, "reads is no sequence", &count);
    uncopy_dtype_t *dtypes =
        codes != NULL ? PyMem_Calloc((size_t)count + 1, sizeof(*dtypes)) : NULL;
    if (dtypes == NULL) {
        PyMem_Free(codes);
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        dtypes[i] = (uncopy_dtype_t)codes[i];
    }
    int accepts = uncopy_operation_accepts(name, dtypes, (size_t)count, (uncopy_dtype_t)result);
    PyMem_Free(dtypes);
    PyMem_Free(codes);
    return PyBool_FromLong(accepts);
}

static PyObject *operation_num_reads(PyObject *module, PyObject *name)
{
    (void)module;
    const char *text = PyUnicode_AsUTF8(name);
    return text != NULL ? PyLong_FromLong(uncopy_operation_num_reads(text)) : NULL;
}

static PyObject *operation_attributes(PyObject *module, PyObject *name)
{
    (void)module;
    const char *text = PyUnicode_AsUTF8(name);
    if (text == NULL) {
        return NULL;
    }
    const char *attributes = uncopy_operation_attributes(text);
    if (attributes == NULL) {
        return PyErr_Format(PyExc_ValueError, "there is no operation %s", text);
    }
    return PyUnicode_FromString(attributes);
}

static PyObject *comm_reduces(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    if (count != 2) {
        return PyErr_Format(PyExc_TypeError, "comm_reduces takes 2 arguments, not %zd", count);
    }
    long dtype = PyLong_AsLong(arguments[0]);
    long reduction = PyLong_AsLong(arguments[1]);
    if (PyErr_Occurred()) {
        return NULL;
    }
    return PyBool_FromLong(
        uncopy_comm_reduces((uncopy_dtype_t)dtype, (uncopy_reduction_t)reduction));
}

static PyObject *from_blob(PyObject *module, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"address", "sizes", "strides", "dtype", "owner", NULL};
    PyObject *address_object, *sizes, *strides, *dtype, *owner;
    (void)module;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OOOOO:from_blob", names, &address_object,
                                     &sizes, &strides, &dtype, &owner)) {
        return NULL;
    }
    void *address = PyLong_AsVoidPtr(address_object);
    int code = core_dtype_find(dtype);
    if (PyErr_Occurred() || code < 0) {
        return PyErr_Occurred() ? NULL
                                : PyErr_Format(PyExc_TypeError, "%R is no dtype of a plan", dtype);
    }
    if (!core.is_initialized) {
        PyErr_SetString(PyExc_RuntimeError, "initialize() must come before from_blob()");
        return NULL;
    }
    Py_ssize_t rank = 0, num_strides = 0;
    int64_t *held_sizes = integers_from_sequence(sizes, "sizes is no sequence", &rank);
    int64_t *held_strides =
        held_sizes != NULL ? integers_from_sequence(strides, "strides is no sequence", &num_strides)
                           : NULL;
    PyObject *tensor = NULL;
    bool is_sound = held_strides != NULL && rank == num_strides && rank <= UNCOPY_MAX_RANK;
    for (Py_ssize_t i = 0; is_sound && i < rank; i++) {
        is_sound = held_sizes[i] >= 0 && held_strides[i] >= 0;
    }
    if (is_sound) {
        tensor_layout_t layout = {(uncopy_dtype_t)code, (int32_t)rank, held_sizes, held_strides};
        tensor = tensor_from_blob(address, &layout, owner != Py_None ? owner : NULL);
    } else if (held_strides != NULL) {
        PyErr_Format(PyExc_ValueError,
                     "sizes %R and strides %R must be of one length up to %d and not negative",
                     sizes, strides, UNCOPY_MAX_RANK);
    }
    PyMem_Free(held_sizes);
    PyMem_Free(held_strides);
    return tensor;
}

#define WITH_KEYWORDS(function) (PyCFunction)(void (*)(void))(function)

static PyMethodDef module_methods[] = {
    {"initialize", WITH_KEYWORDS(initialize), METH_VARARGS | METH_KEYWORDS,
     "Finds and probes what is borrowed of PyTorch."},
    {"dtype_code", dtype_code, METH_O, "The library's number of a torch dtype."},
    {"operation_find", operation_find, METH_O, "The row that serves an aten operation, or None."},
    {"operation_accepts", WITH_KEYWORDS(operation_accepts), METH_VARARGS | METH_KEYWORDS,
     "Whether a row takes these dtypes."},
    {"operation_num_reads", operation_num_reads, METH_O, "Number of operands that a row reads."},
    {"operation_attributes", operation_attributes, METH_O, "Names and defaults of attributes."},
    {"comm_reduces", (PyCFunction)(void (*)(void))comm_reduces, METH_FASTCALL,
     "Whether the engine of collectives reduces a dtype's number by a reduction's."},
    {"from_blob", WITH_KEYWORDS(from_blob), METH_VARARGS | METH_KEYWORDS,
     "A tensor over bytes the caller owns."},
    {NULL, NULL, 0, NULL},
};

/* Module creation */

static int add_type(PyObject *module, const char *name, PyTypeObject **place, PyTypeObject *created)
{
    *place = created;
    return created != NULL ? PyModule_AddObjectRef(module, name, (PyObject *)created) : -1;
}

static int add_types(PyObject *module)
{
    core.bytes_type = tensor_bytes_type_create();
    return core.bytes_type == NULL ||
                   add_type(module, "Program", &core.program_type, program_type_create()) ||
                   add_type(module, "Number", &core.number_type, number_type_create()) ||
                   add_type(module, "Slot", &core.slot_type, slot_type_create()) ||
                   add_type(module, "Recipe", &core.recipe_type, recipe_type_create()) ||
                   add_type(module, "Output", &core.output_type, output_type_create()) ||
                   add_type(module, "Plan", &core.plan_type, plan_type_create()) ||
                   add_type(module, "Function", &core.function_type, function_type_create()) ||
                   add_type(module, "Bound", &core.bound_type, bound_type_create()) ||
                   add_type(module, "Communicator", &core.communicator_type,
                            communicator_type_create()) ||
                   add_type(module, "Job", &core.job_type, job_type_create()) ||
                   add_type(module, "Window", &core.window_type, window_type_create())
               ? -1
               : 0;
}

/* Numbers of the collectives, as COMM_ALL_GATHER, and of the reductions, as REDUCE_SUM. */
static int add_comm_constants(PyObject *module)
{
    for (int kind = 0; kind < EXCHANGE_NUM_KINDS; kind++) {
        char name[64];
        (void)snprintf(name, sizeof(name), "COMM_%s", exchange_kind_name((exchange_kind_t)kind));
        for (char *letter = name; *letter != '\0'; letter++) {
            *letter = (char)Py_TOUPPER(*letter);
        }
        if (PyModule_AddIntConstant(module, name, kind) != 0) {
            return -1;
        }
    }
#define REDUCTION(name, value, text)                                    \
    if (PyModule_AddIntConstant(module, "REDUCE_" #name, value) != 0) { \
        return -1;                                                      \
    }
#include "uncopy/reduction.def"
#undef REDUCTION
    return 0;
}

static int add_constants(PyObject *module)
{
    return add_comm_constants(module) ||
                   PyModule_AddStringConstant(module, "VERSION", uncopy_version()) ||
                   PyModule_AddIntConstant(module, "EFFECT_AUDITED", UNCOPY_EFFECT_AUDITED) ||
                   PyModule_AddIntConstant(module, "EFFECT_RAISES", UNCOPY_EFFECT_RAISES) ||
                   PyModule_AddIntConstant(module, "EFFECT_RANDOM", UNCOPY_EFFECT_RANDOM) ||
                   PyModule_AddIntConstant(module, "EFFECT_LAYOUT", UNCOPY_EFFECT_LAYOUT) ||
                   PyModule_AddIntConstant(module, "EFFECT_OUT", UNCOPY_EFFECT_OUT) ||
                   PyModule_AddIntConstant(module, "EFFECT_THREADS", UNCOPY_EFFECT_THREADS) ||
                   PyModule_AddIntConstant(module, "EFFECT_OUT_LAYOUT", UNCOPY_EFFECT_OUT_LAYOUT)
               ? -1
               : 0;
}

static int intern_names(void)
{
#define NAME(field, text)                               \
    core.name.field = PyUnicode_InternFromString(text); \
    if (core.name.field == NULL) {                      \
        return -1;                                      \
    }
    CORE_NAMES(NAME)
#undef NAME
    return 0;
}

static struct PyModuleDef module_definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "uncopy._core",
    .m_doc = "Programs, functions and the host entries that run PyTorch's kernels.",
    .m_size = -1,
    .m_methods = module_methods,
};

PyMODINIT_FUNC PyInit__core(void)
{
    PyObject *module = PyModule_Create(&module_definition);
    if (module != NULL &&
        (intern_names() != 0 || add_types(module) != 0 || add_constants(module) != 0)) {
        Py_CLEAR(module);
    }
    return module;
}
