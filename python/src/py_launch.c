/* mathfuse._core.Launcher: kernel[grid, block, shared](args…). mathfuse._kernel reads the source and tells what its parameters
 * are. */
#include "py_launch.h"

enum { MAX_THREADS = 1024 };

typedef struct launch {
    PyObject_HEAD PyObject *launcher;
    int grid[3], block[3];
    Py_ssize_t shared;
} launch;

/* ---- launching ---- */

static mf_kernel *compiled_for(mfpy_state *state, mfpy_launcher *self, int index)
{
    if (index < 0 || index >= MFPY_MAX_DEVICES) {
        PyErr_Format(PyExc_ValueError, "there is no CUDA device %d", index);
        return NULL;
    }
    MFPY_LOCK(state->lock);
    PyObject *found = self->compiled[index];
    MFPY_UNLOCK(state->lock);
    if (found)
        return ((mfpy_kernel *)found)->kernel;
    PyObject *made = PyObject_CallFunction(self->compile, "i", index);
    if (!made)
        return NULL;
    if (Py_TYPE(made) != state->kernel_type) {
        PyErr_Format(PyExc_TypeError, "compile gave %R", (PyObject *)Py_TYPE(made));
        Py_DECREF(made);
        return NULL;
    }
    MFPY_LOCK(state->lock);
    PyObject *extra = made;
    if (!self->compiled[index]) {
        self->compiled[index] = made;
        extra = NULL;
    }
    found = self->compiled[index];
    MFPY_UNLOCK(state->lock);
    Py_XDECREF(extra);
    return ((mfpy_kernel *)found)->kernel;
}

static PyObject *run(mfpy_state *state, const launch *self, mfpy_arguments *a, PyObject *stream)
{
    mf_kernel *kernel = compiled_for(state, (mfpy_launcher *)self->launcher, a->place.index);
    void *pointer = NULL;
    if (!kernel || mfpy_stream(state, &a->place, stream, &pointer) < 0)
        return NULL;
    mf_status status;
    Py_BEGIN_ALLOW_THREADS status =
        mf_kernel_launch(kernel, self->grid, self->block, (size_t)self->shared, pointer, a->addresses);
    Py_END_ALLOW_THREADS if (status != MF_OK) return mfpy_raise(state, status);
    Py_RETURN_NONE;
}

static PyObject *emulate(const launch *self, const mfpy_arguments *a)
{
    PyObject *values = PyTuple_New(a->count);
    for (int i = 0; values && i < a->count; i++) {
        PyObject *bytes = PyBytes_FromStringAndSize(a->addresses[i], (Py_ssize_t)a->bytes[i]);
        if (!bytes || PyTuple_SetItem(values, i, bytes) < 0)
            Py_CLEAR(values);
    }
    PyObject *result = !values ? NULL
                               : PyObject_CallFunction(((mfpy_launcher *)self->launcher)->emulate, "(iii)(iii)nO",
                                                       self->grid[0], self->grid[1], self->grid[2], self->block[0],
                                                       self->block[1], self->block[2], self->shared, values);
    Py_XDECREF(values);
    return result;
}

static PyObject *names_of(const mfpy_launcher *self)
{
    PyObject *list = PyList_New(self->count), *comma = PyUnicode_FromString(", "), *text = NULL;
    for (int i = 0; list && i < self->count; i++)
        PyList_SetItem(list, i, Py_NewRef(self->parameters[i].name));
    if (list && comma)
        text = PyUnicode_Join(comma, list);
    Py_XDECREF(list);
    Py_XDECREF(comma);
    return text;
}

static int stream_of(mfpy_state *state, PyObject *kwargs, PyObject **stream)
{
    *stream = NULL;
    if (!kwargs || PyDict_Size(kwargs) == 0)
        return 0;
    *stream = PyDict_GetItemWithError(kwargs, state->names[MFPY_S_STREAM]);
    if (PyDict_Size(kwargs) == (*stream ? 1 : 0) || PyErr_Occurred())
        return PyErr_Occurred() ? -1 : 0;
    PyErr_SetString(PyExc_TypeError, "a launch takes the kernel's arguments in their order, and stream=");
    return -1;
}

