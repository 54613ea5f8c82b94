/* Operations and collectives that PyTorch runs: a recipe is filled with operands, called, and its
 * results are checked against the plan.
 *
 * A result in another layout than planned is copied into the planned one and counted; other sizes,
 * another dtype, or an alias that is none are errors. */
#include "exchange.h"
#include "host_internal.h"

#include <stdlib.h>
#include <string.h>

/* Arguments of one call that live on the stack; longer recipes use the heap. */
enum { INLINE_ITEMS = 24 };

recipe_object_t *host_recipe(const host_call_t *call, int64_t host_id)
{
    PyObject *recipes = call->function->recipes;
    if (host_id < 0 || host_id >= PyTuple_GET_SIZE(recipes)) {
        PyErr_Format(PyExc_RuntimeError, "there is no recipe %lld; the function has %zd",
                     (long long)host_id, PyTuple_GET_SIZE(recipes));
        return NULL;
    }
    return (recipe_object_t *)PyTuple_GET_ITEM(recipes, (Py_ssize_t)host_id);
}

/* What fills the slots of one call. */
typedef struct operands {
    host_call_t *call;
    uncopy_frame_t *frame;
    const uncopy_call_t *operation;
} operands_t;

/* Operand of a slot, borrowed. */
static PyObject *slot_operand(const operands_t *from, Py_ssize_t slot)
{
    size_t index = (size_t)slot;
    const uncopy_call_t *operation = from->operation;
    if (index < operation->num_reads) {
        return host_operand(from->call, from->frame, &operation->reads[index]);
    }
    index -= operation->num_reads;
    if (index < operation->num_writes) {
        return host_operand(from->call, from->frame, &operation->writes[index]);
    }
    return PyErr_Format(PyExc_RuntimeError, "%s has no operand %zd; it reads %zu and writes %zu",
                        operation->target != NULL ? operation->target : "an operation", slot,
                        operation->num_reads, operation->num_writes);
}

/* Number of the program at this call's sizes; new reference. */
static PyObject *slot_number(const operands_t *from, Py_ssize_t number)
{
    if ((size_t)number >= from->operation->num_numbers) {
        return PyErr_Format(PyExc_RuntimeError, "a recipe names number %zd of %zu", number,
                            from->operation->num_numbers);
    }
    return PyLong_FromLongLong(from->operation->numbers[number]);
}

static PyObject *fill_nested(const operands_t *from, PyObject *value);

static PyObject *fill_sequence(const operands_t *from, PyObject *value)
{
    Py_ssize_t count = PySequence_Fast_GET_SIZE(value);
    bool is_list = PyList_Check(value);
    PyObject *filled = is_list ? PyList_New(count) : PyTuple_New(count);
    for (Py_ssize_t i = 0; filled != NULL && i < count; i++) {
        PyObject *element = fill_nested(from, PySequence_Fast_GET_ITEM(value, i));
        if (element == NULL) {
            Py_CLEAR(filled);
        } else if (is_list) {
            PyList_SET_ITEM(filled, i, element);
        } else {
            PyTuple_SET_ITEM(filled, i, element);
        }
    }
    return filled;
}

static PyObject *fill_dict(const operands_t *from, PyObject *value)
{
    PyObject *filled = PyDict_New();
    PyObject *key, *element;
    Py_ssize_t position = 0;
    while (filled != NULL && PyDict_Next(value, &position, &key, &element)) {
        PyObject *made = fill_nested(from, element);
        if (made == NULL || PyDict_SetItem(filled, key, made) != 0) {
            Py_CLEAR(filled);
        }
        Py_XDECREF(made);
    }
    return filled;
}

/* A container with its slots replaced; new reference. */
static PyObject *fill_nested(const operands_t *from, PyObject *value)
{
    if (Py_TYPE(value) == core.slot_type) {
        const slot_object_t *slot = (slot_object_t *)value;
        return slot->is_number ? slot_number(from, slot->index)
                               : Py_XNewRef(slot_operand(from, slot->index));
    }
    if (PyTuple_Check(value) || PyList_Check(value)) {
        return fill_sequence(from, value);
    }
    return PyDict_Check(value) ? fill_dict(from, value) : Py_NewRef(value);
}

