/* Memory and moves of a run, and the operands that its entries see. Invariants are in host.h.
 *
 * An operand's address says where in its storage a view begins, for every kind of base; tensors are
 * made once per call (arena: once per frame) and found by the operand's id. */
#include "host_internal.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Frames */

host_frame_t *host_frame_of(uncopy_frame_t *frame)
{
    void **slot = uncopy_frame_slot(frame);
    if (*slot == NULL) {
        *slot = calloc(1, sizeof(host_frame_t));
    }
    return *slot;
}

static void frame_release(void *self, uncopy_frame_t *frame)
{
    (void)self;
    void **slot = uncopy_frame_slot(frame);
    host_frame_t *held = *slot;
    if (held == NULL || !Py_IsInitialized()) {
        return;
    }
    *slot = NULL;
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    tensor_table_drop(&held->views);
    tensor_drop(&held->arena);
    PyErr_Restore(type, value, traceback);
    PyGILState_Release(state);
    free(held);
}

/* Calls */

void host_call_begin(host_call_t *call, function_object_t *function, PyObject *const *tensors,
                     const uncopy_argument_t *arguments, size_t num_arguments)
{
    memset(call, 0, offsetof(host_call_t, inline_bases));
    call->function = function;
    call->tensors = tensors;
    call->arguments = arguments;
    call->num_arguments = num_arguments;
    call->bases.items = call->inline_bases;
    call->bases.capacity = HOST_INLINE_BASES;
    call->bases.is_inline = true;
    call->views.items = call->inline_views;
    call->views.capacity = HOST_INLINE_VIEWS;
    call->views.is_inline = true;
}

void host_call_end(host_call_t *call)
{
    tensor_table_drop(&call->views);
    tensor_table_drop(&call->bases);
    tensor_table_drop(&call->works);
    free(call->touched);
    Py_XDECREF(call->error_type);
    Py_XDECREF(call->error_value);
    Py_XDECREF(call->error_traceback);
}

bool host_call_raise(host_call_t *call)
{
    if (call->error_type == NULL) {
        return false;
    }
    PyErr_Restore(call->error_type, call->error_value, call->error_traceback);
    call->error_type = call->error_value = call->error_traceback = NULL;
    return true;
}

uncopy_status_t host_keep_error(host_call_t *call)
{
    if (!PyErr_Occurred()) {
        PyErr_SetString(PyExc_SystemError, "an entry of the host failed without an exception");
    }
    if (call->error_type != NULL) {
        PyErr_Clear();
    } else {
        PyErr_Fetch(&call->error_type, &call->error_value, &call->error_traceback);
    }
    return uncopy_host_fail("an operation of the host raised an exception");
}

static uint32_t first_made_base(const host_call_t *call)
{
    return (uint32_t)(2 * call->num_arguments);
}

tensor_t *host_call_base(host_call_t *call, uint32_t base)
{
    uint32_t first = first_made_base(call);
    tensor_t *found = base >= first ? tensor_table_find(&call->bases, base - first) : NULL;
    if (found == NULL || !tensor_is_held(found)) {
        PyErr_Format(PyExc_RuntimeError, "memory block %u of a run is used before it is made",
                     base);
        return NULL;
    }
    return found;
}

void host_note_write(host_call_t *call, const uncopy_bound_t *bound)
{
    if (bound->kind != UNCOPY_BASE_ARGUMENT && bound->kind != UNCOPY_BASE_STORAGE) {
        return;
    }
    if (call->touched == NULL) {
        call->touched = calloc(call->num_arguments, 1);
    }
    if (call->touched == NULL) {
        call->touches_all = true;
    } else {
        call->touched[bound->argument] = 1;
    }
}

/* Operands */

bool host_is_callers(const host_call_t *call, const uncopy_bound_t *bound)
{
    if (bound->kind == UNCOPY_BASE_ARGUMENT) {
        return bound->is_whole != 0;
    }
    if (bound->kind != UNCOPY_BASE_STORAGE) {
        return false;
    }
    const uncopy_argument_t *argument = &call->arguments[bound->argument];
    return bound->data == argument->data && bound->dtype == argument->dtype &&
           tensor_same_sizes(bound->rank, bound->sizes, argument->rank, argument->sizes) &&
           tensor_same_strides(bound->rank, bound->sizes, bound->strides, argument->strides);
}

/* Where an operand's tensor is kept, and what it is a view of. */
typedef struct operand_place {
    tensor_t *place; /* filled already if it holds a tensor */
    tensor_t base;   /* borrowed */
} operand_place_t;

