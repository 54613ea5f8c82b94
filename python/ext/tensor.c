/* Reads tensor objects and makes tensors: by the borrowed interface where its probe passed, else by
 * public Python calls. Both routes give the same answers; tests run with either. */
#include "tensor.h"

#include <stdlib.h>
#include <string.h>

/* Calls a method and drops nothing else: new reference or NULL. */
static PyObject *call_method(PyObject *object, PyObject *name)
{
    return PyObject_CallMethodNoArgs(object, name);
}

static int method_is_true(PyObject *object, PyObject *name)
{
    PyObject *value = call_method(object, name);
    int truth = value != NULL ? PyObject_IsTrue(value) : -1;
    Py_XDECREF(value);
    return truth;
}

/* An integer that a method gives; -1 with an exception on failure. */
static int64_t method_integer(PyObject *object, PyObject *name)
{
    PyObject *value = call_method(object, name);
    int64_t integer = value != NULL ? (int64_t)PyLong_AsUnsignedLongLongMask(value) : -1;
    Py_XDECREF(value);
    return integer;
}

/* Raises TypeError that says what keeps a tensor from being planned. */
static int refuse(PyObject *object, const char *what, size_t number, const char *reason)
{
    PyErr_Clear();
    PyObject *device = PyObject_GetAttr(object, core.name.device);
    PyObject *layout = PyObject_GetAttr(object, core.name.layout);
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError,
                 "%s %zu is %s (device %S, layout %S); a plan takes plain strided CPU tensors",
                 what, number, reason, device != NULL ? device : Py_None,
                 layout != NULL ? layout : Py_None);
    Py_XDECREF(device);
    Py_XDECREF(layout);
    return -1;
}

/* Whether public attributes say: CPU, strided, neither conjugate nor negative. */
static int check_plain_slowly(PyObject *object, const char *what, size_t number)
{
    PyObject *layout = PyObject_GetAttr(object, core.name.layout);
    PyObject *is_cpu = PyObject_GetAttr(object, core.name.is_cpu);
    bool is_plain = layout == core.strided && is_cpu == Py_True;
    Py_XDECREF(layout);
    Py_XDECREF(is_cpu);
    if (PyErr_Occurred() || !is_plain) {
        return refuse(object, what, number, "not strided on the CPU");
    }
    int is_conj = method_is_true(object, core.name.is_conj);
    int is_neg = is_conj == 0 ? method_is_true(object, core.name.is_neg) : 0;
    if (is_conj < 0 || is_neg < 0) {
        return -1;
    }
    if (is_conj || is_neg) {
        return refuse(object, what, number, "a conjugate or negative view");
    }
    return 0;
}

static int check_plain(PyObject *object, const char *what, size_t number)
{
    if (!torch_abi.has.key_set) {
        return check_plain_slowly(object, what, number);
    }
    uint64_t keys = torch_abi_word(torch_abi_handle(object), torch_abi.key_set_offset);
    if ((keys & ~torch_abi.key_set_allowed) == 0 &&
        (keys & torch_abi.key_set_required) == torch_abi.key_set_required) {
        return 0;
    }
    return refuse(object, what, number, "of a kind that PyTorch dispatches specially");
}

/* Address of the storage's first byte by the public route; also makes a copy-on-write storage its
 * own. */
static int storage_address(PyObject *object, void **out_address, int64_t *out_bytes)
{
    PyObject *storage = call_method(object, core.name.untyped_storage);
    if (storage == NULL) {
        return -1;
    }
    *out_bytes = method_integer(storage, core.name.nbytes);
    /* A freed storage may refuse to give an address; it has none. */
    int64_t address = *out_bytes > 0 ? method_integer(storage, core.name.data_ptr) : 0;
    Py_DECREF(storage);
    *out_address = (void *)(uintptr_t)address;
    return PyErr_Occurred() ? -1 : 0;
}

static bool holds_elements(const uncopy_argument_t *argument)
{
    for (int32_t i = 0; i < argument->rank; i++) {
        if (argument->sizes[i] == 0) {
            return false;
        }
    }
    return true;
}

