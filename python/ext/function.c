/* Function: arguments are read from tensor objects, the library runs, results become tensors.
 *
 * A call is: read each argument (those that the program writes first, so that a copy-on-write
 * storage is made its own before anyone notes an address), run, bump version counters, make
 * results. On the way there is no Python call where the borrowed interface serves. */
#include "function.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "host.h"

enum {
    INLINE_ARGUMENTS = 64,
    /* Giving up the GIL and taking it back costs about 0.1 us alone and a switch of threads under
     * contention; runs below this keep it. */
    LONG_RUN_NS = 5000,
};

/* Facts of plans */

static void facts_free(plan_facts_t *facts)
{
    uncopy_plan_release((uncopy_plan_t *)(uintptr_t)facts->plan);
    PyMem_Free(facts);
}

/* Drops the facts of plans that have not run for long. */
static void facts_trim(function_object_t *self)
{
    plan_facts_t **link = &self->facts;
    for (int i = 0; *link != NULL && i < UNCOPY_FUNCTION_MAX_PLANS; i++) {
        link = &(*link)->next;
    }
    if (*link != NULL) {
        plan_facts_t *dropped = *link;
        *link = dropped->next;
        facts_free(dropped);
    }
}

static plan_facts_t *facts_create(function_object_t *self, const uncopy_plan_t *plan)
{
    plan_facts_t *facts = PyMem_Calloc(1, sizeof(*facts));
    if (facts == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    uncopy_plan_counts_t counts;
    uncopy_plan_count(plan, &counts);
    facts->plan = plan;
    facts->is_long = counts.cost_ns > LONG_RUN_NS || counts.collectives > 0;
    facts->next = self->facts;
    self->facts = facts;
    /* Retaining changes a count, not the plan: its address must not come to be another plan's. */
    uncopy_plan_retain((uncopy_plan_t *)(uintptr_t)plan);
    facts_trim(self);
    return facts;
}

/* Facts of a plan, which become the first of the list. */
static plan_facts_t *facts_of(function_object_t *self, const uncopy_plan_t *plan)
{
    if (self->facts != NULL && self->facts->plan == plan) {
        return self->facts;
    }
    for (plan_facts_t **link = &self->facts; *link != NULL; link = &(*link)->next) {
        if ((*link)->plan == plan) {
            plan_facts_t *found = *link;
            *link = found->next;
            found->next = self->facts;
            self->facts = found;
            return found;
        }
    }
    return facts_create(self, plan);
}

static void facts_release(function_object_t *self)
{
    while (self->facts != NULL) {
        plan_facts_t *facts = self->facts;
        self->facts = facts->next;
        facts_free(facts);
    }
}

/* Arguments */

typedef struct arguments {
    uncopy_argument_t *items;
    int64_t *dims;     /* of the slow route */
    int64_t *integers; /* where those that are no tensors lie */
    uncopy_argument_t inline_items[INLINE_ARGUMENTS];
    int64_t inline_integers[INLINE_ARGUMENTS];
} arguments_t;

static int arguments_begin(arguments_t *arguments, size_t count)
{
    arguments->items = arguments->inline_items;
    arguments->integers = arguments->inline_integers;
    arguments->dims = NULL;
    if (count > INLINE_ARGUMENTS) {
        arguments->items = malloc(count * sizeof(*arguments->items));
        arguments->integers = malloc(count * sizeof(*arguments->integers));
    }
    if (!torch_abi.has.handle) {
        arguments->dims = malloc((count + 1) * sizeof(tensor_dims_t));
    }
    if (arguments->items == NULL || arguments->integers == NULL ||
        (!torch_abi.has.handle && arguments->dims == NULL)) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

static void arguments_end(arguments_t *arguments)
{
    if (arguments->items != arguments->inline_items) {
        free(arguments->items);
    }
    if (arguments->integers != arguments->inline_integers) {
        free(arguments->integers);
    }
    free(arguments->dims);
}

/* A Python int is an i64 without dims, in memory of the call. */
static int integer_read(arguments_t *arguments, PyObject *integer, size_t number)
{
    int64_t *place = &arguments->integers[number];
    *place = PyLong_AsLongLong(integer);
    if (*place == -1 && PyErr_Occurred()) {
        return -1;
    }
    arguments->items[number] = (uncopy_argument_t){.data = place,
                                                   .storage = place,
                                                   .storage_bytes = sizeof(*place),
                                                   .dtype = UNCOPY_DTYPE_I64};
    return 0;
}

static int argument_read(arguments_t *arguments, PyObject *tensor, size_t number, bool is_written)
{
    if (PyLong_CheckExact(tensor)) {
        return integer_read(arguments, tensor, number);
    }
    if (!core_is_tensor(tensor)) {
        PyErr_Format(PyExc_TypeError,
                     "argument %zu is of type %s; a plan takes torch.Tensor and Parameter", number,
                     Py_TYPE(tensor)->tp_name);
        return -1;
    }
    int64_t *dims = arguments->dims != NULL ? arguments->dims + number * 2 * UNCOPY_MAX_RANK : NULL;
    return tensor_read(tensor, "argument", number, is_written, &arguments->items[number], dims);
}

/* Written arguments are read first: taking a pointer to write may move a storage's bytes. */
static int arguments_read(const function_object_t *self, PyObject *const *tensors, size_t count,
                          arguments_t *out)
{
    bool any_is_written = false;
    for (size_t i = 0; i < count; i++) {
        if (program_may_write(self->program, i)) {
            any_is_written = true;
            if (argument_read(out, tensors[i], i, true) != 0) {
                return -1;
            }
        }
    }
    for (size_t i = 0; i < count; i++) {
        if ((!any_is_written || !program_may_write(self->program, i)) &&
            argument_read(out, tensors[i], i, false) != 0) {
            return -1;
        }
    }
    return 0;
}

/* Version counters */

static bool is_touched(const host_call_t *call, size_t number)
{
    return call->touches_all || (call->touched != NULL && call->touched[number]);
}

static int bump_after_run(const host_call_t *call, const uncopy_plan_t *plan)
{
    for (size_t i = 0; i < call->num_arguments; i++) {
        if ((uncopy_plan_writes_argument(plan, i) || is_touched(call, i)) &&
            core_is_tensor(call->tensors[i]) && tensor_bump_version(call->tensors[i]) != 0) {
            return -1;
        }
    }
    return 0;
}

/* Whether any plan of a function writes an argument by itself. */
static bool a_plan_writes(uncopy_function_t *function, size_t number)
{
    bool found = false;
    for (size_t i = 0; !found; i++) {
        uncopy_plan_t *plan = uncopy_function_plan_at(function, i);
        if (plan == NULL) {
            break;
        }
        found = uncopy_plan_writes_argument(plan, number) != 0;
        uncopy_plan_release(plan);
    }
    return found;
}

/* After a run that failed midway its plan is not known: what any plan of the function writes counts
 * as written. */
static void bump_after_failure(const host_call_t *call)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    for (size_t i = 0; i < call->num_arguments; i++) {
        if ((is_touched(call, i) || (program_may_write(call->function->program, i) &&
                                     a_plan_writes(call->function->function, i))) &&
            core_is_tensor(call->tensors[i]) && tensor_bump_version(call->tensors[i]) != 0) {
            PyErr_Clear();
        }
    }
    PyErr_Restore(type, value, traceback);
}

/* Results */

static bool is_layout_of(const uncopy_argument_t *argument, const tensor_layout_t *layout)
{
    return argument->dtype == layout->dtype &&
           tensor_same_sizes(argument->rank, argument->sizes, layout->rank, layout->sizes) &&
           memcmp(argument->strides, layout->strides,
                  (size_t)layout->rank * sizeof(*layout->strides)) == 0;
}

/* Sets requires_grad if it must be and is not; steals object. An inference tensor is left as
 * PyTorch made it: there a view does not take it over from its base, which the capture does not
 * know. */
static PyObject *with_requires_grad(PyObject *object, bool requires_grad)
{
    if (object == NULL || !requires_grad) {
        return object;
    }
    int is_inference = tensor_is_inference(object);
    if (is_inference > 0) {
        return object;
    }
    int has_it = is_inference < 0 ? -1 : tensor_requires_grad(object);
    PyObject *returned = NULL;
    if (has_it == 0) {
        returned = PyObject_CallMethodOneArg(object, core.name.requires_grad_, Py_True);
    }
    if (has_it < 0 || (has_it == 0 && returned == NULL)) {
        Py_CLEAR(object);
    }
    Py_XDECREF(returned);
    return object;
}

/* A view of an argument with the autograd metadata that eager's result has: what is a view there
 * goes through the dispatcher; the whole argument as no view is what detach gives; all else shares
 * nothing but the storage. */
static PyObject *view_of_argument(const host_call_t *call, const uncopy_bound_t *bound,
                                  const output_object_t *output)
{
    PyObject *tensor = call->tensors[bound->argument];
    const uncopy_argument_t *argument = &call->arguments[bound->argument];
    tensor_layout_t layout = {bound->dtype, bound->rank, bound->sizes, bound->strides};
    int64_t start = 0;
    if (bound->kind == UNCOPY_BASE_ARGUMENT && argument->storage != NULL) {
        start = (char *)argument->data - (char *)argument->storage;
    }
    int64_t offset_bytes = start + bound->offset_bytes;
    if (output->is_view) {
        int base_requires = tensor_requires_grad(tensor);
        if (base_requires < 0) {
            return NULL;
        }
        if (!base_requires || output->requires_grad) {
            return tensor_view_dispatched(tensor, offset_bytes, &layout);
        }
    }
    PyObject *detached = NULL;
    bool is_same = offset_bytes == start && bound->kind == UNCOPY_BASE_ARGUMENT &&
                   is_layout_of(argument, &layout);
    if (output->is_view || is_same) {
        detached = PyObject_CallMethodNoArgs(tensor, core.name.detach);
        if (detached == NULL || !output->is_view) {
            return detached;
        }
        PyObject *view = tensor_view_dispatched(detached, offset_bytes, &layout);
        Py_DECREF(detached);
        return view;
    }
    tensor_t base = {.object = tensor, .storage = argument->storage}, view = {0};
    return tensor_view(&base, offset_bytes, &layout, &view) == 0 ? tensor_object(&view) : NULL;
}

static PyObject *fresh_result(host_call_t *call, const uncopy_bound_t *bound)
{
    tensor_t *base = host_call_base(call, bound->base);
    return base != NULL ? Py_XNewRef(tensor_object(base)) : NULL;
}

static PyObject *view_of_fresh(host_call_t *call, const uncopy_bound_t *bound,
                               const output_object_t *output)
{
    tensor_t *base = host_call_base(call, bound->base);
    if (base == NULL) {
        return NULL;
    }
    tensor_layout_t layout = {bound->dtype, bound->rank, bound->sizes, bound->strides};
    int64_t start = base->start != NULL ? base->start - base->storage : 0;
    int64_t offset_bytes = start + bound->offset_bytes;
    if (output->is_view) {
        PyObject *object = tensor_object(base);
        return object != NULL ? tensor_view_dispatched(object, offset_bytes, &layout) : NULL;
    }
    tensor_t view = {0};
    return tensor_view(base, offset_bytes, &layout, &view) == 0 ? tensor_object(&view) : NULL;
}

static PyObject *result_create(host_call_t *call, const uncopy_plan_t *plan,
                               const output_object_t *output)
{
    const uncopy_output_t *planned = uncopy_plan_output(plan, (size_t)output->index);
    const uncopy_bound_t *bound = &planned->bound;
    tensor_layout_t layout = {bound->dtype, bound->rank, bound->sizes, bound->strides};
    switch (planned->kind) {
    case UNCOPY_OUTPUT_ARGUMENT:
        return Py_NewRef(call->tensors[bound->argument]);
    case UNCOPY_OUTPUT_VIEW:
        return with_requires_grad(view_of_argument(call, bound, output), output->requires_grad);
    case UNCOPY_OUTPUT_FRESH:
        return with_requires_grad(fresh_result(call, bound), output->requires_grad);
    case UNCOPY_OUTPUT_FRESH_VIEW:
        return with_requires_grad(view_of_fresh(call, bound, output), output->requires_grad);
    case UNCOPY_OUTPUT_CONSTANT:
        if (bound->data != NULL) {
            return tensor_from_blob(bound->data, &layout, (PyObject *)call->function);
        }
        break;
    }
    return PyErr_Format(PyExc_NotImplementedError, "output %zd is of kind %d, which has no tensor",
                        output->index, (int)planned->kind);
}

static PyObject *number_create(const uncopy_plan_t *plan, Py_ssize_t number)
{
    return PyLong_FromLongLong(uncopy_plan_number(plan, (size_t)number));
}

static PyObject *results_create(host_call_t *call, const uncopy_plan_t *plan)
{
    PyObject *outputs = call->function->outputs;
    Py_ssize_t count = PyTuple_GET_SIZE(outputs);
    PyObject *results = PyTuple_New(count);
    for (Py_ssize_t i = 0; results != NULL && i < count; i++) {
        output_object_t *output = (output_object_t *)PyTuple_GET_ITEM(outputs, i);
        PyObject *result = output->number >= 0 ? number_create(plan, output->number)
                           : output->index < 0 ? Py_NewRef(output->value)
                                               : result_create(call, plan, output);
        if (result == NULL) {
            Py_CLEAR(results);
        } else {
            PyTuple_SET_ITEM(results, i, result);
        }
    }
    return results;
}

/* Running */

static PyObject *finish_run(host_call_t *call, uncopy_status_t status, const uncopy_run_t *run,
                            bool *out_is_refused)
{
    if (status == UNCOPY_ERROR_ARGUMENT && out_is_refused != NULL) {
        *out_is_refused = true;
        return NULL;
    }
    if (status != UNCOPY_OK) {
        if (!host_call_raise(call)) {
            error_raise(status);
        }
        if (call->has_acted) {
            bump_after_failure(call);
        }
        return NULL;
    }
    if (facts_of(call->function, run->plan) == NULL || bump_after_run(call, run->plan) != 0 ||
        host_call_raise(call)) {
        return NULL;
    }
    return results_create(call, run->plan);
}

static uncopy_status_t run_with_gil_given(function_object_t *self, const arguments_t *arguments,
                                          size_t count, host_call_t *call, uncopy_run_t *out_run)
{
    if (self->facts == NULL || self->facts->is_long) {
        call->thread = PyEval_SaveThread();
    }
    uncopy_status_t status =
        uncopy_function_run(self->function, arguments->items, count, call, NULL, out_run);
    if (call->thread != NULL) {
        PyEval_RestoreThread(call->thread);
        call->thread = NULL;
    }
    return status;
}

/* A program records no gradients: what needs them was captured otherwise. With grad mode on,
 * PyTorch would refuse out= and writes into operands that require grad, and would hang its graph on
 * wrappers that live on. Results are made in the caller's mode again. */
static uncopy_status_t run_without_grad(function_object_t *self, const arguments_t *arguments,
                                        size_t count, host_call_t *call, uncopy_run_t *out_run)
{
    int is_on = grad_mode_is_on();
    if (is_on == 0) {
        return run_with_gil_given(self, arguments, count, call, out_run);
    }
    if (is_on < 0 || grad_mode_set(false) != 0) {
        return host_keep_error(call);
    }
    uncopy_status_t status = run_with_gil_given(self, arguments, count, call, out_run);
    if (grad_mode_set(true) != 0) {
        PyErr_Clear();
    }
    return status;
}

PyObject *function_run(function_object_t *self, PyObject *const *tensors, size_t num_tensors,
                       bool *out_is_refused)
{
    arguments_t arguments;
    PyObject *results = NULL;
    if (num_tensors != self->num_arguments) {
        return PyErr_Format(PyExc_ValueError, "%zu arguments for a function of %zu", num_tensors,
                            self->num_arguments);
    }
    if (arguments_begin(&arguments, num_tensors) != 0) {
        arguments_end(&arguments);
        return NULL;
    }
    if (arguments_read(self, tensors, num_tensors, &arguments) == 0) {
        host_call_t call;
        uncopy_run_t run = {NULL, 0};
        host_call_begin(&call, self, tensors, arguments.items, num_tensors);
        uncopy_status_t status = run_without_grad(self, &arguments, num_tensors, &call, &run);
        results = finish_run(&call, status, &run, out_is_refused);
        uncopy_plan_release(run.plan);
        host_call_end(&call);
    } else if (out_is_refused != NULL && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();
        *out_is_refused = true;
    }
    arguments_end(&arguments);
    return results;
}

static PyObject *function_vectorcall(PyObject *object, PyObject *const *tensors, size_t flags,
                                     PyObject *keywords)
{
    if (keywords != NULL && PyTuple_GET_SIZE(keywords) > 0) {
        PyErr_SetString(PyExc_TypeError, "a function takes no keyword arguments");
        return NULL;
    }
    return function_run((function_object_t *)object, tensors, (size_t)PyVectorcall_NARGS(flags),
                        NULL);
}

/* Creation */

/* A named bit or value of an option. */
typedef struct option_word {
    const char *word;
    unsigned value;
} option_word_t;

static const option_word_t order_words[] = {
    {"program", UNCOPY_ORDER_PROGRAM},
    {"BFS", UNCOPY_ORDER_BFS},
    {"DFS", UNCOPY_ORDER_DFS},
    {"RDFS", UNCOPY_ORDER_RDFS},
    {"StableRDFS", UNCOPY_ORDER_STABLE_RDFS},
    {NULL, 0},
};

static const option_word_t kernel_words[] = {
    {"native", UNCOPY_KERNELS_NATIVE}, {"extern", UNCOPY_KERNELS_EXTERN}, {NULL, 0}};

static const option_word_t strict_words[] = {{"copies", UNCOPY_STRICT_COPIES},
                                             {"externs", UNCOPY_STRICT_EXTERNS},
                                             {"replans", UNCOPY_STRICT_REPLANS},
                                             {NULL, 0}};

static const option_word_t pass_words[] = {{"normalise", UNCOPY_PASS_NORMALISE},
                                           {"elide", UNCOPY_PASS_ELIDE},
                                           {"place", UNCOPY_PASS_PLACE},
                                           {NULL, 0}};

static int option_find(const char *option, const option_word_t *words, PyObject *value,
                       unsigned *out)
{
    const char *word = PyUnicode_Check(value) ? PyUnicode_AsUTF8(value) : NULL;
    for (; word != NULL && words->word != NULL; words++) {
        if (strcmp(words->word, word) == 0) {
            *out = words->value;
            return 0;
        }
    }
    if (!PyErr_Occurred()) {
        PyErr_Format(PyExc_ValueError, "option %s has no value %R", option, value);
    }
    return -1;
}

static int option_set(const char *option, const option_word_t *words, PyObject *values,
                      unsigned *out)
{
    PyObject *iterator = PyObject_GetIter(values);
    PyObject *value;
    int failed = iterator != NULL ? 0 : -1;
    *out = 0;
    while (!failed && (value = PyIter_Next(iterator)) != NULL) {
        unsigned bit = 0;
        failed = option_find(option, words, value, &bit);
        *out |= bit;
        Py_DECREF(value);
    }
    Py_XDECREF(iterator);
    return failed || PyErr_Occurred() ? -1 : 0;
}

static int option_check_count(const char *option, long value)
{
    if (value >= 0 && value <= INT_MAX) {
        return 0;
    }
    if (!PyErr_Occurred()) {
        PyErr_Format(PyExc_ValueError, "option %s has no value %ld", option, value);
    }
    return -1;
}

static int option_read(const char *name, PyObject *value, uncopy_options_t *out)
{
    unsigned found = 0;
    int failed = 0;
    if (strcmp(name, "order") == 0) {
        failed = option_find(name, order_words, value, &found);
        out->order = (uncopy_order_t)found;
    } else if (strcmp(name, "kernels") == 0) {
        failed = option_find(name, kernel_words, value, &found);
        out->kernels = (uncopy_kernels_t)found;
    } else if (strcmp(name, "strict") == 0) {
        failed = option_set(name, strict_words, value, &out->strict);
    } else if (strcmp(name, "passes_off") == 0) {
        failed = option_set(name, pass_words, value, &out->passes_off);
    } else if (strcmp(name, "overlap") == 0) {
        out->has_overlap = PyObject_IsTrue(value);
        failed = out->has_overlap < 0 ? -1 : 0;
    } else if (strcmp(name, "threads") == 0) {
        long threads = PyLong_AsLong(value);
        failed = option_check_count(name, threads);
        out->threads = failed ? 0 : (int)threads;
    } else {
        PyErr_Format(PyExc_ValueError, "there is no option %s", name);
        failed = -1;
    }
    return failed;
}

static int options_read(PyObject *dict, uncopy_options_t *out)
{
    PyObject *key, *value;
    Py_ssize_t position = 0;
    while (PyDict_Next(dict, &position, &key, &value)) {
        const char *name = PyUnicode_AsUTF8(key);
        if (name == NULL || option_read(name, value, out) != 0) {
            return -1;
        }
    }
    return 0;
}

/* A tuple of a sequence whose elements are all of one type; NULL with an exception. */
static PyObject *tuple_of(PyObject *sequence, PyTypeObject *type, const char *what)
{
    PyObject *tuple = PySequence_Tuple(sequence);
    for (Py_ssize_t i = 0; tuple != NULL && i < PyTuple_GET_SIZE(tuple); i++) {
        if (Py_TYPE(PyTuple_GET_ITEM(tuple, i)) != type) {
            PyErr_Format(PyExc_TypeError, "%s %zd is of type %s", what, i,
                         Py_TYPE(PyTuple_GET_ITEM(tuple, i))->tp_name);
            Py_CLEAR(tuple);
        }
    }
    return tuple;
}

static int check_outputs(const function_object_t *self)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(self->outputs); i++) {
        output_object_t *output = (output_object_t *)PyTuple_GET_ITEM(self->outputs, i);
        size_t num_numbers = uncopy_program_num_numbers(self->program->program);
        if (output->number >= 0 && (size_t)output->number >= num_numbers) {
            PyErr_Format(PyExc_ValueError, "output %zd is number %zd of a program with %zu numbers",
                         i, output->number, num_numbers);
            return -1;
        }
        if (output->index >= (Py_ssize_t)self->num_program_outputs) {
            PyErr_Format(PyExc_ValueError, "output %zd is number %zd of a program with %zu", i,
                         output->index, self->num_program_outputs);
            return -1;
        }
    }
    return 0;
}

