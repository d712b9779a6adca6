/* The argument parser: a list of parameters, filled from a vectorcall's positional and keyword arguments. */
#include "py_core.h"

int mfpy_ints_from(PyObject *object, const char *what, mfpy_ints *out)
{
    out->count = -1;
    if (object == Py_None)
        return 0;
    if (PyLong_Check(object)) {
        out->values[0] = PyLong_AsLongLong(object);
        out->count = 1;
        return out->values[0] == -1 && PyErr_Occurred() ? -1 : 0;
    }
    PyObject *items = PySequence_Tuple(object);
    if (!items) {
        PyErr_Clear();
        PyErr_Format(PyExc_TypeError, "%s must be an integer or a sequence of integers, not %R", what, object);
        return -1;
    }
    Py_ssize_t n = PyTuple_Size(items);
    if (n > MF_MAX_DIMS) {
        PyErr_Format(PyExc_ValueError, "%s has %zd entries; at most %d are possible", what, n, MF_MAX_DIMS);
        n = -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *number = PyNumber_Index(PyTuple_GetItem(items, i));
        out->values[i] = number ? PyLong_AsLongLong(number) : -1;
        Py_XDECREF(number);
        if (PyErr_Occurred())
            n = -1;
    }
    Py_DECREF(items);
    out->count = (int)n;
    return n < 0 ? -1 : 0;
}

PyObject *mfpy_ints_tuple(int count, const int64_t *values)
{
    PyObject *tuple = PyTuple_New(count);
    for (int i = 0; tuple && i < count; i++) {
        PyObject *number = PyLong_FromLongLong(values[i]);
        if (!number || PyTuple_SetItem(tuple, i, number) < 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

static int store(const mfpy_param *p, PyObject *value)
{
    switch (p->kind) {
    case 'O':
        *(PyObject **)p->out = value;
        return 0;
    case 's':
        if (p->optional && value == Py_None)
            return 0;
        if (!PyUnicode_Check(value)) {
            PyErr_Format(PyExc_TypeError, "%s must be a str, not %R", p->name, value);
            return -1;
        }
        *(const char **)p->out = PyUnicode_AsUTF8AndSize(value, NULL);
        return *(const char **)p->out ? 0 : -1;
    case 'i': {
        long number = PyLong_AsLong(value);
        if (number == -1 && PyErr_Occurred())
            return -1;
        if (number != (int)number) {
            PyErr_Format(PyExc_OverflowError, "%s is out of range: %ld", p->name, number);
            return -1;
        }
        *(int *)p->out = (int)number;
        return 0;
    }
    case 'd':
        *(double *)p->out = PyFloat_AsDouble(value);
        return *(double *)p->out == -1.0 && PyErr_Occurred() ? -1 : 0;
    case 'p':
        *(int *)p->out = PyObject_IsTrue(value);
        return *(int *)p->out < 0 ? -1 : 0;
    default:
        return mfpy_ints_from(value, p->name, p->out);
    }
}

static int parameter_named(const mfpy_param *params, PyObject *name)
{
    for (int i = 0; params[i].name; i++)
        if (PyUnicode_CompareWithASCIIString(name, params[i].name) == 0)
            return i;
    return -1;
}

int mfpy_parse(const char *function, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames,
               const mfpy_param *params)
{
    uint64_t seen = 0;
    Py_ssize_t names = kwnames ? PyTuple_Size(kwnames) : 0;
    for (Py_ssize_t i = 0; i < nargs + names; i++) {
        PyObject *name = i < nargs ? NULL : PyTuple_GetItem(kwnames, i - nargs);
        int at = name ? parameter_named(params, name) : (int)i;
        if (name && at < 0) {
            PyErr_Format(PyExc_TypeError, "%s() has no argument %R", function, name);
            return -1;
        }
        if (!name) {
            int positional = 0;
            while (params[positional].name && !params[positional].keyword_only)
                positional++;
            if (at >= positional) {
                PyErr_Format(PyExc_TypeError, "%s() takes %d positional arguments, not %zd", function, positional,
                             nargs);
                return -1;
            }
        }
        if (seen >> at & 1) {
            PyErr_Format(PyExc_TypeError, "%s() got %s twice", function, params[at].name);
            return -1;
        }
        seen |= (uint64_t)1 << at;
        if (store(&params[at], args[i]) < 0)
            return -1;
    }
    for (int i = 0; params[i].name; i++)
        if (!(seen >> i & 1) && !params[i].optional) {
            PyErr_Format(PyExc_TypeError, "%s() needs the argument %s", function, params[i].name);
            return -1;
        }
    return 0;
}
