/* Borrowed symbols and layouts of PyTorch, with the probe of each.
 *
 * A probe compares what the borrowed route says of real tensors with what PyTorch's public Python
 * calls say. Offsets inside a TensorImpl are searched, not assumed: the key set is the word that
 * equals torch._C._dispatch_keys(t).raw_repr() for tensors of several kinds; the autograd metadata
 * is the one word that turns from 0 to a pointer when requires_grad is set. Cost: about 1 ms,
 * once. */
#include "torch_abi.h"

#include <dlfcn.h>
#include <string.h>

torch_abi_t torch_abi;

/* Bytes of a TensorImpl that are searched: its size in torch 2.13 and 2.14. A later one that is
 * smaller ends with the key set all the same, where the search stops. */
enum { IMPL_SEARCHED_BYTES = 176 };

static const int32_t scalar_types[CORE_NUM_DTYPES] = {
    [UNCOPY_DTYPE_BOOL] = 11,       [UNCOPY_DTYPE_U8] = 0,          [UNCOPY_DTYPE_I8] = 1,
    [UNCOPY_DTYPE_I16] = 2,         [UNCOPY_DTYPE_I32] = 3,         [UNCOPY_DTYPE_I64] = 4,
    [UNCOPY_DTYPE_F16] = 5,         [UNCOPY_DTYPE_BF16] = 15,       [UNCOPY_DTYPE_F32] = 6,
    [UNCOPY_DTYPE_F64] = 7,         [UNCOPY_DTYPE_C32] = 8,         [UNCOPY_DTYPE_C64] = 9,
    [UNCOPY_DTYPE_C128] = 10,       [UNCOPY_DTYPE_U16] = 27,        [UNCOPY_DTYPE_U32] = 28,
    [UNCOPY_DTYPE_U64] = 29,        [UNCOPY_DTYPE_F8E4M3FN] = 24,   [UNCOPY_DTYPE_F8E5M2] = 23,
    [UNCOPY_DTYPE_F8E4M3FNUZ] = 26, [UNCOPY_DTYPE_F8E5M2FNUZ] = 25,
};

int torch_abi_raise(const char *what)
{
    const char *words = torch_abi.exception_what != NULL ? torch_abi.exception_what() : "";
    PyErr_Format(PyExc_RuntimeError, "%s: %s", what, words != NULL ? words : "");
    return -1;
}

static void *find_symbol(void *library, const char *name)
{
    return library != NULL ? dlsym(library, name) : NULL;
}

/* Copies a symbol's address into a function pointer. */
static void set_function(void *function, const void *symbol)
{
    memcpy(function, &symbol, sizeof(symbol));
}

static void find_symbols(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
#define SYMBOL(field, text, result, parameters) \
    set_function(&torch_abi.field, find_symbol(library, text));
    TORCH_SYMBOLS(SYMBOL)
#undef SYMBOL
}

/* A strided f32 tensor of sizes [3, 5] made by the public route. */
static PyObject *make_tensor(PyObject *dtype)
{
    PyObject *arguments = Py_BuildValue("((LL)(LL))", 3LL, 5LL, 7LL, 1LL);
    PyObject *keywords = Py_BuildValue("{sOss}", "dtype", dtype, "device", "cpu");
    PyObject *tensor = NULL;
    if (arguments != NULL && keywords != NULL) {
        tensor = PyObject_Call(core.helper.empty_strided, arguments, keywords);
    }
    Py_XDECREF(arguments);
    Py_XDECREF(keywords);
    return tensor;
}

static PyObject *make_float(void)
{
    return make_tensor(core.dtypes[UNCOPY_DTYPE_F32]);
}