/* Fills items[1..]; items[0] is left free for PY_VECTORCALL_ARGUMENTS_OFFSET. Each is a new
 * reference. *out_filled is how many were, on failure too. */
static int fill_items(const operands_t *from, const recipe_object_t *recipe, PyObject **items,
                      Py_ssize_t *out_filled)
{
    for (*out_filled = 0; *out_filled < recipe->num_items; (*out_filled)++) {
        const recipe_item_t *item = &recipe->items[*out_filled];
        PyObject *value;
        if (item->slot >= 0) {
            value = Py_XNewRef(slot_operand(from, item->slot));
        } else if (item->slot <= RECIPE_NUMBER) {
            value = slot_number(from, RECIPE_NUMBER - item->slot);
        } else if (item->slot == RECIPE_NESTED) {
            value = fill_nested(from, item->value);
        } else {
            value = Py_NewRef(item->value);
        }
        if (value == NULL) {
            return -1;
        }
        items[1 + *out_filled] = value;
    }
    return 0;
}

/* Calls a recipe, with out= where out is not NULL; new reference. */
static PyObject *recipe_call(const operands_t *from, const recipe_object_t *recipe, PyObject *out)
{
    PyObject *inline_items[INLINE_ITEMS];
    PyObject **items = inline_items;
    if (recipe->num_items + 2 > INLINE_ITEMS) {
        items = malloc((size_t)(recipe->num_items + 2) * sizeof(*items));
        if (items == NULL) {
            return PyErr_NoMemory();
        }
    }
    Py_ssize_t filled = 0;
    PyObject *returned = NULL;
    if (fill_items(from, recipe, items, &filled) == 0) {
        items[1 + recipe->num_items] = out;
        size_t num_positional = (size_t)recipe->num_positional | PY_VECTORCALL_ARGUMENTS_OFFSET;
        returned =
            PyObject_Vectorcall(out != NULL ? recipe->out : recipe->call, items + 1, num_positional,
                                out != NULL ? recipe->names_out : recipe->names);
    }
    for (Py_ssize_t i = 0; i < filled; i++) {
        Py_DECREF(items[1 + i]);
    }
    if (items != inline_items) {
        free(items);
    }
    return returned;
}

/* Element number *index of a flattened result, borrowed; counts *index down on the way. */
static PyObject *flat_at(PyObject *value, Py_ssize_t *index)
{
    if (!PyTuple_Check(value) && !PyList_Check(value)) {
        return (*index)-- == 0 ? value : NULL;
    }
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value); i++) {
        PyObject *found = flat_at(PySequence_Fast_GET_ITEM(value, i), index);
        if (found != NULL) {
            return found;
        }
    }
    return NULL;
}

static const char *target_of(const uncopy_call_t *operation)
{
    return operation->target != NULL ? operation->target : "an operation of the host";
}

static void result_differs(const uncopy_call_t *operation, size_t number,
                           const uncopy_argument_t *got, const uncopy_bound_t *planned)
{
    PyObject *got_sizes = core_tuple_from_int64(got->sizes, got->rank);
    PyObject *planned_sizes = core_tuple_from_int64(planned->sizes, planned->rank);
    if (got_sizes != NULL && planned_sizes != NULL) {
        PyErr_Format(PyExc_RuntimeError, "%s (%s:%d) returned result %zu as %s%R; planned was %s%R",
                     target_of(operation), operation->file != NULL ? operation->file : "?",
                     operation->line, number, uncopy_dtype_name(got->dtype), got_sizes,
                     uncopy_dtype_name(planned->dtype), planned_sizes);
    }
    Py_XDECREF(got_sizes);
    Py_XDECREF(planned_sizes);
}

/* A copy of object in the planned layout; new reference. */
static PyObject *copy_to_layout(host_call_t *call, PyObject *object, const uncopy_bound_t *planned)
{
    tensor_layout_t layout = host_layout(planned);
    tensor_t made = {0};
    PyObject *source = PyObject_CallMethodNoArgs(object, core.name.detach);
    PyObject *returned = NULL;
    if (source != NULL && tensor_empty(&layout, &made) == 0 && tensor_object(&made) != NULL) {
        returned = PyObject_CallMethodOneArg(made.object, core.name.copy_, source);
    }
    Py_XDECREF(source);
    if (returned == NULL) {
        tensor_drop(&made);
        return NULL;
    }
    Py_DECREF(returned);
    int64_t bytes = (int64_t)uncopy_dtype_size(planned->dtype);
    for (int32_t i = 0; i < planned->rank; i++) {
        bytes *= planned->sizes[i];
    }
    call->function->layout_copies++;
    call->function->layout_bytes += bytes;
    return made.object;
}