/* Sizes or strides of a tensor by the public route. */
static int read_dims_slowly(PyObject *object, PyObject *name, const char *what, size_t number,
                            int32_t *out_rank, int64_t *out_dims)
{
    PyObject *dims = call_method(object, name);
    if (dims == NULL) {
        return -1;
    }
    Py_ssize_t rank = PyTuple_GET_SIZE(dims);
    if (rank > UNCOPY_MAX_RANK) {
        PyErr_Format(PyExc_ValueError, "%s %zu has %zd dims; a plan takes up to %d", what, number,
                     rank, UNCOPY_MAX_RANK);
        rank = 0;
    }
    for (Py_ssize_t i = 0; i < rank; i++) {
        out_dims[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(dims, i));
    }
    *out_rank = (int32_t)rank;
    Py_DECREF(dims);
    return PyErr_Occurred() ? -1 : 0;
}

static int read_slowly(PyObject *object, const char *what, size_t number, uncopy_argument_t *out,
                       int64_t *dims)
{
    if (check_plain_slowly(object, what, number) != 0 ||
        read_dims_slowly(object, core.name.size, what, number, &out->rank, dims) != 0 ||
        read_dims_slowly(object, core.name.stride, what, number, &out->rank,
                         dims + UNCOPY_MAX_RANK) != 0) {
        return -1;
    }
    out->sizes = dims;
    out->strides = dims + UNCOPY_MAX_RANK;
    PyObject *dtype = PyObject_GetAttr(object, core.name.dtype);
    int number_of_dtype = dtype != NULL ? core_dtype_find(dtype) : -1;
    Py_XDECREF(dtype);
    if (number_of_dtype < 0) {
        return refuse(object, what, number, "of a dtype that no plan holds");
    }
    out->dtype = (uncopy_dtype_t)number_of_dtype;
    int64_t offset = method_integer(object, core.name.storage_offset);
    if (PyErr_Occurred() || storage_address(object, &out->storage, &out->storage_bytes) != 0) {
        return -1;
    }
    out->data = out->storage;
    if (out->storage != NULL) {
        out->data = (char *)out->storage + offset * (int64_t)uncopy_dtype_size(out->dtype);
    }
    return 0;
}

int tensor_read(PyObject *object, const char *what, size_t number, bool is_written,
                uncopy_argument_t *out, int64_t *dims)
{
    if (!torch_abi.has.handle) {
        return read_slowly(object, what, number, out, dims);
    }
    if (check_plain(object, what, number) != 0) {
        return -1;
    }
    void *handle = torch_abi_handle(object);
    int64_t rank = 0, offset = 0;
    int64_t *sizes = NULL, *strides = NULL;
    int32_t code = -1, failed = 0;
    void *data = NULL;
    if (torch_abi.has.data_pointers && !is_written) {
        const void *read = NULL;
        failed |= torch_abi.get_const_data_ptr(handle, &read);
        memcpy(&data, &read, sizeof(data));
    } else {
        failed |= torch_abi.get_data_ptr(handle, &data);
    }
    failed |= torch_abi.get_dim(handle, &rank);
    failed |= torch_abi.get_sizes(handle, &sizes);
    failed |= torch_abi.get_strides(handle, &strides);
    failed |= torch_abi.get_storage_offset(handle, &offset);
    failed |= torch_abi.get_storage_size(handle, &out->storage_bytes);
    failed |= torch_abi.get_dtype(handle, &code);
    if (failed) {
        PyErr_Format(PyExc_TypeError, "%s %zu cannot be read: %s", what, number,
                     torch_abi.exception_what != NULL ? torch_abi.exception_what() : "");
        return -1;
    }
    if (code < 0 || code >= (int32_t)sizeof(torch_abi.dtypes) || torch_abi.dtypes[code] < 0) {
        return refuse(object, what, number, "of a dtype that no plan holds");
    }
    out->dtype = (uncopy_dtype_t)torch_abi.dtypes[code];
    out->rank = (int32_t)rank;
    out->sizes = sizes;
    out->strides = strides;
    out->data = data;
    out->storage = NULL;
    if (data != NULL) {
        out->storage = (char *)data - offset * (int64_t)uncopy_dtype_size(out->dtype);
    } else if (out->storage_bytes > 0 && !holds_elements(out)) {
        /* PyTorch gives no address for a tensor without elements; its storage may have some. */
        if (storage_address(object, &out->storage, &out->storage_bytes) != 0) {
            return -1;
        }
        if (out->storage != NULL) {
            out->data = (char *)out->storage + offset * (int64_t)uncopy_dtype_size(out->dtype);
        }
    }
    return 0;
}