/* The same of our dtype i. PyTorch warns of each new complex32 tensor, so that is a view. */
static PyObject *make_of_dtype(int i)
{
    if (i != UNCOPY_DTYPE_C32) {
        return make_tensor(core.dtypes[i]);
    }
    PyObject *base =
        core.dtypes[UNCOPY_DTYPE_I32] != NULL ? make_tensor(core.dtypes[UNCOPY_DTYPE_I32]) : NULL;
    PyObject *view =
        base != NULL ? PyObject_CallMethodOneArg(base, core.name.view, core.dtypes[i]) : NULL;
    Py_XDECREF(base);
    return view;
}

/* A value of a public call as an integer; *out_ok turns false on any exception. */
static uint64_t take_integer(PyObject *number, bool *out_ok)
{
    uint64_t value = number != NULL ? PyLong_AsUnsignedLongLongMask(number) : 0;
    Py_XDECREF(number);
    if (PyErr_Occurred()) {
        PyErr_Clear();
        *out_ok = false;
    }
    return value;
}

static bool pointer_is_plausible(PyObject *tensor)
{
    if (core.tensor_type->tp_basicsize < (Py_ssize_t)(sizeof(PyObject) + sizeof(void *))) {
        return false;
    }
    uintptr_t word;
    memcpy(&word, torch_abi_handle(tensor), sizeof(word));
    return word > 65536 && word % sizeof(void *) == 0;
}

static bool metadata_agrees(PyObject *tensor, int64_t offset, int32_t code, int64_t storage_bytes)
{
    void *handle = torch_abi_handle(tensor);
    int64_t dim = 0, found_offset = -1, found_bytes = -1;
    int64_t *sizes = NULL, *strides = NULL;
    int32_t found_code = -1;
    void *data = NULL;
    if (torch_abi.get_dim(handle, &dim) || dim != 2 || torch_abi.get_sizes(handle, &sizes) ||
        torch_abi.get_strides(handle, &strides) ||
        torch_abi.get_storage_offset(handle, &found_offset) ||
        torch_abi.get_storage_size(handle, &found_bytes) ||
        torch_abi.get_dtype(handle, &found_code) || torch_abi.get_data_ptr(handle, &data)) {
        return false;
    }
    bool ok = true;
    uint64_t address = take_integer(PyObject_CallMethod(tensor, "data_ptr", NULL), &ok);
    return ok && sizes[0] == 3 && sizes[1] == 5 && strides[0] == 7 && strides[1] == 1 &&
           found_offset == offset && found_bytes == storage_bytes && found_code == code &&
           (uint64_t)(uintptr_t)data == address;
}

static bool probe_handle(void)
{
    if (torch_abi.get_dim == NULL || torch_abi.get_sizes == NULL || torch_abi.get_strides == NULL ||
        torch_abi.get_storage_offset == NULL || torch_abi.get_storage_size == NULL ||
        torch_abi.get_dtype == NULL || torch_abi.get_data_ptr == NULL ||
        torch_abi.delete_tensor == NULL) {
        return false;
    }
    for (int i = 0; i < CORE_NUM_DTYPES; i++) {
        if (core.dtypes[i] == NULL) {
            continue;
        }
        PyObject *tensor = make_of_dtype(i);
        bool agrees = tensor != NULL && pointer_is_plausible(tensor) &&
                      metadata_agrees(tensor, 0, scalar_types[i],
                                      19 * (int64_t)uncopy_dtype_size((uncopy_dtype_t)i));
        Py_XDECREF(tensor);
        if (!agrees) {
            return false;
        }
    }
    PyObject *tensor = make_float();
    PyObject *view = NULL;
    if (tensor != NULL) {
        view = PyObject_CallFunction(core.helper.as_strided, "O(ii)(ii)i", tensor, 3, 5, 7, 1, 0);
    }
    bool agrees = view != NULL && metadata_agrees(view, 0, scalar_types[UNCOPY_DTYPE_F32], 76);
    Py_XDECREF(view);
    Py_XDECREF(tensor);
    return agrees;
}