/* Bits of conjugation and negation made real: PyTorch copies. New reference. */
static PyObject *resolve_bits(PyObject *object)
{
    PyObject *real = PyObject_CallMethodNoArgs(object, core.name.resolve_conj);
    PyObject *resolved =
        real != NULL ? PyObject_CallMethodNoArgs(real, core.name.resolve_neg) : NULL;
    Py_XDECREF(real);
    return resolved;
}

/* Reads a result, resolving what a plan cannot hold; *object is replaced by a new reference
 * then. */
static int read_result(PyObject **object, size_t number, uncopy_argument_t *out, int64_t *dims)
{
    if (tensor_read(*object, "result", number, true, out, dims) == 0) {
        return 0;
    }
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *resolved = resolve_bits(*object);
    if (resolved == NULL || resolved == *object) {
        Py_XDECREF(resolved);
        PyErr_Restore(type, value, traceback);
        return -1;
    }
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    Py_SETREF(*object, resolved);
    return tensor_read(*object, "result", number, true, out, dims);
}

/* Keeps a made result by its base; steals object. */
static int keep_made(host_call_t *call, PyObject *object, const uncopy_argument_t *read,
                     uncopy_bound_t *planned)
{
    uint32_t first = (uint32_t)(2 * call->num_arguments);
    tensor_t *place = tensor_table_at(&call->bases, planned->base - first);
    if (place != NULL && tensor_is_held(place)) {
        place = tensor_table_at(&call->views, planned->id);
    }
    if (place == NULL) {
        Py_DECREF(object);
        PyErr_NoMemory();
        return -1;
    }
    tensor_drop(place);
    *place =
        (tensor_t){.object = object,
                   .storage = read->storage,
                   .start = read->data != NULL ? (char *)read->data - planned->offset_bytes : NULL,
                   .base = planned->base,
                   .is_whole = planned->is_whole != 0};
    planned->data = read->data;
    return 0;
}

static int check_alias(const uncopy_call_t *operation, size_t number, const uncopy_argument_t *read,
                       uncopy_bound_t *planned)
{
    bool is_elsewhere = planned->data != NULL && read->data != NULL && planned->data != read->data;
    if (is_elsewhere) {
        PyErr_Format(
            PyExc_RuntimeError,
            "%s (%s:%d) returned result %zu at byte distance %zd from where it was planned",
            target_of(operation), operation->file != NULL ? operation->file : "?", operation->line,
            number, (Py_ssize_t)((intptr_t)read->data - (intptr_t)planned->data));
        return -1;
    }
    if (planned->data == NULL) {
        planned->data = read->data;
    }
    return 0;
}

/* Checks result number against the plan and keeps it. object is borrowed. */
static int take_result(host_call_t *call, const uncopy_call_t *operation, size_t number,
                       PyObject *object)
{
    uncopy_bound_t *planned = &operation->results[number];
    if (object == NULL || !core_is_tensor(object)) {
        PyErr_Format(PyExc_TypeError, "%s returned result %zu as %s; planned was a tensor",
                     target_of(operation), number,
                     object != NULL ? Py_TYPE(object)->tp_name : "nothing");
        return -1;
    }
    tensor_dims_t dims;
    uncopy_argument_t read;
    Py_INCREF(object);
    if (read_result(&object, number, &read, dims) != 0) {
        Py_DECREF(object);
        return -1;
    }
    bool is_made = planned->kind == UNCOPY_BASE_MADE;
    bool same_strides = tensor_same_sizes(read.rank, read.sizes, planned->rank, planned->sizes) &&
                        tensor_same_strides(read.rank, read.sizes, read.strides, planned->strides);
    if (read.dtype != planned->dtype ||
        !tensor_same_sizes(read.rank, read.sizes, planned->rank, planned->sizes) ||
        (!is_made && !same_strides)) {
        result_differs(operation, number, &read, planned);
        Py_DECREF(object);
        return -1;
    }
    if (!same_strides) {
        PyObject *copied = copy_to_layout(call, object, planned);
        Py_DECREF(object);
        if (copied == NULL || tensor_read(copied, "result", number, true, &read, dims) != 0) {
            Py_XDECREF(copied);
            return -1;
        }
        object = copied;
    }
    if (is_made) {
        return keep_made(call, object, &read, planned);
    }
    int failed = check_alias(operation, number, &read, planned);
    Py_DECREF(object);
    return failed;
}

