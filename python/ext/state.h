/* The module's state: types, helpers and names that every file of the extension uses.
 *
 * Owner: the module, for the life of the process. Threads: written by module creation and by
 * initialize() under the GIL, read only afterwards. */
#ifndef UNCOPY_EXT_STATE_H
#define UNCOPY_EXT_STATE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <structmember.h>

#include "uncopy/uncopy.h"

/* Names of Python attributes and keywords that are looked up: NAME(field, text). */
#define CORE_NAMES(NAME)                     \
    NAME(as_strided, "as_strided")           \
    NAME(copy_, "copy_")                     \
    NAME(cpu, "cpu")                         \
    NAME(data_ptr, "data_ptr")               \
    NAME(detach, "detach")                   \
    NAME(device, "device")                   \
    NAME(dtype, "dtype")                     \
    NAME(fill_, "fill_")                     \
    NAME(is_conj, "is_conj")                 \
    NAME(is_cpu, "is_cpu")                   \
    NAME(is_inference, "is_inference")       \
    NAME(is_neg, "is_neg")                   \
    NAME(layout, "layout")                   \
    NAME(nbytes, "nbytes")                   \
    NAME(out, "out")                         \
    NAME(requires_grad, "requires_grad")     \
    NAME(requires_grad_, "requires_grad_")   \
    NAME(resolve_conj, "resolve_conj")       \
    NAME(resolve_neg, "resolve_neg")         \
    NAME(set_, "set_")                       \
    NAME(size, "size")                       \
    NAME(storage_offset, "storage_offset")   \
    NAME(stride, "stride")                   \
    NAME(untyped_storage, "untyped_storage") \
    NAME(view, "view")                       \
    NAME(wait, "wait")

/* Slow public routes: HELPER(name, where torch keeps it). Each may be replaced through
 * initialize(helpers=). */
#define CORE_HELPERS(HELPER)                                       \
    HELPER(empty_strided, "empty_strided")                         \
    HELPER(as_strided, "as_strided")                               \
    HELPER(frombuffer, "frombuffer")                               \
    HELPER(matmul_out, "matmul")                                   \
    HELPER(view_as_real, "view_as_real")                           \
    HELPER(view_as_complex, "view_as_complex")                     \
    HELPER(increment_version, "_C._increment_version")             \
    HELPER(dispatch_keys, "_C._dispatch_keys")                     \
    HELPER(get_num_threads, "get_num_threads")                     \
    HELPER(is_grad_enabled, "is_grad_enabled")                     \
    HELPER(set_grad_enabled, "_C._set_grad_enabled")               \
    HELPER(is_inference_mode_enabled, "is_inference_mode_enabled") \
    HELPER(inference_mode, "inference_mode")

enum {
#define DTYPE(name, value, text, bytes, kind) CORE_SEEN_##name,
#include "uncopy/dtype.def"
#undef DTYPE
    CORE_NUM_DTYPES
};

typedef struct core_state {
    bool is_initialized;
    uncopy_context_t *context;
    PyTypeObject *tensor_type;
    PyTypeObject *parameter_type;
    PyObject *strict_error;
    PyObject *strided;                 /* torch.strided */
    PyObject *dtypes[CORE_NUM_DTYPES]; /* torch's dtype by our number; NULL: torch has none */
    struct {
#define HELPER(name, where) PyObject *name;
        CORE_HELPERS(HELPER)
#undef HELPER
    } helper;
    struct {
#define NAME(field, text) PyObject *field;
        CORE_NAMES(NAME)
#undef NAME
    } name;
    PyTypeObject *program_type;
    PyTypeObject *number_type;
    PyTypeObject *slot_type;
    PyTypeObject *recipe_type;
    PyTypeObject *output_type;
    PyTypeObject *plan_type;
    PyTypeObject *function_type;
    PyTypeObject *bound_type;
    PyTypeObject *communicator_type;
    PyTypeObject *job_type;
    PyTypeObject *window_type;
    PyTypeObject *bytes_type; /* buffer over a caller's memory, for the slow route of from_blob */
} core_state_t;

extern core_state_t core;

/* The number of a torch dtype object, -1 (no exception) for one without. */
int core_dtype_find(PyObject *dtype);

/* Whether object is exactly a tensor or a parameter. */
static inline bool core_is_tensor(PyObject *object)
{
    return Py_TYPE(object) == core.tensor_type || Py_TYPE(object) == core.parameter_type;
}

/* Python tuple of count integers. */
PyObject *core_tuple_from_int64(const int64_t *values, Py_ssize_t count);

#endif