static uint64_t key_set_of(PyObject *tensor, bool *out_ok)
{
    PyObject *keys = tensor != NULL ? PyObject_CallOneArg(core.helper.dispatch_keys, tensor) : NULL;
    PyObject *raw = keys != NULL ? PyObject_CallMethod(keys, "raw_repr", NULL) : NULL;
    Py_XDECREF(keys);
    if (raw == NULL) {
        PyErr_Clear();
        *out_ok = false;
        return 0;
    }
    return take_integer(raw, out_ok);
}

static PyObject *make_inference_tensor(void)
{
    PyObject *mode = PyObject_CallOneArg(core.helper.inference_mode, Py_True);
    PyObject *entered = mode != NULL ? PyObject_CallMethod(mode, "__enter__", NULL) : NULL;
    PyObject *tensor = entered != NULL ? make_float() : NULL;
    if (entered != NULL) {
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        Py_XDECREF(PyObject_CallMethod(mode, "__exit__", "OOO", Py_None, Py_None, Py_None));
        PyErr_Restore(type, value, traceback);
    }
    Py_XDECREF(entered);
    Py_XDECREF(mode);
    return tensor;
}

/* Tensors whose key sets differ: plain, complex, conjugate, negative, made in inference mode. */
enum { KIND_PLAIN, KIND_COMPLEX, KIND_CONJUGATE, KIND_NEGATIVE, KIND_INFERENCE, NUM_KINDS };

static void make_kinds(PyObject *tensors[NUM_KINDS])
{
    tensors[KIND_PLAIN] = make_float();
    tensors[KIND_COMPLEX] = make_tensor(core.dtypes[UNCOPY_DTYPE_C64]);
    tensors[KIND_INFERENCE] = make_inference_tensor();
    if (tensors[KIND_COMPLEX] != NULL) {
        tensors[KIND_CONJUGATE] = PyObject_CallMethod(tensors[KIND_COMPLEX], "conj", NULL);
    }
    if (tensors[KIND_CONJUGATE] != NULL) {
        tensors[KIND_NEGATIVE] = PyObject_GetAttrString(tensors[KIND_CONJUGATE], "imag");
    }
}

static bool find_key_set(PyObject *const tensors[NUM_KINDS], const uint64_t expected[NUM_KINDS])
{
    for (size_t offset = 8; offset < IMPL_SEARCHED_BYTES; offset += 8) {
        bool is_equal = true;
        for (int i = 0; i < NUM_KINDS; i++) {
            is_equal &= torch_abi_word(torch_abi_handle(tensors[i]), offset) == expected[i];
        }
        if (is_equal) {
            torch_abi.key_set_offset = offset;
            return true;
        }
    }
    return false;
}

static bool probe_key_set(void)
{
    if (!torch_abi.has.handle) {
        return false;
    }
    PyObject *tensors[NUM_KINDS] = {NULL};
    uint64_t keys[NUM_KINDS] = {0};
    bool ok = true;
    make_kinds(tensors);
    for (int i = 0; i < NUM_KINDS && ok; i++) {
        keys[i] = key_set_of(tensors[i], &ok);
    }
    ok = ok && find_key_set(tensors, keys);
    torch_abi.key_set_allowed = keys[KIND_PLAIN] | keys[KIND_COMPLEX] | keys[KIND_INFERENCE];
    torch_abi.key_set_required = keys[KIND_PLAIN] & keys[KIND_COMPLEX] & keys[KIND_INFERENCE];
    torch_abi.key_set_normal = keys[KIND_PLAIN] & ~keys[KIND_INFERENCE];
    ok = ok && torch_abi.key_set_normal != 0 && torch_abi.key_set_required != 0 &&
         (keys[KIND_CONJUGATE] & ~torch_abi.key_set_allowed) != 0 &&
         (keys[KIND_NEGATIVE] & ~torch_abi.key_set_allowed) != 0;
    for (int i = 0; i < NUM_KINDS; i++) {
        Py_XDECREF(tensors[i]);
    }
    return ok;
}