/* 0, -1: no such base is made, or no memory. No GIL needed. */
static int operand_locate(host_call_t *call, uncopy_frame_t *frame, const uncopy_bound_t *bound,
                          operand_place_t *out)
{
    host_frame_t *held;
    tensor_t *made;
    switch (bound->kind) {
    case UNCOPY_BASE_ARGUMENT:
    case UNCOPY_BASE_STORAGE:
        out->base = (tensor_t){.object = call->tensors[bound->argument],
                               .storage = call->arguments[bound->argument].storage};
        out->place = tensor_table_at(&call->views, bound->id);
        break;
    case UNCOPY_BASE_ARENA:
    case UNCOPY_BASE_CONSTANT:
        held = host_frame_of(frame);
        if (held == NULL) {
            return -1;
        }
        out->base = bound->kind == UNCOPY_BASE_ARENA ? held->arena : (tensor_t){0};
        out->place = tensor_table_at(&held->views, bound->id);
        break;
    case UNCOPY_BASE_OUTPUT:
    case UNCOPY_BASE_SCRATCH:
    case UNCOPY_BASE_MADE:
        made = tensor_table_find(&call->bases, bound->base - first_made_base(call));
        if (made == NULL || !tensor_is_held(made)) {
            return -1;
        }
        out->base = *made;
        out->place =
            bound->is_whole && made->is_whole ? made : tensor_table_at(&call->views, bound->id);
        break;
    default:
        return -1;
    }
    return out->place != NULL ? 0 : -1;
}

static int64_t operand_offset(const host_call_t *call, const uncopy_bound_t *bound,
                              const tensor_t *base)
{
    if (bound->data != NULL && base->storage != NULL) {
        return (char *)bound->data - base->storage;
    }
    int64_t start = 0;
    if (bound->kind == UNCOPY_BASE_ARGUMENT && base->storage != NULL) {
        start = (char *)call->arguments[bound->argument].data - base->storage;
    }
    return start + bound->offset_bytes;
}

void *host_operand_handle(host_call_t *call, uncopy_frame_t *frame, const uncopy_bound_t *bound)
{
    if (!torch_abi.has.view) {
        return NULL;
    }
    if (host_is_callers(call, bound)) {
        return torch_abi_handle(call->tensors[bound->argument]);
    }
    operand_place_t found;
    if (bound->kind == UNCOPY_BASE_CONSTANT || operand_locate(call, frame, bound, &found) != 0) {
        return NULL;
    }
    if (!tensor_is_held(found.place)) {
        tensor_layout_t layout = host_layout(bound);
        if (!tensor_view_quietly(&found.base, operand_offset(call, bound, &found.base), &layout,
                                 found.place)) {
            return NULL;
        }
        found.place->base = bound->base;
    }
    return tensor_handle(found.place);
}

/* Whether a frame's wrapper was made in inference mode and is used outside it, where PyTorch
 * refuses to write it. */
static bool wrapper_is_stale(const uncopy_bound_t *bound, tensor_t *place)
{
    if (bound->kind != UNCOPY_BASE_ARENA && bound->kind != UNCOPY_BASE_CONSTANT) {
        return false;
    }
    PyObject *object = tensor_object(place);
    return object != NULL && tensor_is_inference(object) == 1 && tensor_inference_mode_is_on() == 0;
}

PyObject *host_operand(host_call_t *call, uncopy_frame_t *frame, const uncopy_bound_t *bound)
{
    if (host_is_callers(call, bound)) {
        return call->tensors[bound->argument];
    }
    operand_place_t found;
    if (operand_locate(call, frame, bound, &found) != 0) {
        return PyErr_Format(PyExc_RuntimeError,
                            "operand %u of a run lies in memory block %u, which is not made",
                            bound->id, bound->base);
    }
    if (tensor_is_held(found.place) && wrapper_is_stale(bound, found.place)) {
        tensor_drop(found.place);
    }
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (tensor_is_held(found.place)) {
        return tensor_object(found.place);
    }
    tensor_layout_t layout = host_layout(bound);
    if (bound->kind == UNCOPY_BASE_CONSTANT) {
        found.place->object = tensor_from_blob(bound->data, &layout, NULL);
        return found.place->object;
    }
    if (tensor_view(&found.base, operand_offset(call, bound, &found.base), &layout, found.place) !=
        0) {
        return NULL;
    }
    found.place->base = bound->base;
    return tensor_object(found.place);
}

/* Memory */

