/* What is borrowed of PyTorch's binary interface: symbols of its C ABI, three exported C++
 * functions, and three layouts. Each is probed once on real tensors before it is used; where a
 * probe fails, its flag stays false and the callers take public Python routes.
 *
 * A handle is a pointer to an at::Tensor, which is one pointer to a TensorImpl. The handle of a
 * Python tensor lies in the object itself, right after the object's head.
 *
 * Owner: the process. Threads: written by torch_abi_initialize, read only afterwards. The calls do
 * not need the GIL except wrap. */
#ifndef UNCOPY_EXT_TORCH_ABI_H
#define UNCOPY_EXT_TORCH_ABI_H

#include "state.h"

/* Borrowed functions: SYMBOL(field, exported name, return type, parameters). A C ABI call returns 0
 * on success. */
#define TORCH_SYMBOLS(SYMBOL)                                                                      \
    SYMBOL(get_dim, "aoti_torch_get_dim", int32_t, (void *, int64_t *))                            \
    SYMBOL(get_sizes, "aoti_torch_get_sizes", int32_t, (void *, int64_t **))                       \
    SYMBOL(get_strides, "aoti_torch_get_strides", int32_t, (void *, int64_t **))                   \
    SYMBOL(get_storage_offset, "aoti_torch_get_storage_offset", int32_t, (void *, int64_t *))      \
    SYMBOL(get_storage_size, "aoti_torch_get_storage_size", int32_t, (void *, int64_t *))          \
    SYMBOL(get_dtype, "aoti_torch_get_dtype", int32_t, (void *, int32_t *))                        \
    SYMBOL(get_data_ptr, "aoti_torch_get_data_ptr", int32_t, (void *, void **))                    \
    SYMBOL(get_const_data_ptr, "torch_get_const_data_ptr", int32_t, (void *, const void **))       \
    SYMBOL(get_mutable_data_ptr, "torch_get_mutable_data_ptr", int32_t, (void *, void **))         \
    SYMBOL(delete_tensor, "aoti_torch_delete_tensor_object", int32_t, (void *))                    \
    SYMBOL(empty_strided, "aoti_torch_empty_strided", int32_t,                                     \
           (int64_t, const int64_t *, const int64_t *, int32_t, int32_t, int32_t, void **))        \
    SYMBOL(reinterpret, "aoti_torch__reinterpret_tensor", int32_t,                                 \
           (void *, int64_t, const int64_t *, const int64_t *, int64_t, void **))                  \
    SYMBOL(alloc_from_pool, "aoti_torch__alloc_from_pool", int32_t,                                \
           (void *, int64_t, int32_t, int64_t, const int64_t *, const int64_t *, void **))         \
    SYMBOL(as_strided, "aoti_torch_as_strided", int32_t,                                           \
           (void *, const int64_t *, const int64_t *, void **))                                    \
    SYMBOL(mm_out, "aoti_torch_cpu_mm_out", int32_t, (void *, void *, void *))                     \
    SYMBOL(bmm_out, "aoti_torch_cpu_bmm_out", int32_t, (void *, void *, void *))                   \
    SYMBOL(from_blob, "torch_from_blob", int32_t,                                                  \
           (void *, int64_t, const int64_t *, const int64_t *, int64_t, int32_t, int32_t, int32_t, \
            void **, int32_t, const uint8_t *, int64_t, void (*)(void *, void *), void *))         \
    SYMBOL(get_num_threads, "torch_get_num_threads", int32_t, (uint32_t *))                        \
    SYMBOL(exception_what, "torch_exception_get_what_without_backtrace", const char *, (void))     \
    SYMBOL(grad_mode_is_enabled, "aoti_torch_grad_mode_is_enabled", bool, (void))                  \
    SYMBOL(grad_mode_set_enabled, "aoti_torch_grad_mode_set_enabled", void, (bool))                \
    SYMBOL(inference_mode_is_enabled, "_ZN3c1013InferenceMode10is_enabledEv", bool, (void))        \
    SYMBOL(bump_version, "_ZN5torch8autograd4impl12bump_versionERKN2at6TensorE", void, (void *))   \
    SYMBOL(wrap, "_Z16THPVariable_WrapRKN2at10TensorBaseE", PyObject *, (void *))

/* What is probed: PROBE(name, needs, what it stands for). Order is the order of probing. */
#define TORCH_PROBES(PROBE)                                                         \
    PROBE(handle, "the handle inside a tensor object, and the getters of metadata") \
    PROBE(key_set, "the dispatch key set inside a TensorImpl")                      \
    PROBE(data_pointers, "data pointers that tell reading from writing")            \
    PROBE(autograd_meta, "the autograd metadata pointer inside a TensorImpl")       \
    PROBE(bump_version, "increase of a version counter")                            \
    PROBE(grad_mode, "whether grad mode is on")                                     \
    PROBE(inference_mode, "whether inference mode is on")                           \
    PROBE(wrap, "tensor object of a handle")                                        \
    PROBE(empty_strided, "new tensors")                                             \
    PROBE(view, "views that share a storage, of the same and of another dtype")     \
    PROBE(as_strided, "views with autograd metadata")                               \
    PROBE(matmul, "matrix products into a given tensor")                            \
    PROBE(from_blob, "tensors over memory of others")                               \
    PROBE(num_threads, "the number of threads that PyTorch uses")

typedef struct torch_abi {
#define SYMBOL(field, text, result, parameters) result(*field) parameters;
    TORCH_SYMBOLS(SYMBOL)
#undef SYMBOL
    struct {
#define PROBE(name, words) bool name;
        TORCH_PROBES(PROBE)
#undef PROBE
    } has;
    size_t key_set_offset;          /* in a TensorImpl */
    uint64_t key_set_allowed;       /* bits that an ordinary strided CPU tensor may have */
    uint64_t key_set_required;      /* bits that every such tensor has */
    uint64_t key_set_normal;        /* bits that only tensors made outside inference mode have */
    size_t autograd_meta_offset;    /* in a TensorImpl; NULL there: requires no grad */
    int32_t codes[CORE_NUM_DTYPES]; /* torch's ScalarType by our number */
    int8_t dtypes[64];              /* ours by torch's; -1 for none */
} torch_abi_t;

extern torch_abi_t torch_abi;

/* Device type and layout numbers of PyTorch: CPU and strided are 0; index -1 is "the only one". */
enum { TORCH_CPU = 0, TORCH_CPU_INDEX = -1, TORCH_STRIDED = 0 };

/* Finds symbols in the loaded library at path and probes. forced_off: a set of names; "all" stands
 * for every one. Returns a new dict name -> bool. */
PyObject *torch_abi_initialize(const char *path, PyObject *forced_off);

static inline void *torch_abi_handle(PyObject *tensor)
{
    return (char *)tensor + sizeof(PyObject);
}

static inline uint64_t torch_abi_word(void *handle, size_t offset)
{
    uint64_t word;
    __builtin_memcpy(&word, *(char **)handle + offset, sizeof(word));
    return word;
}

/* Raises RuntimeError with the words of the last failed call; returns -1. */
int torch_abi_raise(const char *what);

#endif