static bool probe_data_pointers(void)
{
    if (!torch_abi.has.handle || torch_abi.get_const_data_ptr == NULL ||
        torch_abi.get_mutable_data_ptr == NULL) {
        return false;
    }
    PyObject *tensor = make_float();
    if (tensor == NULL) {
        return false;
    }
    void *handle = torch_abi_handle(tensor);
    void *data = NULL, *written = NULL;
    const void *read = NULL;
    bool agrees =
        !torch_abi.get_data_ptr(handle, &data) && !torch_abi.get_const_data_ptr(handle, &read) &&
        !torch_abi.get_mutable_data_ptr(handle, &written) && data == read && data == written;
    Py_DECREF(tensor);
    return agrees;
}

static bool probe_autograd_meta(void)
{
    if (!torch_abi.has.key_set) {
        return false;
    }
    PyObject *tensor = make_float();
    if (tensor == NULL) {
        return false;
    }
    size_t num_words = torch_abi.key_set_offset / 8;
    uint64_t before[IMPL_SEARCHED_BYTES / 8];
    void *handle = torch_abi_handle(tensor);
    for (size_t i = 0; i < num_words; i++) {
        before[i] = torch_abi_word(handle, i * 8);
    }
    PyObject *result = PyObject_CallMethod(tensor, "requires_grad_", "O", Py_True);
    size_t found = 0;
    int num_found = 0;
    for (size_t i = 1; result != NULL && i < num_words; i++) {
        uint64_t word = torch_abi_word(handle, i * 8);
        if (before[i] == 0 && word > 65536 && word % 8 == 0) {
            found = i * 8;
            num_found++;
        }
    }
    torch_abi.autograd_meta_offset = found;
    Py_XDECREF(result);
    Py_DECREF(tensor);
    return num_found == 1;
}

static bool probe_bump_version(void)
{
    if (!torch_abi.has.key_set || torch_abi.bump_version == NULL) {
        return false;
    }
    PyObject *tensor = make_float();
    if (tensor == NULL) {
        return false;
    }
    bool ok = true;
    uint64_t before = take_integer(PyObject_GetAttrString(tensor, "_version"), &ok);
    torch_abi.bump_version(torch_abi_handle(tensor));
    uint64_t after = take_integer(PyObject_GetAttrString(tensor, "_version"), &ok);
    Py_DECREF(tensor);
    return ok && after == before + 1;
}

/* Whether the public call says the same. */
static bool grad_mode_agrees(void)
{
    PyObject *said = PyObject_CallNoArgs(core.helper.is_grad_enabled);
    bool agrees = said != NULL && (said == Py_True) == torch_abi.grad_mode_is_enabled();
    Py_XDECREF(said);
    return agrees;
}

static bool probe_grad_mode(void)
{
    if (torch_abi.grad_mode_is_enabled == NULL || torch_abi.grad_mode_set_enabled == NULL) {
        return false;
    }
    bool was_on = torch_abi.grad_mode_is_enabled();
    bool agrees = grad_mode_agrees();
    torch_abi.grad_mode_set_enabled(!was_on);
    agrees = torch_abi.grad_mode_is_enabled() == !was_on && grad_mode_agrees() && agrees;
    torch_abi.grad_mode_set_enabled(was_on);
    return agrees;
}

static bool probe_inference_mode(void)
{
    if (torch_abi.inference_mode_is_enabled == NULL) {
        return false;
    }
    PyObject *said = PyObject_CallNoArgs(core.helper.is_inference_mode_enabled);
    bool agrees = said != NULL && (said == Py_True) == torch_abi.inference_mode_is_enabled();
    Py_XDECREF(said);
    return agrees;
}

static bool probe_wrap(void)
{
    if (!torch_abi.has.handle || torch_abi.wrap == NULL) {
        return false;
    }
    PyObject *tensor = make_float();
    if (tensor == NULL) {
        return false;
    }
    PyObject *same = torch_abi.wrap(torch_abi_handle(tensor));
    bool agrees = same == tensor;
    Py_XDECREF(same);
    Py_DECREF(tensor);
    return agrees;
}