static uncopy_status_t allocate_arena(host_call_t *call, uncopy_frame_t *frame,
                                      uncopy_bound_t *block)
{
    host_frame_t *held = host_frame_of(frame);
    if (held == NULL) {
        return uncopy_host_fail("no memory for a frame");
    }
    int64_t bytes = block->rank == 1 ? block->sizes[0] : 1;
    if (tensor_is_held(&held->arena) && held->arena_bytes >= bytes) {
        block->data = held->arena.storage;
        return UNCOPY_OK;
    }
    bool was_given;
    host_take_gil(call, &was_given);
    tensor_table_drop(&held->views);
    tensor_drop(&held->arena);
    tensor_layout_t layout = host_layout(block);
    uncopy_status_t status = UNCOPY_OK;
    if (tensor_empty(&layout, &held->arena) != 0) {
        status = host_keep_error(call);
    } else {
        held->arena_bytes = bytes;
        block->data = held->arena.storage;
    }
    host_give_gil(call, was_given);
    return status;
}

static uncopy_status_t allocate(void *self, uncopy_frame_t *frame, void *call_data,
                                uncopy_bound_t *block)
{
    (void)self;
    host_call_t *call = call_data;
    if (block->kind == UNCOPY_BASE_ARENA) {
        return allocate_arena(call, frame, block);
    }
    uint32_t first = first_made_base(call);
    tensor_t *made =
        block->base >= first ? tensor_table_at(&call->bases, block->base - first) : NULL;
    if (made == NULL) {
        return uncopy_host_fail("no memory for the blocks of a run");
    }
    tensor_layout_t layout = host_layout(block);
    if (!tensor_empty_quietly(&layout, made)) {
        bool was_given;
        host_take_gil(call, &was_given);
        int failed = tensor_empty(&layout, made);
        uncopy_status_t status = failed ? host_keep_error(call) : UNCOPY_OK;
        host_give_gil(call, was_given);
        if (status != UNCOPY_OK) {
            return status;
        }
    }
    made->base = block->base;
    made->is_whole = true;
    made->start = made->storage;
    block->data = made->storage;
    return UNCOPY_OK;
}

static void drop_base(host_call_t *call, tensor_t *made, uint32_t base)
{
    for (uint32_t i = 0; i < call->views.num; i++) {
        if (call->views.items[i].base == base) {
            tensor_drop(&call->views.items[i]);
        }
    }
    tensor_drop(made);
}

/* A work may write memory that it does not keep alive; then all stays until the call ends. */
static bool works_are_in_flight(const host_call_t *call)
{
    for (uint32_t i = 0; i < call->works.num; i++) {
        if (call->works.items[i].object != NULL) {
            return true;
        }
    }
    return false;
}

static void release(void *self, uncopy_frame_t *frame, void *call_data, uint32_t base)
{
    (void)self;
    (void)frame;
    host_call_t *call = call_data;
    uint32_t first = first_made_base(call);
    tensor_t *made = base >= first ? tensor_table_find(&call->bases, base - first) : NULL;
    if (made == NULL || works_are_in_flight(call)) {
        return;
    }
    bool was_given;
    host_take_gil(call, &was_given);
    drop_base(call, made, base);
    host_give_gil(call, was_given);
}

/* Moves and products */

static bool matmul_by_handles(host_call_t *call, uncopy_frame_t *frame,
                              const uncopy_bound_t *result, const uncopy_bound_t *a,
                              const uncopy_bound_t *b, int32_t *out_failed)
{
    if (!torch_abi.has.matmul) {
        return false;
    }
    void *handles[3] = {host_operand_handle(call, frame, result),
                        host_operand_handle(call, frame, a), host_operand_handle(call, frame, b)};
    if (handles[0] == NULL || handles[1] == NULL || handles[2] == NULL) {
        return false;
    }
    *out_failed = result->rank == 2 ? torch_abi.mm_out(handles[0], handles[1], handles[2])
                                    : torch_abi.bmm_out(handles[0], handles[1], handles[2]);
    return true;
}

static int matmul_by_objects(host_call_t *call, uncopy_frame_t *frame, const uncopy_bound_t *result,
                             const uncopy_bound_t *a, const uncopy_bound_t *b)
{
    PyObject *operands[2] = {host_operand(call, frame, a), NULL};
    operands[1] = operands[0] != NULL ? host_operand(call, frame, b) : NULL;
    PyObject *out = operands[1] != NULL ? host_operand(call, frame, result) : NULL;
    PyObject *arguments = out != NULL ? PyTuple_Pack(2, operands[0], operands[1]) : NULL;
    PyObject *keywords = arguments != NULL ? PyDict_New() : NULL;
    PyObject *returned = NULL;
    if (keywords != NULL && PyDict_SetItem(keywords, core.name.out, out) == 0) {
        returned = PyObject_Call(core.helper.matmul_out, arguments, keywords);
    }
    Py_XDECREF(keywords);
    Py_XDECREF(arguments);
    Py_XDECREF(returned);
    return returned != NULL ? 0 : -1;
}