int tensor_is_inference(PyObject *object)
{
    if (torch_abi.has.key_set) {
        uint64_t keys = torch_abi_word(torch_abi_handle(object), torch_abi.key_set_offset);
        return (keys & torch_abi.key_set_normal) == 0;
    }
    return method_is_true(object, core.name.is_inference);
}

int tensor_inference_mode_is_on(void)
{
    if (torch_abi.has.inference_mode) {
        return torch_abi.inference_mode_is_enabled();
    }
    PyObject *value = PyObject_CallNoArgs(core.helper.is_inference_mode_enabled);
    int truth = value != NULL ? PyObject_IsTrue(value) : -1;
    Py_XDECREF(value);
    return truth;
}

int grad_mode_is_on(void)
{
    if (torch_abi.has.grad_mode) {
        return torch_abi.grad_mode_is_enabled();
    }
    PyObject *value = PyObject_CallNoArgs(core.helper.is_grad_enabled);
    int truth = value != NULL ? PyObject_IsTrue(value) : -1;
    Py_XDECREF(value);
    return truth;
}

int grad_mode_set(bool is_on)
{
    if (torch_abi.has.grad_mode) {
        torch_abi.grad_mode_set_enabled(is_on);
        return 0;
    }
    PyObject *result =
        PyObject_CallOneArg(core.helper.set_grad_enabled, is_on ? Py_True : Py_False);
    Py_XDECREF(result);
    return result != NULL ? 0 : -1;
}

int tensor_requires_grad(PyObject *object)
{
    if (torch_abi.has.autograd_meta &&
        torch_abi_word(torch_abi_handle(object), torch_abi.autograd_meta_offset) == 0) {
        return 0;
    }
    PyObject *value = PyObject_GetAttr(object, core.name.requires_grad);
    int truth = value != NULL ? PyObject_IsTrue(value) : -1;
    Py_XDECREF(value);
    return truth;
}

int tensor_bump_version(PyObject *object)
{
    int is_inference = tensor_is_inference(object);
    if (is_inference != 0) {
        return is_inference < 0 ? -1 : 0;
    }
    if (torch_abi.has.bump_version) {
        torch_abi.bump_version(torch_abi_handle(object));
        return 0;
    }
    PyObject *list = PyTuple_Pack(1, object);
    PyObject *result =
        list != NULL ? PyObject_CallOneArg(core.helper.increment_version, list) : NULL;
    Py_XDECREF(list);
    Py_XDECREF(result);
    return result != NULL ? 0 : -1;
}

PyObject *tensor_object(tensor_t *tensor)
{
    if (tensor->object == NULL && tensor->handle != NULL) {
        tensor->object = torch_abi.wrap(tensor->handle);
        if (tensor->object != NULL) {
            torch_abi.delete_tensor(tensor->handle);
            tensor->handle = NULL;
        }
    }
    if (tensor->object == NULL && !PyErr_Occurred()) {
        PyErr_SetString(PyExc_RuntimeError, "a tensor is used before it is made");
    }
    return tensor->object;
}