static int take_results(host_call_t *call, const recipe_object_t *recipe,
                        const uncopy_call_t *operation, PyObject *returned)
{
    for (size_t i = 0; i < operation->num_results; i++) {
        Py_ssize_t index = i < (size_t)recipe->num_results ? recipe->results[i] : (Py_ssize_t)i;
        if (take_result(call, operation, i, flat_at(returned, &index)) != 0) {
            return -1;
        }
    }
    return 0;
}

/* A result that must be in a given place, from a recipe without an out form. */
static int copy_into(host_call_t *call, const recipe_object_t *recipe, PyObject *returned,
                     PyObject *destination, const uncopy_bound_t *planned)
{
    Py_ssize_t index = recipe->num_results > 0 ? recipe->results[0] : 0;
    PyObject *source = flat_at(returned, &index);
    if (source == destination) {
        return 0;
    }
    PyObject *copied =
        source != NULL ? PyObject_CallMethodOneArg(destination, core.name.copy_, source) : NULL;
    if (copied == NULL) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError, "an operation returned no tensor");
        }
        return -1;
    }
    Py_DECREF(copied);
    int64_t bytes = (int64_t)uncopy_dtype_size(planned->dtype);
    for (int32_t i = 0; i < planned->rank; i++) {
        bytes *= planned->sizes[i];
    }
    call->function->layout_copies++;
    call->function->layout_bytes += bytes;
    return 0;
}

static int run_out_form(const operands_t *from, const recipe_object_t *recipe)
{
    const uncopy_bound_t *planned = &from->operation->results[0];
    PyObject *destination = host_operand(from->call, from->frame, planned);
    if (destination == NULL) {
        return -1;
    }
    if (!host_is_callers(from->call, planned)) {
        host_note_write(from->call, planned);
    }
    Py_INCREF(destination);
    PyObject *returned = recipe_call(from, recipe, recipe->out != NULL ? destination : NULL);
    int failed = returned != NULL ? 0 : -1;
    if (!failed && recipe->out == NULL) {
        failed = copy_into(from->call, recipe, returned, destination, planned);
    }
    Py_XDECREF(returned);
    Py_DECREF(destination);
    return failed;
}

static int run_return_form(const operands_t *from, const recipe_object_t *recipe)
{
    const uncopy_call_t *operation = from->operation;
    for (size_t i = 0; i < operation->num_writes; i++) {
        if (!host_is_callers(from->call, &operation->writes[i])) {
            host_note_write(from->call, &operation->writes[i]);
        }
    }
    PyObject *returned = recipe_call(from, recipe, NULL);
    if (returned == NULL) {
        return -1;
    }
    int failed = take_results(from->call, recipe, operation, returned);
    Py_DECREF(returned);
    return failed;
}

uncopy_status_t host_enter_call(void *self, uncopy_frame_t *frame, void *call_data,
                                const uncopy_call_t *operation)
{
    (void)self;
    host_call_t *call = call_data;
    bool was_given;
    host_take_gil(call, &was_given);
    call->has_acted = true;
    operands_t from = {call, frame, operation};
    recipe_object_t *recipe = host_recipe(call, operation->host_id);
    int failed = -1;
    if (recipe != NULL) {
        bool is_out = operation->form == UNCOPY_CALL_OUT && operation->num_results > 0;
        failed = is_out ? run_out_form(&from, recipe) : run_return_form(&from, recipe);
    }
    if (failed) {
        host_note_call(operation);
    }
    uncopy_status_t status = failed ? host_keep_error(call) : UNCOPY_OK;
    host_give_gil(call, was_given);
    return status;
}

/* Collectives */

static PyObject *operand_or_none(host_call_t *call, uncopy_frame_t *frame,
                                 const uncopy_bound_t *bound)
{
    return bound != NULL ? host_operand(call, frame, bound) : Py_None;
}

