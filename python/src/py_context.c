/* mathfuse._core.Context: a device or a target, and the cache of one context per device. */
#include "py_core.h"

static PyObject *context_make(mfpy_state *state, const char *device, int threads)
{
    mf_context *context = NULL;
    mf_context_options options = MF_CONTEXT_OPTIONS_INIT;
    options.device = device;
    options.threads = threads;
    mf_status status;
    Py_BEGIN_ALLOW_THREADS status = mf_context_new(&context, &options);
    Py_END_ALLOW_THREADS if (status != MF_OK) return mfpy_raise(state, status);
    mfpy_context *self = PyObject_GC_New(mfpy_context, state->context_type);
    if (!self) {
        mf_context_free(context);
        return NULL;
    }
    self->context = context;
    PyObject_GC_Track(self);
    return (PyObject *)self;
}

static PyObject *context_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"device", "threads", NULL};
    const char *device = NULL;
    int threads = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|zi", names, &device, &threads))
        return NULL;
    return context_make(mfpy_state_of(type), device, threads);
}

PyObject *mfpy_context_for(mfpy_state *state, mf_device_kind device, int index)
{
    if (index < 0 || index >= MFPY_MAX_DEVICES) {
        mfpy_fail(state, MF_E_DEVICE, "device index %d is outside 0 to %d", index, MFPY_MAX_DEVICES - 1);
        return NULL;
    }
    PyObject **slot = device == MF_CPU ? &state->cpu : &state->cuda[index];
    if (*slot)
        return *slot;
    char name[24];
    PyOS_snprintf(name, sizeof name, device == MF_CPU ? "cpu" : "cuda:%d", index);
    PyObject *made = context_make(state, name, 0);
    if (!made)
        return NULL;
    MFPY_LOCK(state->lock);
    PyObject *extra = made;
    if (!*slot) {
        *slot = made;
        extra = NULL;
    }
    MFPY_UNLOCK(state->lock);
    Py_XDECREF(extra);
    return *slot;
}

static int context_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    return 0;
}

static void context_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    mf_context_free(((mfpy_context *)self)->context);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyObject *context_target(PyObject *self, void *closure)
{
    (void)closure;
    return PyUnicode_FromString(mf_context_target(((mfpy_context *)self)->context));
}

static PyObject *context_device(PyObject *self, void *closure)
{
    (void)closure;
    int index = 0;
    if (mf_context_device(((mfpy_context *)self)->context, &index) == MF_CPU)
        return PyUnicode_FromString("cpu");
    return PyUnicode_FromFormat("cuda:%d", index);
}

static PyObject *context_can_run(PyObject *self, void *closure)
{
    (void)closure;
    return PyBool_FromLong(mf_context_can_run(((mfpy_context *)self)->context));
}

static PyObject *context_synchronize(PyObject *self, PyObject *unused)
{
    (void)unused;
    mf_status status;
    Py_BEGIN_ALLOW_THREADS status = mf_context_synchronize(((mfpy_context *)self)->context);
    Py_END_ALLOW_THREADS if (status != MF_OK) return mfpy_raise(mfpy_state_of_object(self), status);
    Py_RETURN_NONE;
}

static PyObject *context_repr(PyObject *self)
{
    return PyUnicode_FromFormat("<mathfuse context %s>", mf_context_target(((mfpy_context *)self)->context));
}

static PyGetSetDef context_getset[] = {
    {"target", context_target, NULL, "the target's name, \"cpu\" or \"sm_90a\"", NULL},
    {"device", context_device, NULL, "where arrays must lie: \"cpu\" or \"cuda:0\"", NULL},
    {"can_run", context_can_run, NULL, "whether plans of this context can run here", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef context_methods[] = {
    {"synchronize", context_synchronize, METH_NOARGS, "synchronize($self, /)\n--\n\nWait for the device's work."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot context_slots[] = {
    {Py_tp_doc,
     "Context(device=None, threads=0)\n--\n\nA device (\"cpu\", \"cuda\", \"cuda:1\") or a target (\"sm_90a\")."},
    {Py_tp_new, context_new},
    {Py_tp_dealloc, context_dealloc},
    {Py_tp_traverse, context_traverse},
    {Py_tp_repr, context_repr},
    {Py_tp_getset, context_getset},
    {Py_tp_methods, context_methods},
    {0, NULL},
};

PyType_Spec mfpy_context_spec = {
    .name = "mathfuse._core.Context",
    .basicsize = sizeof(mfpy_context),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = context_slots,
};
