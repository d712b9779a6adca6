/* mathfuse._core.Kernel: a compiled kernel. What its parameters are is told by mathfuse._kernel, which passes them as bytes. */
#include "py_core.h"

enum { MAX_PARAMETERS = 64 };

static mf_kernel *kernel_of(PyObject *self)
{
    return ((mfpy_kernel *)self)->kernel;
}

static PyObject *kernel_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"context", "source", "name", NULL};
    mfpy_state *state = mfpy_state_of(type);
    PyObject *context;
    const char *source, *name;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!ss", names, state->context_type, &context, &source, &name))
        return NULL;
    mf_kernel *kernel = NULL;
    mf_status status;
    Py_BEGIN_ALLOW_THREADS status = mf_kernel_new(&kernel, ((mfpy_context *)context)->context, source, name);
    Py_END_ALLOW_THREADS if (status != MF_OK) return mfpy_raise(state, status);
    mfpy_kernel *self = PyObject_GC_New(mfpy_kernel, type);
    if (!self) {
        mf_kernel_free(kernel);
        return NULL;
    }
    self->kernel = kernel;
    PyObject_GC_Track(self);
    return (PyObject *)self;
}

static int kernel_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    return 0;
}

static void kernel_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    mf_kernel_free(kernel_of(self));
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

/* Addresses of the parameters' bytes, which the tuple keeps alive. */
static Py_ssize_t parameter_addresses(PyObject *values, void **out)
{
    Py_ssize_t count = PyTuple_Size(values);
    if (count > MAX_PARAMETERS) {
        PyErr_Format(PyExc_ValueError, "a kernel takes at most %d parameters here, not %zd", MAX_PARAMETERS, count);
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++)
        if (!(out[i] = PyBytes_AsString(PyTuple_GetItem(values, i))))
            return -1;
    return count;
}

static PyObject *kernel_launch(PyObject *self, PyObject *args)
{
    int grid[3], block[3];
    Py_ssize_t shared;
    unsigned long long stream;
    PyObject *values;
    void *addresses[MAX_PARAMETERS];
    if (!PyArg_ParseTuple(args, "(iii)(iii)nKO!", &grid[0], &grid[1], &grid[2], &block[0], &block[1], &block[2],
                          &shared, &stream, &PyTuple_Type, &values) ||
        parameter_addresses(values, addresses) < 0)
        return NULL;
    mf_status status;
    Py_BEGIN_ALLOW_THREADS status =
        mf_kernel_launch(kernel_of(self), grid, block, (size_t)shared, (void *)(uintptr_t)stream, addresses);
    Py_END_ALLOW_THREADS if (status != MF_OK) return mfpy_raise(mfpy_state_of_object(self), status);
    Py_RETURN_NONE;
}

static PyObject *kernel_info(PyObject *self, PyObject *unused)
{
    (void)unused;
    mf_kernel_info info;
    mf_status status = mf_kernel_describe(kernel_of(self), &info);
    if (status != MF_OK)
        return mfpy_raise(mfpy_state_of_object(self), status);
    return Py_BuildValue("{s:i,s:i,s:i,s:y#}", "registers", info.registers, "shared", info.shared, "spills",
                         info.spills, "cubin", info.cubin, (Py_ssize_t)info.cubin_bytes);
}

static PyMethodDef kernel_methods[] = {
    {"launch", kernel_launch, METH_VARARGS,
     "launch($self, grid, block, shared, stream, parameters, /)\n--\n\nSubmit; parameters is a tuple of bytes."},
    {"info", kernel_info, METH_NOARGS, "info($self, /)\n--\n\nRegisters, shared and local memory, machine code."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot kernel_slots[] = {
    {Py_tp_doc, "Kernel(context, source, name)\n--\n\nA kernel compiled from CUDA source."},
    {Py_tp_new, kernel_new},
    {Py_tp_dealloc, kernel_dealloc},
    {Py_tp_traverse, kernel_traverse},
    {Py_tp_methods, kernel_methods},
    {0, NULL},
};

PyType_Spec mfpy_kernel_spec = {
    .name = "mathfuse._core.Kernel",
    .basicsize = sizeof(mfpy_kernel),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = kernel_slots,
};