static int start_collective(host_call_t *call, uncopy_frame_t *frame,
                            const uncopy_collective_t *collective)
{
    recipe_object_t *recipe = host_recipe(call, collective->host_id);
    if (recipe == NULL) {
        return -1;
    }
    PyObject *operands[3] = {NULL, operand_or_none(call, frame, collective->destination), NULL};
    operands[2] = operands[1] != NULL ? operand_or_none(call, frame, collective->source) : NULL;
    if (operands[2] == NULL) {
        return -1;
    }
    PyObject *work =
        PyObject_Vectorcall(recipe->call, operands + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    tensor_t *place = work != NULL ? tensor_table_at(&call->works, collective->work) : NULL;
    if (place == NULL) {
        if (work != NULL) {
            Py_DECREF(work);
            PyErr_NoMemory();
        }
        return -1;
    }
    Py_XSETREF(place->object, work);
    return 0;
}

/* Whether a wait must end; the exception is kept for after the run. */
static bool has_signal(void *data)
{
    host_call_t *call = data;
    bool was_given;
    host_take_gil(call, &was_given);
    bool is_raised = PyErr_CheckSignals() != 0;
    if (is_raised) {
        (void)host_keep_error(call);
    }
    host_give_gil(call, was_given);
    return is_raised;
}

int host_is_interrupted(void *self, void *call_data)
{
    (void)self;
    return has_signal(call_data);
}

/* Collectives that were started outside the plan come first: all ranks call them in that order. */
uncopy_comm_t *host_find_comm(void *self, void *call_data, const char *group_name)
{
    (void)self;
    host_call_t *call = call_data;
    exchange_station_t *station = call->function->uses_engine ? exchange_find(group_name) : NULL;
    uncopy_comm_t *comm = NULL;
    if (station != NULL && exchange_drain(station, has_signal, call)) {
        call->has_acted = true;
        comm = exchange_comm(station);
        uncopy_comm_retain(comm);
    }
    exchange_station_release(station);
    return comm;
}

uncopy_status_t host_enter_collective(void *self, uncopy_frame_t *frame, void *call_data,
                                      const uncopy_collective_t *collective)
{
    (void)self;
    host_call_t *call = call_data;
    bool was_given;
    host_take_gil(call, &was_given);
    call->has_acted = true;
    if (collective->destination != NULL) {
        host_note_write(call, collective->destination);
    }
    uncopy_status_t status = UNCOPY_OK;
    bool is_interrupted = call->error_type != NULL; /* while its communicator was looked for */
    if (is_interrupted || start_collective(call, frame, collective) != 0) {
        host_note_collective(collective);
        status = host_keep_error(call);
    }
    host_give_gil(call, was_given);
    return status;
}

/* Waits for a work and drops it; steals work, which may be None. */
static int wait_and_drop(PyObject *work)
{
    PyObject *waited = Py_NewRef(Py_None);
    if (work != Py_None) {
        Py_SETREF(waited, PyObject_CallMethodNoArgs(work, core.name.wait));
    }
    Py_DECREF(work);
    Py_XDECREF(waited);
    return waited != NULL ? 0 : -1;
}

uncopy_status_t host_enter_fence(void *self, uncopy_frame_t *frame, void *call_data, uint32_t work)
{
    (void)self;
    (void)frame;
    host_call_t *call = call_data;
    bool was_given;
    host_take_gil(call, &was_given);
    tensor_t *place = tensor_table_find(&call->works, work);
    uncopy_status_t status = UNCOPY_OK;
    if (place != NULL && place->object != NULL) {
        PyObject *waited = place->object;
        place->object = NULL;
        status = wait_and_drop(waited) == 0 ? UNCOPY_OK : host_keep_error(call);
    }
    host_give_gil(call, was_given);
    return status;
}

void host_finish_works(host_call_t *call, bool has_failed)
{
    for (uint32_t i = 0; i < call->works.num; i++) {
        PyObject *work = call->works.items[i].object;
        if (work == NULL) {
            continue;
        }
        call->works.items[i].object = NULL;
        if (wait_and_drop(work) != 0) {
            if (has_failed) {
                PyErr_Clear();
            } else {
                (void)host_keep_error(call);
            }
        }
    }
}