static uncopy_status_t matmul(void *self, uncopy_frame_t *frame, void *call_data,
                              const uncopy_bound_t *result, const uncopy_bound_t *a,
                              const uncopy_bound_t *b, int *out_done)
{
    (void)self;
    host_call_t *call = call_data;
    *out_done = 0;
    if ((result->rank != 2 && result->rank != 3) || a->rank != result->rank ||
        b->rank != result->rank) {
        return UNCOPY_OK;
    }
    call->has_acted = true;
    int32_t failed = 0;
    uncopy_status_t status = UNCOPY_OK;
    bool is_done = matmul_by_handles(call, frame, result, a, b, &failed);
    if (!is_done || failed) {
        bool was_given;
        host_take_gil(call, &was_given);
        if (is_done ? torch_abi_raise("matmul") : matmul_by_objects(call, frame, result, a, b)) {
            status = host_keep_error(call);
        }
        host_give_gil(call, was_given);
    }
    host_note_write(call, result);
    *out_done = status == UNCOPY_OK;
    return status;
}

static uncopy_status_t copy(void *self, uncopy_frame_t *frame, void *call_data,
                            const uncopy_bound_t *destination, const uncopy_bound_t *source)
{
    (void)self;
    host_call_t *call = call_data;
    call->has_acted = true;
    bool was_given;
    host_take_gil(call, &was_given);
    PyObject *from = host_operand(call, frame, source);
    PyObject *to = from != NULL ? host_operand(call, frame, destination) : NULL;
    PyObject *returned = to != NULL ? PyObject_CallMethodOneArg(to, core.name.copy_, from) : NULL;
    Py_XDECREF(returned);
    uncopy_status_t status = returned != NULL ? UNCOPY_OK : host_keep_error(call);
    if (!host_is_callers(call, destination)) {
        host_note_write(call, destination);
    }
    host_give_gil(call, was_given);
    return status;
}

static uncopy_status_t fill(void *self, uncopy_frame_t *frame, void *call_data,
                            const uncopy_bound_t *destination, const uncopy_operand_t *number)
{
    (void)self;
    host_call_t *call = call_data;
    call->has_acted = true;
    bool was_given;
    host_take_gil(call, &was_given);
    PyObject *value = number->is_integer ? PyLong_FromLongLong(number->integer)
                                         : PyFloat_FromDouble(number->number);
    PyObject *to = value != NULL ? host_operand(call, frame, destination) : NULL;
    PyObject *returned = to != NULL ? PyObject_CallMethodOneArg(to, core.name.fill_, value) : NULL;
    Py_XDECREF(value);
    Py_XDECREF(returned);
    uncopy_status_t status = returned != NULL ? UNCOPY_OK : host_keep_error(call);
    if (!host_is_callers(call, destination)) {
        host_note_write(call, destination);
    }
    host_give_gil(call, was_given);
    return status;
}

static void end(void *self, uncopy_frame_t *frame, void *call_data, int has_failed)
{
    (void)self;
    (void)frame;
    host_call_t *call = call_data;
    if (call->works.num == 0) {
        return;
    }
    bool was_given;
    host_take_gil(call, &was_given);
    host_finish_works(call, has_failed != 0);
    host_give_gil(call, was_given);
}

/* Threads that PyTorch uses, 1 when it does not say. */
static int num_threads(void)
{
    PyObject *number = PyObject_CallNoArgs(core.helper.get_num_threads);
    long threads = number != NULL ? PyLong_AsLong(number) : 0;
    Py_XDECREF(number);
    if (PyErr_Occurred() != NULL) {
        PyErr_Clear();
        return 1;
    }
    return threads > 0 && threads < INT_MAX ? (int)threads : 1;
}

/* Of a run: asked at each, since PyTorch's number may be set between calls; without the borrowed
 * call, that of when the function was made. No GIL needed. */
static int run_threads(void *self)
{
    uint32_t number = 0;
    if (!torch_abi.has.num_threads) {
        return ((function_object_t *)self)->num_threads;
    }
    return torch_abi.get_num_threads(&number) == 0 && number <= INT_MAX ? (int)number : 1;
}

uncopy_host_t host_table(function_object_t *function)
{
    function->num_threads = torch_abi.has.num_threads ? 0 : num_threads();
    return (uncopy_host_t){
        .self = function,
        .threads = run_threads,
        .allocate = allocate,
        .release = release,
        .call = host_enter_call,
        .matmul = matmul,
        .copy = copy,
        .fill = fill,
        .find_comm = host_find_comm,
        .is_interrupted = host_is_interrupted,
        .collective = host_enter_collective,
        .fence = host_enter_fence,
        .end = end,
        .frame_release = frame_release,
    };
}
