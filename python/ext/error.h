/* Statuses of the library as Python exceptions. Threads: under the GIL. */
#ifndef UNCOPY_EXT_ERROR_H
#define UNCOPY_EXT_ERROR_H

#include "state.h"

/* Raises the exception of a failed status with the thread's last message; returns NULL. */
PyObject *error_raise(uncopy_status_t status);
/* The same with words of its own. */
PyObject *error_raise_words(uncopy_status_t status, const char *words);

#endif