static PyObject *launch_call(PyObject *object, PyObject *args, PyObject *kwargs)
{
    const launch *self = (const launch *)object;
    const mfpy_launcher *kernel = (const mfpy_launcher *)self->launcher;
    mfpy_state *state = mfpy_state_of_object(object);
    PyObject *stream;
    if (stream_of(state, kwargs, &stream) < 0)
        return NULL;
    if (PyTuple_Size(args) != kernel->count) {
        PyObject *names = names_of(kernel);
        if (names)
            mfpy_fail(state, MF_E_INVALID, "%U takes %d arguments (%U); %zd were given", kernel->name, kernel->count,
                      names, PyTuple_Size(args));
        Py_XDECREF(names);
        return NULL;
    }
    mfpy_arguments a;
    a.count = kernel->count;
    a.first = -1;
    a.place.device = MF_CPU;
    memset(a.held, 0, (size_t)a.count * sizeof *a.held);
    bool good = true;
    for (int i = 0; i < a.count && good; i++)
        good = mfpy_argument(state, kernel, i, PyTuple_GetItem(args, i), &a) == 0;
    PyObject *result = !good ? NULL : a.place.device == MF_CPU ? emulate(self, &a) : run(state, self, &a, stream);
    for (int i = 0; i < a.count; i++)
        Py_XDECREF(a.held[i]);
    return result;
}

/* ---- shapes ---- */

static int extents(mfpy_state *state, PyObject *object, const char *what, int *out)
{
    bool tuple = PyTuple_Check(object) || PyList_Check(object);
    Py_ssize_t count = tuple ? PySequence_Size(object) : 1;
    out[0] = out[1] = out[2] = 1;
    bool good = count >= 1 && count <= 3;
    for (Py_ssize_t i = 0; good && i < count; i++) {
        PyObject *item = tuple ? PySequence_GetItem(object, i) : Py_NewRef(object);
        PyObject *number = item && !PyFloat_Check(item) ? PyNumber_Index(item) : NULL;
        long long n = number ? PyLong_AsLongLong(number) : 0;
        good = number && !PyErr_Occurred() && n >= INT32_MIN && n <= INT32_MAX;
        out[i] = (int)n;
        Py_XDECREF(item);
        Py_XDECREF(number);
    }
    if (good)
        return 0;
    PyErr_Clear();
    mfpy_fail(state, MF_E_INVALID, "%s is an integer or up to three of them, not %R", what, object);
    return -1;
}

static PyObject *launcher_subscript(PyObject *object, PyObject *key)
{
    mfpy_state *state = mfpy_state_of_object(object);
    Py_ssize_t size = PyTuple_Check(key) ? PyTuple_Size(key) : 0;
    if (size < 2 || size > 3)
        return mfpy_fail(state, MF_E_INVALID, "a launch is kernel[grid, block] or kernel[grid, block, shared_bytes]");
    int grid[3], block[3];
    Py_ssize_t shared = size > 2 ? PyNumber_AsSsize_t(PyTuple_GetItem(key, 2), PyExc_OverflowError) : 0;
    if ((shared == -1 && PyErr_Occurred()) || extents(state, PyTuple_GetItem(key, 0), "grid", grid) < 0 ||
        extents(state, PyTuple_GetItem(key, 1), "block", block) < 0)
        return NULL;
    bool good = shared >= 0;
    for (int d = 0; d < 3; d++)
        good = good && grid[d] >= 1 && block[d] >= 1;
    if (!good || (int64_t)block[0] * block[1] * block[2] > MAX_THREADS)
        return mfpy_fail(state, MF_E_INVALID,
                         "grid (%d, %d, %d), block (%d, %d, %d), shared %zd: extents start at 1, a block has at most "
                         "%d threads",
                         grid[0], grid[1], grid[2], block[0], block[1], block[2], shared, MAX_THREADS);
    launch *made = PyObject_GC_New(launch, state->launch_type);
    if (!made)
        return NULL;
    made->launcher = Py_NewRef(object);
    memcpy(made->grid, grid, sizeof grid);
    memcpy(made->block, block, sizeof block);
    made->shared = shared;
    PyObject_GC_Track(made);
    return (PyObject *)made;
}

/* ---- life ---- */

static int fill_parameter(mfpy_parameter *p, PyObject *item)
{
    const char *code;
    int writable;
    PyObject *name, *type, *dtypes;
    if (!PyArg_ParseTuple(item, "UUspO!", &name, &type, &code, &writable, &PyTuple_Type, &dtypes))
        return -1;
    p->name = Py_NewRef(name);
    p->type = Py_NewRef(type);
    p->code = code[0];
    p->writable = writable;
    if (p->code != 'P' && p->code != 'x' && !mfpy_scalar_size(p->code)) {
        PyErr_Format(PyExc_ValueError, "there is no parameter code %s", code);
        return -1;
    }
    PyObject *words = PyUnicode_FromString(" or ");
    p->allowed = words ? PyUnicode_Join(words, dtypes) : NULL;
    Py_XDECREF(words);
    for (Py_ssize_t i = 0; p->allowed && i < PyTuple_Size(dtypes); i++) {
        mf_dtype dtype;
        if (mf_dtype_parse(&dtype, PyUnicode_AsUTF8AndSize(PyTuple_GetItem(dtypes, i), NULL)) == MF_OK)
            p->dtypes |= 1u << dtype;
    }
    return p->allowed ? 0 : -1;
}