/* Wraps and gives up a handle, checks sizes [3, 5], strides [7, 1] and offset; steals handle. */
static bool new_tensor_agrees(void *handle, int64_t offset, uncopy_dtype_t dtype,
                              int64_t storage_bytes)
{
    PyObject *object = torch_abi.wrap(handle);
    torch_abi.delete_tensor(handle);
    bool agrees = object != NULL && core_is_tensor(object) &&
                  metadata_agrees(object, offset, scalar_types[dtype], storage_bytes);
    Py_XDECREF(object);
    return agrees;
}

static const int64_t probe_sizes[2] = {3, 5};
static const int64_t probe_strides[2] = {7, 1};

static bool probe_empty_strided(void)
{
    void *handle = NULL;
    return torch_abi.has.wrap && torch_abi.empty_strided != NULL &&
           torch_abi.empty_strided(2, probe_sizes, probe_strides, scalar_types[UNCOPY_DTYPE_F32],
                                   TORCH_CPU, TORCH_CPU_INDEX, &handle) == 0 &&
           new_tensor_agrees(handle, 0, UNCOPY_DTYPE_F32, 76);
}

/* reinterpret counts an offset from its base's own, alloc_from_pool from the storage's start. */
static bool view_agrees(void *base, void *shifted)
{
    void *handle = NULL;
    bool agrees = torch_abi.reinterpret(shifted, 2, probe_sizes, probe_strides, -2, &handle) == 0 &&
                  new_tensor_agrees(handle, 0, UNCOPY_DTYPE_F64, 152);
    return agrees &&
           torch_abi.alloc_from_pool(base, 8, scalar_types[UNCOPY_DTYPE_F32], 2, probe_sizes,
                                     probe_strides, &handle) == 0 &&
           new_tensor_agrees(handle, 2, UNCOPY_DTYPE_F32, 152);
}

static bool probe_view(void)
{
    if (!torch_abi.has.wrap || torch_abi.reinterpret == NULL || torch_abi.alloc_from_pool == NULL) {
        return false;
    }
    PyObject *tensor = make_tensor(core.dtypes[UNCOPY_DTYPE_F64]);
    PyObject *shifted =
        tensor != NULL ? PyObject_CallFunction(core.helper.as_strided, "O(i)(i)i", tensor, 3, 1, 2)
                       : NULL;
    bool agrees =
        shifted != NULL && view_agrees(torch_abi_handle(tensor), torch_abi_handle(shifted));
    Py_XDECREF(shifted);
    Py_XDECREF(tensor);
    return agrees;
}

static bool probe_as_strided(void)
{
    if (!torch_abi.has.wrap || torch_abi.as_strided == NULL) {
        return false;
    }
    PyObject *tensor = make_float();
    if (tensor == NULL) {
        return false;
    }
    void *handle = NULL;
    bool agrees =
        torch_abi.as_strided(torch_abi_handle(tensor), probe_sizes, probe_strides, &handle) == 0 &&
        new_tensor_agrees(handle, 0, UNCOPY_DTYPE_F32, 76);
    Py_DECREF(tensor);
    return agrees;
}

