/* mathfuse._core.Kernel: a compiled kernel; py_launch.c launches it. */
#include "py_core.h"

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
