/* The floor of a compiled call: a callable that ignores its arguments and returns a tuple made
 * beforehand. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

static PyObject *kept;

static PyObject *keep(PyObject *module, PyObject *result)
{
    (void)module;
    Py_XSETREF(kept, Py_NewRef(result));
    Py_RETURN_NONE;
}

static PyObject *call(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    (void)arguments;
    (void)count;
    return Py_NewRef(kept);
}

static PyMethodDef methods[] = {
    {"keep", keep, METH_O, "Sets what call returns."},
    {"call", (PyCFunction)(void (*)(void))call, METH_FASTCALL, "Returns what was kept."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "noop", .m_size = -1,
                                        .m_methods = methods};

PyMODINIT_FUNC PyInit_noop(void)
{
    return PyModule_Create(&definition);
}
