/* The extension's Python types, as its files see each other's. Each object owns its references;
 * all are used under the GIL and are immutable once made, except for Program while it is built and
 * the counters of Function and Bound. */
#ifndef UNCOPY_EXT_OBJECT_H
#define UNCOPY_EXT_OBJECT_H

#include "state.h"
#include "tensor.h"

/* Number: a number read in place of a view. */
typedef struct number_object {
    PyObject_HEAD uncopy_operand_t operand;
} number_object_t;

typedef struct program_object {
    PyObject_HEAD uncopy_program_t *program;
    /* For each view, the number of the argument it lies in, or -1. Empty for a parsed program. */
    int32_t *view_arguments;
    size_t num_views;
    size_t views_capacity;
    /* For each argument, whether an operation writes it. */
    bool *is_written;
    size_t num_arguments;
    size_t arguments_capacity;
    bool may_write_all; /* parsed, or holds an operation that may write anything */
} program_object_t;

typedef struct slot_object {
    PyObject_HEAD Py_ssize_t index;
    bool is_number; /* a number of the program, not an operand */
} slot_object_t;

/* One element of a recipe's call. */
typedef struct recipe_item {
    PyObject *value; /* what is passed, or the container that holds slots */
    Py_ssize_t slot; /* >= 0: this operand; RECIPE_VALUE; RECIPE_NESTED; RECIPE_NUMBER - n */
} recipe_item_t;

enum { RECIPE_VALUE = -1, RECIPE_NESTED = -2, RECIPE_NUMBER = -3 };

typedef struct recipe_object {
    PyObject_HEAD PyObject *call;
    PyObject *out;        /* NULL: no out form */
    recipe_item_t *items; /* positional arguments, then those of names */
    Py_ssize_t num_items;
    Py_ssize_t num_positional;
    PyObject *names;     /* tuple of keywords, NULL without */
    PyObject *names_out; /* the same and "out" */
    Py_ssize_t *results; /* index in the flattened result, for each view returned */
    Py_ssize_t num_results;
} recipe_object_t;

typedef struct output_object {
    PyObject_HEAD Py_ssize_t index; /* -1: value */
    Py_ssize_t number;              /* >= 0: number of the program */
    bool requires_grad;
    bool is_view;
    PyObject *value;
} output_object_t;

/* What running a plan needs to know of it, kept by the function. */
typedef struct plan_facts {
    const uncopy_plan_t *plan; /* retained */
    /* its native instructions are worth giving up the GIL, or it may wait for peers */
    bool is_long;
    struct plan_facts *next;
} plan_facts_t;

typedef struct function_object {
    PyObject_HEAD vectorcallfunc vectorcall;
    PyObject *weak_references;
    uncopy_function_t *function;
    program_object_t *program;
    PyObject *recipes; /* tuple of Recipe */
    PyObject *outputs; /* tuple of Output */
    size_t num_arguments;
    size_t num_program_outputs;
    int num_threads;       /* of PyTorch when it was made, for the slow route */
    bool uses_engine;      /* collectives may run on communicators, else all by their recipes */
    plan_facts_t *facts;   /* the plan of the last run first */
    int64_t layout_copies; /* results of host calls that came in another layout than planned */
    int64_t layout_bytes;
} function_object_t;

typedef struct plan_object {
    PyObject_HEAD PyObject *weak_references;
    uncopy_plan_t *plan;
    uncopy_function_t *function;
} plan_object_t;

/* Types are made once, by module creation. */
PyTypeObject *number_type_create(void);
PyTypeObject *program_type_create(void);
PyTypeObject *slot_type_create(void);
PyTypeObject *recipe_type_create(void);
PyTypeObject *output_type_create(void);
PyTypeObject *plan_type_create(void);
PyTypeObject *function_type_create(void);
PyTypeObject *bound_type_create(void);

/* Whether argument number is written by an operation of the program, or may be. */
static inline bool program_may_write(const program_object_t *program, size_t number)
{
    return program->may_write_all ||
           (number < program->num_arguments && program->is_written[number]);
}

/* New Plan object that keeps plan and function. */
PyObject *plan_object_create(const uncopy_plan_t *plan, uncopy_function_t *function);

/* Text of the library as a str; gives it back. */
PyObject *text_take(char *text);

/* Fills, from an exact sequence of integers, an array that PyMem_Free ends; NULL with an
 * exception. */
int64_t *integers_from_sequence(PyObject *sequence, const char *what, Py_ssize_t *out_count);

#endif