static int function_fill(function_object_t *self, PyObject *program, PyObject *options_dict,
                         PyObject *recipes, PyObject *outputs)
{
    uncopy_options_t options = {0};
    self->vectorcall = function_vectorcall;
    self->program = (program_object_t *)Py_NewRef(program);
    self->num_arguments = uncopy_program_num_arguments(self->program->program);
    self->num_program_outputs = uncopy_program_num_outputs(self->program->program);
    self->recipes = tuple_of(recipes, core.recipe_type, "recipe");
    self->outputs = self->recipes != NULL ? tuple_of(outputs, core.output_type, "output") : NULL;
    if (self->outputs == NULL || check_outputs(self) != 0 ||
        options_read(options_dict, &options) != 0) {
        return -1;
    }
    uncopy_host_t host = host_table(self);
    uncopy_status_t status =
        uncopy_function_create(self->program->program, &options, &host, &self->function);
    if (status != UNCOPY_OK) {
        error_raise(status);
        return -1;
    }
    return 0;
}

static PyObject *function_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"program", "options", "recipes", "outputs", "uses_engine", NULL};
    PyObject *program, *options, *recipes, *outputs;
    int uses_engine = 1;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O!O!OO|p:Function", names,
                                     core.program_type, &program, &PyDict_Type, &options, &recipes,
                                     &outputs, &uses_engine)) {
        return NULL;
    }
    if (!core.is_initialized) {
        PyErr_SetString(PyExc_RuntimeError, "initialize() must come before the first function");
        return NULL;
    }
    function_object_t *self = (function_object_t *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->uses_engine = uses_engine != 0;
    if (function_fill(self, program, options, recipes, outputs) != 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static int function_traverse(PyObject *object, visitproc visit, void *arg)
{
    function_object_t *self = (function_object_t *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->recipes);
    Py_VISIT(self->outputs);
    return 0;
}

/* A tuple without elements in place of a cleared one, so that a late call finds no NULL. */
static void clear_tuple(PyObject **place)
{
    PyObject *tuple = *place;
    *place = PyTuple_New(0);
    Py_XDECREF(tuple);
}

static int function_clear(PyObject *object)
{
    function_object_t *self = (function_object_t *)object;
    clear_tuple(&self->recipes);
    clear_tuple(&self->outputs);
    return 0;
}

static void function_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    function_object_t *self = (function_object_t *)object;
    PyObject_GC_UnTrack(object);
    if (self->weak_references != NULL) {
        PyObject_ClearWeakRefs(object);
    }
    uncopy_function_release(self->function);
    facts_release(self);
    Py_CLEAR(self->recipes);
    Py_CLEAR(self->outputs);
    Py_CLEAR(self->program);
    type->tp_free(object);
    Py_DECREF(type);
}

/* Methods */

static PyObject *function_plan(PyObject *object, PyObject *const *tensors, Py_ssize_t count)
{
    function_object_t *self = (function_object_t *)object;
    if ((size_t)count != self->num_arguments) {
        return PyErr_Format(PyExc_ValueError, "%zd arguments for a function of %zu", count,
                            self->num_arguments);
    }
    arguments_t arguments;
    PyObject *found = NULL;
    if (arguments_begin(&arguments, (size_t)count) == 0 &&
        arguments_read(self, tensors, (size_t)count, &arguments) == 0) {
        uncopy_plan_t *plan = NULL;
        uncopy_status_t status =
            uncopy_function_plan(self->function, arguments.items, (size_t)count, &plan);
        found =
            status == UNCOPY_OK ? plan_object_create(plan, self->function) : error_raise(status);
        uncopy_plan_release(plan);
    }
    arguments_end(&arguments);
    return found;
}

static PyObject *function_plans(PyObject *object, PyObject *unused)
{
    (void)unused;
    function_object_t *self = (function_object_t *)object;
    size_t count = uncopy_function_num_plans(self->function);
    PyObject *plans = PyList_New(0);
    for (size_t i = 0; plans != NULL && i < count; i++) {
        uncopy_plan_t *inner = uncopy_function_plan_at(self->function, i);
        if (inner == NULL) {
            break; /* dropped meanwhile */
        }
        PyObject *plan = plan_object_create(inner, self->function);
        uncopy_plan_release(inner);
        if (plan == NULL || PyList_Append(plans, plan) != 0) {
            Py_CLEAR(plans);
        }
        Py_XDECREF(plan);
    }
    return plans;
}

static PyObject *function_counts(PyObject *object, PyObject *unused)
{
    (void)unused;
    function_object_t *self = (function_object_t *)object;
    uncopy_counts_t counts;
    uncopy_function_counts(self->function, &counts);
    return Py_BuildValue(
        "{sLsLsLsLsLsLsLsLsLsLsLsLsLsL}", "calls", (long long)counts.calls, "plans",
        (long long)counts.plans, "replans", (long long)counts.replans, "moves",
        (long long)counts.moves, "bytes_moved", (long long)counts.bytes_moved, "copies",
        (long long)(counts.copies + self->layout_copies), "bytes_copied",
        (long long)(counts.bytes_copied + self->layout_bytes), "externs", (long long)counts.externs,
        "collectives", (long long)counts.collectives, "bytes_staged",
        (long long)counts.bytes_staged, "collectives_host", (long long)counts.collectives_host,
        "bytes_allocated", (long long)counts.bytes_allocated, "layout_copies",
        (long long)self->layout_copies, "layout_bytes", (long long)self->layout_bytes);
}

static PyObject *function_reset_counts(PyObject *object, PyObject *unused)
{
    (void)unused;
    function_object_t *self = (function_object_t *)object;
    uncopy_function_reset_counts(self->function);
    self->layout_copies = self->layout_bytes = 0;
    Py_RETURN_NONE;
}

static PyObject *function_program(PyObject *object, PyObject *unused)
{
    (void)unused;
    return Py_NewRef(((function_object_t *)object)->program);
}

static PyMethodDef function_methods[] = {
    {"plan", (PyCFunction)(void (*)(void))function_plan, METH_FASTCALL,
     "Makes or finds the plan for these tensors without running it."},
    {"plans", function_plans, METH_NOARGS, "Plans made so far."},
    {"counts", function_counts, METH_NOARGS,
     "Counts of all runs; layout_copies and layout_bytes are also part of copies and "
     "bytes_copied."},
    {"reset_counts", function_reset_counts, METH_NOARGS, "Sets all counts to zero."},
    {"program", function_program, METH_NOARGS, "The program."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef function_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(function_object_t, vectorcall), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(function_object_t, weak_references), READONLY,
     NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot function_slots[] = {
    {Py_tp_new, (void *)(uintptr_t)function_new},
    {Py_tp_dealloc, (void *)(uintptr_t)function_dealloc},
    {Py_tp_traverse, (void *)(uintptr_t)function_traverse},
    {Py_tp_clear, (void *)(uintptr_t)function_clear},
    {Py_tp_call, (void *)(uintptr_t)PyVectorcall_Call},
    {Py_tp_methods, function_methods},
    {Py_tp_members, function_members},
    {Py_tp_doc, "A program with its plans, called with its argument tensors."},
    {0, NULL},
};

PyTypeObject *function_type_create(void)
{
    PyType_Spec spec = {.name = "uncopy._core.Function",
                        .basicsize = sizeof(function_object_t),
                        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
                                 Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE,
                        .slots = function_slots};
    return (PyTypeObject *)PyType_FromSpec(&spec);
}