static PyObject *launcher_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"name", "parameters", "compile", "emulate", "locate", NULL};
    PyObject *name, *parameters, *compile, *emulated, *located;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "UO!OOO", names, &name, &PyTuple_Type, &parameters, &compile,
                                     &emulated, &located))
        return NULL;
    Py_ssize_t count = PyTuple_Size(parameters);
    if (count > MFPY_MAX_PARAMETERS)
        return PyErr_Format(PyExc_ValueError, "a kernel takes at most %d parameters here, not %zd", MFPY_MAX_PARAMETERS,
                            count);
    mfpy_launcher *self = PyObject_GC_New(mfpy_launcher, type);
    if (!self)
        return NULL;
    memset((char *)self + sizeof(PyObject), 0, sizeof *self - sizeof(PyObject));
    self->name = Py_NewRef(name);
    self->compile = Py_NewRef(compile);
    self->emulate = Py_NewRef(emulated);
    self->locate = Py_NewRef(located);
    self->parameters = PyMem_Calloc((size_t)count + 1, sizeof *self->parameters);
    PyObject_GC_Track(self);
    bool good = self->parameters != NULL;
    for (Py_ssize_t i = 0; i < count && good; i++) {
        self->count = (int)i + 1;
        good = fill_parameter(&self->parameters[i], PyTuple_GetItem(parameters, i)) == 0;
    }
    if (good)
        return (PyObject *)self;
    if (!self->parameters)
        PyErr_NoMemory();
    Py_DECREF(self);
    return NULL;
}

static int launcher_traverse(PyObject *object, visitproc visit, void *arg)
{
    mfpy_launcher *self = (mfpy_launcher *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->compile);
    Py_VISIT(self->emulate);
    Py_VISIT(self->locate);
    for (int i = 0; i < MFPY_MAX_DEVICES; i++)
        Py_VISIT(self->compiled[i]);
    return 0;
}

static int launcher_clear(PyObject *object)
{
    mfpy_launcher *self = (mfpy_launcher *)object;
    Py_CLEAR(self->compile);
    Py_CLEAR(self->emulate);
    Py_CLEAR(self->locate);
    return 0;
}

static void launcher_dealloc(PyObject *object)
{
    mfpy_launcher *self = (mfpy_launcher *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    launcher_clear(object);
    for (int i = 0; i < self->count; i++) {
        Py_XDECREF(self->parameters[i].name);
        Py_XDECREF(self->parameters[i].type);
        Py_XDECREF(self->parameters[i].allowed);
    }
    PyMem_Free(self->parameters);
    for (int i = 0; i < MFPY_MAX_DEVICES; i++)
        Py_XDECREF(self->compiled[i]);
    Py_XDECREF(self->name);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

static int launch_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(((launch *)object)->launcher);
    return 0;
}

static void launch_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    Py_XDECREF(((launch *)object)->launcher);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

static PyType_Slot launcher_slots[] = {
    {Py_tp_doc, "Launcher(name, parameters, compile, emulate, locate)\n--\n\nHow a kernel is launched."},
    {Py_tp_new, launcher_new},
    {Py_tp_dealloc, launcher_dealloc},
    {Py_tp_traverse, launcher_traverse},
    {Py_tp_clear, launcher_clear},
    {Py_mp_subscript, launcher_subscript},
    {0, NULL},
};

PyType_Spec mfpy_launcher_spec = {
    .name = "mathfuse._core.Launcher",
    .basicsize = sizeof(mfpy_launcher),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = launcher_slots,
};

static PyType_Slot launch_slots[] = {
    {Py_tp_doc,
     "A kernel with its grid, block and dynamic shared memory: call it with the kernel's arguments, and stream=."},
    {Py_tp_dealloc, launch_dealloc},
    {Py_tp_traverse, launch_traverse},
    {Py_tp_call, launch_call},
    {0, NULL},
};

PyType_Spec mfpy_launch_spec = {
    .name = "mathfuse._core.Launch",
    .basicsize = sizeof(launch),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = launch_slots,
};
