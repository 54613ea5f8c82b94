/* Statuses of the library as Python exceptions: the type follows from the code, the words are the
 * library's own. */
#include "error.h"

static PyObject *exception_type(uncopy_status_t status)
{
    switch (status) {
    case UNCOPY_ERROR_ARGUMENT:
    case UNCOPY_ERROR_PROGRAM:
        return PyExc_ValueError;
    case UNCOPY_ERROR_MEMORY:
        return PyExc_MemoryError;
    case UNCOPY_ERROR_PARSE:
        return PyExc_SyntaxError;
    case UNCOPY_ERROR_STRICT:
        return core.strict_error != NULL ? core.strict_error : PyExc_RuntimeError;
    case UNCOPY_ERROR_UNSUPPORTED:
        return PyExc_NotImplementedError;
    case UNCOPY_ERROR_INDEX:
        return PyExc_IndexError;
    case UNCOPY_OK:
    case UNCOPY_ERROR_FACTS:
    case UNCOPY_ERROR_HOST:
    case UNCOPY_ERROR_RANGE:
    case UNCOPY_ERROR_GROUP:
    case UNCOPY_ERROR_PEER:
    case UNCOPY_ERROR_TIMEOUT:
    case UNCOPY_ERROR_ABORTED:
    case UNCOPY_ERROR_MISMATCH:
    case UNCOPY_ERROR_INTERRUPTED:
    case UNCOPY_ERROR_SYSTEM:
        break;
    case UNCOPY_ERROR_APART:
        return PyExc_ConnectionError; /* the group takes another engine */
    }
    return PyExc_RuntimeError;
}

PyObject *error_raise_words(uncopy_status_t status, const char *words)
{
    PyErr_SetString(exception_type(status), words);
    return NULL;
}

PyObject *error_raise(uncopy_status_t status)
{
    return error_raise_words(status, uncopy_last_message());
}