bool tensor_empty_quietly(const tensor_layout_t *layout, tensor_t *out)
{
    void *handle = NULL, *data = NULL;
    if (!torch_abi.has.empty_strided ||
        torch_abi.empty_strided(layout->rank, layout->sizes, layout->strides,
                                torch_abi.codes[layout->dtype], TORCH_CPU, TORCH_CPU_INDEX,
                                &handle) != 0) {
        return false;
    }
    if (torch_abi.get_data_ptr(handle, &data) != 0) {
        torch_abi.delete_tensor(handle);
        return false;
    }
    out->handle = handle;
    out->object = NULL;
    out->storage = data;
    return true;
}

static int require_dtype(uncopy_dtype_t dtype)
{
    if ((int)dtype >= 0 && (int)dtype < CORE_NUM_DTYPES && core.dtypes[dtype] != NULL) {
        return 0;
    }
    PyErr_Format(PyExc_TypeError, "this PyTorch has no dtype %s",
                 uncopy_dtype_name(dtype) != NULL ? uncopy_dtype_name(dtype) : "of that number");
    return -1;
}

/* torch.empty_strided(sizes, strides, dtype=, device="cpu"). */
static PyObject *empty_slowly(const tensor_layout_t *layout)
{
    PyObject *sizes = core_tuple_from_int64(layout->sizes, layout->rank);
    PyObject *strides = core_tuple_from_int64(layout->strides, layout->rank);
    PyObject *arguments = NULL, *keywords = NULL, *object = NULL;
    if (sizes != NULL && strides != NULL) {
        arguments = PyTuple_Pack(2, sizes, strides);
        keywords = PyDict_New();
    }
    if (arguments != NULL && keywords != NULL &&
        PyDict_SetItem(keywords, core.name.dtype, core.dtypes[layout->dtype]) == 0 &&
        PyDict_SetItem(keywords, core.name.device, core.name.cpu) == 0) {
        object = PyObject_Call(core.helper.empty_strided, arguments, keywords);
    }
    Py_XDECREF(keywords);
    Py_XDECREF(arguments);
    Py_XDECREF(strides);
    Py_XDECREF(sizes);
    return object;
}

int tensor_empty(const tensor_layout_t *layout, tensor_t *out)
{
    if (require_dtype(layout->dtype) != 0) {
        return -1;
    }
    if (torch_abi.has.empty_strided) {
        return tensor_empty_quietly(layout, out) ? 0 : torch_abi_raise("no new tensor");
    }
    PyObject *object = empty_slowly(layout);
    if (object == NULL) {
        return -1;
    }
    void *address = NULL;
    int64_t bytes = 0;
    if (storage_address(object, &address, &bytes) != 0) {
        Py_DECREF(object);
        return -1;
    }
    out->handle = NULL;
    out->object = object;
    out->storage = address;
    return 0;
}

/* A view of another dtype: through a view at the storage's start, which alloc_from_pool wants.
 * base_offset: that of base in its storage, in its elements. */
static bool view_as_dtype(void *base, int64_t base_offset, int64_t offset_bytes,
                          const tensor_layout_t *layout, void **out_handle)
{
    static const int64_t none[1] = {0}, one[1] = {1};
    void *start = NULL;
    if (torch_abi.reinterpret(base, 1, none, one, -base_offset, &start) != 0) {
        return false;
    }
    bool is_made =
        torch_abi.alloc_from_pool(start, offset_bytes, torch_abi.codes[layout->dtype], layout->rank,
                                  layout->sizes, layout->strides, out_handle) == 0;
    torch_abi.delete_tensor(start);
    return is_made;
}

