/* Exceptions from statuses. The classes are made by mathfuse.errors from the table in status.def. */
#include "py_core.h"

#include <stdarg.h>

static PyObject *raise_text(mfpy_state *state, mf_status status, PyObject *text)
{
    if (!text)
        return NULL;
    PyObject *make = mfpy_helper_get(state, MFPY_H_ERROR_CLASS);
    PyObject *type = make ? PyObject_CallFunction(make, "i", (int)status) : NULL;
    if (type)
        PyErr_SetObject(type, text);
    Py_XDECREF(type);
    Py_DECREF(text);
    return NULL;
}

PyObject *mfpy_raise(mfpy_state *state, mf_status status)
{
    const char *message = mf_error_message(status);
    return raise_text(state, status, PyUnicode_DecodeUTF8(message, (Py_ssize_t)strlen(message), "replace"));
}

PyObject *mfpy_fail(mfpy_state *state, mf_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    PyObject *text = PyUnicode_FromFormatV(format, args);
    va_end(args);
    return raise_text(state, status, text);
}
