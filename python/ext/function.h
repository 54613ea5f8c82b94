/* Running a function on tensor objects; shared by Function and Bound. */
#ifndef UNCOPY_EXT_FUNCTION_H
#define UNCOPY_EXT_FUNCTION_H

#include "object.h"

/* Runs and returns a tuple of one value for each Output. With out_is_refused not NULL, arguments
 * that the program does not take set it and raise nothing; the result is NULL then. */
PyObject *function_run(function_object_t *self, PyObject *const *tensors, size_t num_tensors,
                       bool *out_is_refused);

#endif