bool tensor_view_quietly(const tensor_t *base, int64_t offset_bytes, const tensor_layout_t *layout,
                         tensor_t *out)
{
    void *base_handle = tensor_handle(base), *handle = NULL;
    int32_t code = -1;
    int64_t item_bytes = (int64_t)uncopy_dtype_size(layout->dtype);
    int64_t base_offset = 0;
    if (!torch_abi.has.view || base_handle == NULL || item_bytes == 0 ||
        offset_bytes % item_bytes != 0 || torch_abi.get_dtype(base_handle, &code) != 0 ||
        torch_abi.get_storage_offset(base_handle, &base_offset) != 0) {
        return false;
    }
    bool is_made =
        code == torch_abi.codes[layout->dtype]
            ? torch_abi.reinterpret(base_handle, layout->rank, layout->sizes, layout->strides,
                                    offset_bytes / item_bytes - base_offset, &handle) == 0
            : view_as_dtype(base_handle, base_offset, offset_bytes, layout, &handle);
    if (!is_made) {
        return false;
    }
    out->handle = handle;
    out->object = NULL;
    out->storage = base->storage;
    return true;
}

/* torch.empty(0).set_(base.untyped_storage(), offset, sizes, strides). */
static PyObject *view_slowly(PyObject *base, int64_t offset, const tensor_layout_t *layout)
{
    static const int64_t none[1] = {0}, one[1] = {1};
    PyObject *view = empty_slowly(&(tensor_layout_t){layout->dtype, 1, none, one});
    PyObject *storage = view != NULL ? call_method(base, core.name.untyped_storage) : NULL;
    PyObject *sizes = core_tuple_from_int64(layout->sizes, layout->rank);
    PyObject *strides = core_tuple_from_int64(layout->strides, layout->rank);
    PyObject *position = PyLong_FromLongLong(offset);
    PyObject *result = NULL;
    if (storage != NULL && sizes != NULL && strides != NULL && position != NULL) {
        result = PyObject_CallMethodObjArgs(view, core.name.set_, storage, position, sizes, strides,
                                            NULL);
    }
    Py_XDECREF(position);
    Py_XDECREF(strides);
    Py_XDECREF(sizes);
    Py_XDECREF(storage);
    Py_XDECREF(view);
    return result;
}

int tensor_view(const tensor_t *base, int64_t offset_bytes, const tensor_layout_t *layout,
                tensor_t *out)
{
    int64_t item_bytes = (int64_t)uncopy_dtype_size(layout->dtype);
    if (require_dtype(layout->dtype) != 0) {
        return -1;
    }
    if (offset_bytes % item_bytes != 0) {
        PyErr_Format(PyExc_RuntimeError, "a view of %s starts at byte %lld of its storage",
                     uncopy_dtype_name(layout->dtype), (long long)offset_bytes);
        return -1;
    }
    if (torch_abi.has.view && tensor_handle(base) != NULL) {
        return tensor_view_quietly(base, offset_bytes, layout, out) ? 0
                                                                    : torch_abi_raise("no view");
    }
    PyObject *owner = base->object != NULL ? Py_NewRef(base->object) : torch_abi.wrap(base->handle);
    PyObject *object = owner != NULL ? view_slowly(owner, offset_bytes / item_bytes, layout) : NULL;
    Py_XDECREF(owner);
    if (object == NULL) {
        return -1;
    }
    out->handle = NULL;
    out->object = object;
    out->storage = base->storage;
    return 0;
}

/* base seen as another dtype by a view that autograd knows; new reference. */
static PyObject *dispatched_dtype(PyObject *base, uncopy_dtype_t from, uncopy_dtype_t to)
{
    bool from_complex =
        from == UNCOPY_DTYPE_C32 || from == UNCOPY_DTYPE_C64 || from == UNCOPY_DTYPE_C128;
    bool to_complex = to == UNCOPY_DTYPE_C32 || to == UNCOPY_DTYPE_C64 || to == UNCOPY_DTYPE_C128;
    if (from_complex && uncopy_dtype_size(from) == 2 * uncopy_dtype_size(to)) {
        return PyObject_CallOneArg(core.helper.view_as_real, base);
    }
    if (to_complex && uncopy_dtype_size(to) == 2 * uncopy_dtype_size(from)) {
        return PyObject_CallOneArg(core.helper.view_as_complex, base);
    }
    return PyObject_CallMethodOneArg(base, core.name.view, core.dtypes[to]);
}

