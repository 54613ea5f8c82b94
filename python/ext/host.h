/* The entries that libuncopy calls during a run: memory from PyTorch, operations on its kernels,
 * collectives on its process groups.
 *
 * A host_call_t lives on the stack of the thread that runs a function, from before the run until
 * its results are made. Invariants:
 *   h1  While `thread` is set the GIL is given up, and only handles may be touched; an entry that
 *       needs Python takes the GIL back and gives it up again before it returns.
 *   h2  An operand that is the caller's whole argument is the caller's own object. A view of an
 *       argument is made from the caller's tensor, so both share one storage object.
 *   h3  A Python exception raised in an entry is kept here; the run ends with UNCOPY_ERROR_HOST and
 *       the exception is raised again, unchanged, after it.
 *   h4  Wrappers of arena memory belong to the frame, all else to the call. */
#ifndef UNCOPY_EXT_HOST_H
#define UNCOPY_EXT_HOST_H

#include "object.h"

enum { HOST_INLINE_BASES = 4, HOST_INLINE_VIEWS = 8 };

typedef struct host_call {
    function_object_t *function;
    PyObject *const *tensors;
    const uncopy_argument_t *arguments;
    size_t num_arguments;
    PyThreadState *thread;
    PyObject *error_type, *error_value, *error_traceback;
    bool has_acted;         /* an operation of the host's began: effects may have been made */
    bool touches_all;       /* without memory for the next: every argument counts as touched */
    unsigned char *touched; /* arguments whose bytes entries wrote past their version counters */
    tensor_table_t bases;   /* by base, counted from the first that is made in the run */
    tensor_table_t views;   /* by id, of this call */
    tensor_table_t works;   /* by work, in object */
    tensor_t inline_bases[HOST_INLINE_BASES];
    tensor_t inline_views[HOST_INLINE_VIEWS];
} host_call_t;

/* The table for uncopy_function_create; self is the function object. */
uncopy_host_t host_table(function_object_t *function);

void host_call_begin(host_call_t *call, function_object_t *function, PyObject *const *tensors,
                     const uncopy_argument_t *arguments, size_t num_arguments);
void host_call_end(host_call_t *call);

/* The base numbered in a plan; NULL with an exception when the run did not make it. */
tensor_t *host_call_base(host_call_t *call, uint32_t base);

/* Keeps the current exception for after the run; returns UNCOPY_ERROR_HOST. */
uncopy_status_t host_keep_error(host_call_t *call);

/* Raises the kept exception, if there is one; whether it did. */
bool host_call_raise(host_call_t *call);

#endif
