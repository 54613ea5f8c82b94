/* Tensors over memory that someone else owns. The fast route gives PyTorch a deleter; the slow one
 * hands torch.frombuffer an object with the buffer protocol, which keeps the owner. */
#include "tensor.h"

typedef struct bytes_object {
    PyObject_HEAD void *address;
    Py_ssize_t size;
    PyObject *owner;
} bytes_object_t;

static int bytes_get_buffer(PyObject *self, Py_buffer *view, int flags)
{
    bytes_object_t *bytes = (bytes_object_t *)self;
    return PyBuffer_FillInfo(view, self, bytes->address, bytes->size, 0, flags);
}

static void bytes_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Py_CLEAR(((bytes_object_t *)self)->owner);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyType_Slot bytes_slots[] = {
    {Py_tp_dealloc, (void *)(uintptr_t)bytes_dealloc},
    {Py_bf_getbuffer, (void *)(uintptr_t)bytes_get_buffer},
    {0, NULL},
};

static PyType_Spec bytes_spec = {
    .name = "uncopy._core.Bytes",
    .basicsize = sizeof(bytes_object_t),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = bytes_slots,
};

PyTypeObject *tensor_bytes_type_create(void)
{
    return (PyTypeObject *)PyType_FromSpec(&bytes_spec);
}

/* Runs when PyTorch frees the storage, on any thread. */
static void release_owner(void *data, void *owner)
{
    (void)data;
    if (owner == NULL || !Py_IsInitialized()) {
        return;
    }
    PyGILState_STATE state = PyGILState_Ensure();
    Py_DECREF((PyObject *)owner);
    PyGILState_Release(state);
}

/* Bytes from the first element to behind the last; 0 without elements. */
static int64_t extent_bytes(const tensor_layout_t *layout)
{
    int64_t last = 0;
    for (int32_t i = 0; i < layout->rank; i++) {
        if (layout->sizes[i] == 0) {
            return 0;
        }
        last += (layout->sizes[i] - 1) * layout->strides[i];
    }
    return (last + 1) * (int64_t)uncopy_dtype_size(layout->dtype);
}

static PyObject *blob_quickly(void *address, const tensor_layout_t *layout, PyObject *owner)
{
    tensor_t tensor = {0};
    Py_XINCREF(owner);
    if (torch_abi.from_blob(address, layout->rank, layout->sizes, layout->strides, 0,
                            torch_abi.codes[layout->dtype], TORCH_CPU, TORCH_CPU_INDEX,
                            &tensor.handle, TORCH_STRIDED, NULL, 0, release_owner, owner) != 0) {
        Py_XDECREF(owner);
        torch_abi_raise("no tensor over these bytes");
        return NULL;
    }
    PyObject *object = tensor_object(&tensor);
    if (object == NULL) {
        tensor_drop(&tensor);
    }
    return object;
}

static PyObject *blob_slowly(void *address, int64_t size, PyObject *owner)
{
    bytes_object_t *bytes = PyObject_New(bytes_object_t, core.bytes_type);
    if (bytes == NULL) {
        return NULL;
    }
    bytes->address = address;
    bytes->size = (Py_ssize_t)size;
    bytes->owner = Py_XNewRef(owner);
    PyObject *arguments = PyTuple_Pack(1, bytes);
    PyObject *keywords = PyDict_New();
    PyObject *tensor = NULL;
    if (arguments != NULL && keywords != NULL &&
        PyDict_SetItem(keywords, core.name.dtype, core.dtypes[UNCOPY_DTYPE_U8]) == 0) {
        tensor = PyObject_Call(core.helper.frombuffer, arguments, keywords);
    }
    Py_XDECREF(keywords);
    Py_XDECREF(arguments);
    Py_DECREF(bytes);
    return tensor;
}

PyObject *tensor_from_blob(void *address, const tensor_layout_t *layout, PyObject *owner)
{
    int64_t size = extent_bytes(layout);
    tensor_t result = {0};
    if (size == 0) {
        return tensor_empty(layout, &result) == 0 ? tensor_object(&result) : NULL;
    }
    if (torch_abi.has.from_blob) {
        return blob_quickly(address, layout, owner);
    }
    tensor_t whole = {.object = blob_slowly(address, size, owner), .storage = address};
    if (whole.object == NULL) {
        return NULL;
    }
    int failed = tensor_view(&whole, 0, layout, &result);
    tensor_drop(&whole);
    return failed == 0 ? tensor_object(&result) : NULL;
}