static bool probe_matmul(void)
{
    if (!torch_abi.has.empty_strided || torch_abi.mm_out == NULL || torch_abi.bmm_out == NULL) {
        return false;
    }
    static const int64_t ones[3] = {1, 1, 1};
    void *handles[3] = {NULL};
    float *values[3] = {NULL};
    bool agrees = true;
    for (int rank = 2; rank <= 3 && agrees; rank++) {
        for (int i = 0; i < 3; i++) {
            agrees =
                agrees && torch_abi.empty_strided(rank, ones, ones, scalar_types[UNCOPY_DTYPE_F32],
                                                  TORCH_CPU, TORCH_CPU_INDEX, &handles[i]) == 0;
            void *data = NULL;
            agrees = agrees && torch_abi.get_data_ptr(handles[i], &data) == 0;
            values[i] = data;
        }
        if (agrees) {
            *values[1] = 3.0F;
            *values[2] = 5.0F;
            int32_t failed = rank == 2 ? torch_abi.mm_out(handles[0], handles[1], handles[2])
                                       : torch_abi.bmm_out(handles[0], handles[1], handles[2]);
            agrees = failed == 0 && *values[0] > 14.5F && *values[0] < 15.5F;
        }
        for (int i = 0; i < 3; i++) {
            if (handles[i] != NULL) {
                torch_abi.delete_tensor(handles[i]);
            }
            handles[i] = NULL;
        }
    }
    return agrees;
}

/* Writes a mark into the bytes, if it is called with both of what it was registered with. */
static void note_deleted(void *data, void *context)
{
    if (data == context) {
        *(float *)data = 1.0F;
    }
}

static bool probe_from_blob(void)
{
    if (!torch_abi.has.wrap || torch_abi.from_blob == NULL) {
        return false;
    }
    static float bytes[19];
    void *handle = NULL;
    if (torch_abi.from_blob(bytes, 2, probe_sizes, probe_strides, 0, scalar_types[UNCOPY_DTYPE_F32],
                            TORCH_CPU, TORCH_CPU_INDEX, &handle, TORCH_STRIDED, NULL, 0,
                            note_deleted, bytes) != 0) {
        return false;
    }
    return new_tensor_agrees(handle, 0, UNCOPY_DTYPE_F32, 76) && bytes[0] > 0.5F;
}

static bool probe_num_threads(void)
{
    uint32_t number = 0;
    if (torch_abi.get_num_threads == NULL || torch_abi.get_num_threads(&number) != 0) {
        return false;
    }
    PyObject *said = PyObject_CallNoArgs(core.helper.get_num_threads);
    bool agrees = said != NULL && PyLong_AsUnsignedLong(said) == number;
    Py_XDECREF(said);
    return agrees && PyErr_Occurred() == NULL;
}

PyObject *torch_abi_initialize(const char *path, PyObject *forced_off)
{
    find_symbols(path);
    memset(torch_abi.dtypes, -1, sizeof(torch_abi.dtypes));
    for (int i = 0; i < CORE_NUM_DTYPES; i++) {
        torch_abi.codes[i] = scalar_types[i];
        if (core.dtypes[i] != NULL) {
            torch_abi.dtypes[scalar_types[i]] = (int8_t)i;
        }
    }
    PyObject *all = PyUnicode_FromString("all");
    int all_is_off = all != NULL ? PySet_Contains(forced_off, all) : -1;
    Py_XDECREF(all);
    PyObject *used = all_is_off >= 0 ? PyDict_New() : NULL;
    if (used == NULL) {
        return NULL;
    }
#define PROBE(field, words)                                                                      \
    {                                                                                            \
        PyObject *probe_name = PyUnicode_FromString(#field);                                     \
        int is_off = probe_name != NULL ? PySet_Contains(forced_off, probe_name) : -1;           \
        is_off = is_off == 0 ? all_is_off : is_off;                                              \
        torch_abi.has.field = is_off == 0 && probe_##field();                                    \
        if (is_off >= 0) {                                                                       \
            PyErr_Clear();                                                                       \
            is_off = PyDict_SetItem(used, probe_name, torch_abi.has.field ? Py_True : Py_False); \
        }                                                                                        \
        Py_XDECREF(probe_name);                                                                  \
        if (is_off < 0) {                                                                        \
            Py_DECREF(used);                                                                     \
            return NULL;                                                                         \
        }                                                                                        \
    }
    TORCH_PROBES(PROBE)
#undef PROBE
    return used;
}
