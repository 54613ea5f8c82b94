/* Tensors of PyTorch as the extension holds them, made and read by the borrowed interface or, where
 * that is off, by public Python calls.
 *
 * Threads: functions need the GIL unless their comment says otherwise. */
#ifndef UNCOPY_EXT_TENSOR_H
#define UNCOPY_EXT_TENSOR_H

#include "state.h"
#include "torch_abi.h"

/* One tensor held by a run or a frame. handle is owned while object is NULL; once there is an
 * object, the handle lies in it. All NULL: nothing is held. */
typedef struct tensor {
    void *handle;
    PyObject *object;
    char *storage; /* address of the storage's first byte */
    char *start;   /* of a base: its address */
    uint32_t base; /* number of the base it lies in */
    bool is_whole; /* has the layout of its base's first view */
} tensor_t;

/* A layout in numbers. */
typedef struct tensor_layout {
    uncopy_dtype_t dtype;
    int32_t rank;
    const int64_t *sizes;
    const int64_t *strides;
} tensor_layout_t;

/* Room for the sizes and strides of one tensor on the slow route. */
typedef int64_t tensor_dims_t[2 * UNCOPY_MAX_RANK];

/* Reads what a tensor object is. what and number name it in errors ("argument", 3). is_written: its
 * bytes will be written, so a copy-on-write storage is made its own. dims is used on the slow route
 * only (NULL is allowed while torch_abi.has.handle). Returns -1 with an exception for anything but
 * a plain strided CPU tensor. */
int tensor_read(PyObject *object, const char *what, size_t number, bool is_written,
                uncopy_argument_t *out, int64_t *dims);

/* 1, 0, or -1 with an exception. An inference tensor is one made in inference mode. */
int tensor_is_inference(PyObject *object);
int tensor_requires_grad(PyObject *object);
int tensor_inference_mode_is_on(void);

/* PyTorch's grad mode of this thread: 1, 0, or -1 with an exception; 0, or -1 with an exception. */
int grad_mode_is_on(void);
int grad_mode_set(bool is_on);

/* Increases the version counter unless the tensor has none. */
int tensor_bump_version(PyObject *object);

static inline bool tensor_is_held(const tensor_t *tensor)
{
    return tensor->handle != NULL || tensor->object != NULL;
}

/* The handle, NULL where handles are off. No GIL needed. */
static inline void *tensor_handle(const tensor_t *tensor)
{
    if (tensor->object != NULL) {
        return torch_abi.has.handle ? torch_abi_handle(tensor->object) : NULL;
    }
    return tensor->handle;
}

/* The Python object, made on first use; borrowed. */
PyObject *tensor_object(tensor_t *tensor);

/* A new tensor as torch.empty_strided makes it. */
int tensor_empty(const tensor_layout_t *layout, tensor_t *out);

/* The same by handle alone, without the GIL; false where that is off or failed. */
bool tensor_empty_quietly(const tensor_layout_t *layout, tensor_t *out);

/* A view of base's storage without autograd metadata. offset_bytes counts from the storage's first
 * byte. */
int tensor_view(const tensor_t *base, int64_t offset_bytes, const tensor_layout_t *layout,
                tensor_t *out);
bool tensor_view_quietly(const tensor_t *base, int64_t offset_bytes, const tensor_layout_t *layout,
                         tensor_t *out);

/* A view with eager's autograd metadata: through the dispatcher. New reference. */
PyObject *tensor_view_dispatched(PyObject *base, int64_t offset_bytes,
                                 const tensor_layout_t *layout);

/* Gives up what is held. Needs the GIL only if there is an object. */
void tensor_drop(tensor_t *tensor);

/* Tensor over size bytes at address; owner (NULL for none) is kept as long as its storage. */
PyObject *tensor_from_blob(void *address, const tensor_layout_t *layout, PyObject *owner);

/* Type of the buffer object behind the slow route of tensor_from_blob. */
PyTypeObject *tensor_bytes_type_create(void);

/* Whether two layouts name the same elements in the same places: sizes are equal, and strides where
 * they matter. */
bool tensor_same_sizes(int32_t rank, const int64_t *sizes, int32_t other_rank,
                       const int64_t *other_sizes);
bool tensor_same_strides(int32_t rank, const int64_t *sizes, const int64_t *strides,
                         const int64_t *other_strides);

/* Tensors by small number. Pointers that tensor_table_at gives are good until its next call. */
typedef struct tensor_table {
    tensor_t *items;
    uint32_t num;
    uint32_t capacity;
    bool is_inline; /* items are the holder's, not allocated */
} tensor_table_t;

/* The place of index if it is in use, else NULL. */
static inline tensor_t *tensor_table_find(const tensor_table_t *table, uint32_t index)
{
    return index < table->num ? &table->items[index] : NULL;
}

/* The place of index, made empty on first use; NULL without memory. No GIL needed. */
tensor_t *tensor_table_at(tensor_table_t *table, uint32_t index);
void tensor_table_drop(tensor_table_t *table);

#endif