static PyObject *as_strided_slowly(PyObject *base, int64_t offset, const tensor_layout_t *layout)
{
    PyObject *sizes = core_tuple_from_int64(layout->sizes, layout->rank);
    PyObject *strides = core_tuple_from_int64(layout->strides, layout->rank);
    PyObject *position = PyLong_FromLongLong(offset);
    PyObject *view = NULL;
    if (sizes != NULL && strides != NULL && position != NULL) {
        view = PyObject_CallFunctionObjArgs(core.helper.as_strided, base, sizes, strides, position,
                                            NULL);
    }
    Py_XDECREF(position);
    Py_XDECREF(strides);
    Py_XDECREF(sizes);
    return view;
}

PyObject *tensor_view_dispatched(PyObject *base, int64_t offset_bytes,
                                 const tensor_layout_t *layout)
{
    tensor_dims_t dims;
    uncopy_argument_t read;
    if (tensor_read(base, "the base of view", 0, false, &read, dims) != 0) {
        return NULL;
    }
    int64_t offset = offset_bytes / (int64_t)uncopy_dtype_size(layout->dtype);
    if (read.dtype != layout->dtype) {
        PyObject *other = dispatched_dtype(base, read.dtype, layout->dtype);
        PyObject *view = other != NULL ? as_strided_slowly(other, offset, layout) : NULL;
        Py_XDECREF(other);
        return view;
    }
    bool starts_there = (char *)read.data == (char *)read.storage + offset_bytes;
    /* The borrowed call takes rank and offset from its base. */
    if (!torch_abi.has.as_strided || !starts_there || read.data == NULL ||
        read.rank != layout->rank) {
        return as_strided_slowly(base, offset, layout);
    }
    tensor_t view = {0};
    if (torch_abi.as_strided(torch_abi_handle(base), layout->sizes, layout->strides,
                             &view.handle) != 0) {
        torch_abi_raise("no view");
        return NULL;
    }
    PyObject *object = tensor_object(&view);
    if (object == NULL) {
        tensor_drop(&view);
    }
    return object;
}

void tensor_drop(tensor_t *tensor)
{
    if (tensor->handle != NULL) {
        torch_abi.delete_tensor(tensor->handle);
        tensor->handle = NULL;
    }
    Py_CLEAR(tensor->object);
}

bool tensor_same_sizes(int32_t rank, const int64_t *sizes, int32_t other_rank,
                       const int64_t *other_sizes)
{
    return rank == other_rank &&
           (rank == 0 || memcmp(sizes, other_sizes, (size_t)rank * sizeof(*sizes)) == 0);
}

bool tensor_same_strides(int32_t rank, const int64_t *sizes, const int64_t *strides,
                         const int64_t *other_strides)
{
    bool is_same = true;
    for (int32_t i = 0; i < rank; i++) {
        if (sizes[i] == 0) {
            return true;
        }
        is_same &= sizes[i] == 1 || strides[i] == other_strides[i];
    }
    return is_same;
}

tensor_t *tensor_table_at(tensor_table_t *table, uint32_t index)
{
    if (index >= table->capacity) {
        if (index > UINT32_MAX / 4) {
            return NULL;
        }
        uint32_t capacity = index * 2 + 8;
        tensor_t *items = malloc(capacity * sizeof(*items));
        if (items == NULL) {
            return NULL;
        }
        if (table->num > 0) {
            memcpy(items, table->items, table->num * sizeof(*items));
        }
        if (!table->is_inline) {
            free(table->items);
        }
        table->is_inline = false;
        table->items = items;
        table->capacity = capacity;
    }
    if (index >= table->num) {
        memset(table->items + table->num, 0, (index + 1 - table->num) * sizeof(*table->items));
        table->num = index + 1;
    }
    return &table->items[index];
}

void tensor_table_drop(tensor_table_t *table)
{
    for (uint32_t i = 0; i < table->num; i++) {
        tensor_drop(&table->items[i]);
    }
    table->num = 0;
    if (!table->is_inline) {
        free(table->items);
        table->items = NULL;
        table->capacity = 0;
    }
}
