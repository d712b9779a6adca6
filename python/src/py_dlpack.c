/* Importing and making arrays through DLPack and the CUDA array interface. */
#include "py_core.h"

int mfpy_dlpack_dtype(uint8_t code, uint8_t bits, uint16_t lanes)
{
    for (int d = 0; lanes == 1 && d < MF_DTYPE_COUNT; d++)
        if (mf_dtype_dlpack((mf_dtype)d) == code && 8 * mf_dtype_size((mf_dtype)d) == bits)
            return d;
    return -2;
}

int mfpy_dlpack_tensor(const mfpy_dltensor *from, mf_tensor *out)
{
    if (from->ndim > MF_MAX_DIMS) {
        PyErr_Format(PyExc_ValueError, "an array has %d dimensions; at most %d are possible", (int)from->ndim,
                     MF_MAX_DIMS);
        return -1;
    }
    switch (from->device.type) {
    case MFPY_DL_CPU:
    case MFPY_DL_CUDA_HOST:
        out->device = MF_CPU;
        out->device_index = 0;
        break;
    case MFPY_DL_CUDA:
    case MFPY_DL_CUDA_MANAGED:
        out->device = MF_CUDA;
        out->device_index = from->device.id;
        break;
    default:
        PyErr_Format(PyExc_ValueError,
                     "an array lies on DLPack device type %d; mathfuse runs on the CPU (1) and CUDA (2)",
                     (int)from->device.type);
        return -1;
    }
    out->ndim = from->ndim;
    int64_t step = 1;
    for (int d = from->ndim - 1; d >= 0; d--) {
        out->shape[d] = from->shape[d];
        out->strides[d] = from->strides ? from->strides[d] : step;
        step *= from->shape[d];
    }
    int dtype = mfpy_dlpack_dtype(from->dtype.code, from->dtype.bits, from->dtype.lanes);
    if (dtype < 0)
        return -2;
    out->dtype = (mf_dtype)dtype;
    mfpy_normalise(out);
    out->data = (char *)from->data + from->byte_offset;
    if ((uintptr_t)out->data % (dtype == MF_C128 ? 8 : mf_dtype_size(out->dtype)))
        return -2;
    return 0;
}

int mfpy_truth(PyObject *object, PyObject *name, bool call)
{
    PyObject *value = call ? PyObject_CallMethodObjArgs(object, name, NULL) : PyObject_GetAttr(object, name);
    int yes = value ? PyObject_IsTrue(value) : -1;
    Py_XDECREF(value);
    return yes;
}

/* What Torch keeps beside the memory, and the table above does not see: gradients, pending conjugation and negation. */
static int resolve_torch(mfpy_state *state, mfpy_array *array)
{
    mf_dtype d = array->tensor.dtype;
    if (array->type.library != MFPY_TORCH || d == MF_BOOL || d == MF_I8 || d == MF_I32 || d == MF_I64)
        return 0;
    bool complex = d == MF_C64 || d == MF_C128;
    int special = mfpy_truth(array->object, state->names[MFPY_S_REQUIRES_GRAD], false);
    if (special == 0 && complex)
        special = mfpy_truth(array->object, state->names[MFPY_S_IS_CONJ], true);
    if (special == 0 && (complex || d == MF_F32 || d == MF_F64))
        special = mfpy_truth(array->object, state->names[MFPY_S_IS_NEG], true);
    if (special <= 0)
        return special;
    PyObject *helper = mfpy_helper_get(state, MFPY_H_TORCH_PLAIN);
    PyObject *plain = helper ? PyObject_CallFunctionObjArgs(helper, array->object, NULL) : NULL;
    if (!plain)
        return -1;
    int yes = PyObject_IsTrue(plain);
    Py_DECREF(plain);
    return yes < 0 ? -1 : yes ? 0 : -2;
}

int mfpy_import_exchange(mfpy_state *state, mfpy_array *array)
{
    mfpy_dltensor borrowed = {0};
    if (array->type.api->borrow(array->object, &borrowed) != 0)
        return -1;
    int result = mfpy_dlpack_tensor(&borrowed, &array->tensor);
    return result == 0 ? resolve_torch(state, array) : result;
}

/* object.__dlpack__(stream=…, max_version=(1, 0)); producers from before 1.0 do not know max_version. */
static PyObject *capsule_of(mfpy_state *state, PyObject *object, bool on_cuda, int64_t stream)
{
    PyObject *method = PyObject_GetAttr(object, state->names[MFPY_S_DLPACK]);
    PyObject *empty = PyTuple_New(0);
    PyObject *keywords = on_cuda ? Py_BuildValue("{s:L,s:(ii)}", "stream", (long long)stream, "max_version", 1, 0)
                                 : Py_BuildValue("{s:(ii)}", "max_version", 1, 0);
    PyObject *capsule = method && empty && keywords ? PyObject_Call(method, empty, keywords) : NULL;
    if (!capsule && keywords && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();
        if (PyDict_DelItemString(keywords, "max_version") == 0)
            capsule = PyObject_Call(method, empty, keywords);
    }
    Py_XDECREF(method);
    Py_XDECREF(empty);
    Py_XDECREF(keywords);
    return capsule;
}

static int on_cuda(PyObject *object)
{
    PyObject *device = PyObject_CallMethod(object, "__dlpack_device__", NULL);
    int type = 0, id = 0;
    int result = device && PyArg_ParseTuple(device, "ii", &type, &id) ? 0 : -1;
    Py_XDECREF(device);
    return result < 0 ? -1 : type == MFPY_DL_CUDA || type == MFPY_DL_CUDA_MANAGED;
}

int mfpy_import_dlpack(mfpy_state *state, mfpy_array *array, int64_t stream)
{
    int cuda = on_cuda(array->object);
    if (cuda < 0)
        return -1;
    /* CuPy's work is on the stream we launch on. Of others we do not know their stream: order against the legacy one.
     */
    if (stream == -1 && array->type.library == MFPY_OTHER)
        stream = 1;
    PyObject *capsule = capsule_of(state, array->object, cuda, stream);
    if (!capsule)
        return -1;
    const mfpy_dltensor *tensor = NULL;
    if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        const mfpy_dlversioned *v = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        if (v->version.major == 1) {
            tensor = &v->tensor;
            array->read_only = v->flags & MFPY_DL_READ_ONLY;
        }
    } else if (PyCapsule_IsValid(capsule, "dltensor")) {
        tensor = &((const mfpy_dlmanaged *)PyCapsule_GetPointer(capsule, "dltensor"))->tensor;
    }
    if (!tensor) {
        PyErr_Format(PyExc_TypeError, "%R gave a DLPack capsule of an unknown version; 1.x and older are known",
                     (PyObject *)array->type.type);
        Py_DECREF(capsule);
        return -1;
    }
    int result = mfpy_dlpack_tensor(tensor, &array->tensor);
    array->holder = capsule; /* never consumed: its destructor gives the tensor back */
    return result;
}

/* ---- CUDA array interface ---- */

static int typestr_dtype(const char *text)
{
    static const struct {
        const char *name;
        mf_dtype dtype;
    } known[] = {{"b1", MF_BOOL}, {"i1", MF_I8},  {"i4", MF_I32}, {"i8", MF_I64},  {"f2", MF_F16},
                 {"f4", MF_F32},  {"f8", MF_F64}, {"c8", MF_C64}, {"c16", MF_C128}};
    for (size_t i = 0; text && (text[0] == '<' || text[0] == '|') && i < sizeof known / sizeof *known; i++)
        if (!strcmp(text + 1, known[i].name))
            return known[i].dtype;
    return -1;
}

static int fill_from_interface(mfpy_array *array, PyObject *dict)
{
    mf_tensor *t = &array->tensor;
    PyObject *data = PyDict_GetItemString(dict, "data"), *strides = PyDict_GetItemString(dict, "strides");
    PyObject *shape = PyDict_GetItemString(dict, "shape"), *typestr = PyDict_GetItemString(dict, "typestr");
    mfpy_ints extents, steps = {-1, {0}};
    if (!data || !shape || !typestr || !PyUnicode_Check(typestr) || mfpy_ints_from(shape, "shape", &extents) < 0 ||
        (strides && mfpy_ints_from(strides, "strides", &steps) < 0))
        return -1;
    int dtype = typestr_dtype(PyUnicode_AsUTF8AndSize(typestr, NULL));
    unsigned long long address;
    int read_only;
    if (dtype < 0 || !PyArg_ParseTuple(data, "Kp", &address, &read_only))
        return -1;
    if (mf_tensor_init(t, (void *)(uintptr_t)address, (mf_dtype)dtype, extents.count, extents.values) != MF_OK)
        return -1;
    t->device = MF_CUDA;
    array->read_only = read_only;
    intptr_t bytes[MF_MAX_DIMS];
    for (int d = 0; d < steps.count; d++)
        bytes[d] = (intptr_t)steps.values[d];
    return steps.count < 0 || mfpy_set_strides(t, bytes) ? 0 : -1;
}

/* Work that the producer still has on a stream of its own: we launch on the legacy stream, which may not wait for it. */
static int wait_for_producer(mfpy_state *state, PyObject *dict)
{
    PyObject *stream = PyDict_GetItemString(dict, "stream");
    if (!stream || stream == Py_None || (PyLong_Check(stream) && PyLong_AsLong(stream) == 1))
        return 0;
    PyObject *context = mfpy_context_for(state, MF_CUDA, 0);
    PyObject *done = context ? PyObject_CallMethod(context, "synchronize", NULL) : NULL;
    Py_XDECREF(done);
    return done ? 0 : -1;
}

int mfpy_import_cuda(mfpy_state *state, mfpy_array *array)
{
    PyObject *dict = PyObject_GetAttr(array->object, state->names[MFPY_S_CAI]);
    if (!dict)
        return -1;
    int result = PyDict_Check(dict) ? fill_from_interface(array, dict) : -1;
    if (result < 0 && !PyErr_Occurred())
        PyErr_Format(PyExc_TypeError, "the __cuda_array_interface__ of %R is not supported: %R",
                     (PyObject *)array->type.type, dict);
    array->holder = dict;
    return result == 0 ? wait_for_producer(state, dict) : result;
}

/* ---- making arrays ---- */

static void set_error(void *context, const char *kind, const char *message)
{
    (void)context;
    PyErr_Format(PyExc_RuntimeError, "%s: %s", kind, message);
}

PyObject *mfpy_dlpack_allocate(mfpy_state *state, const mfpy_exchange *api, const mf_tensor *like)
{
    (void)state;
    mf_tensor copy = *like;
    mfpy_dltensor prototype = {
        .device = {like->device == MF_CPU ? MFPY_DL_CPU : MFPY_DL_CUDA, like->device_index},
        .ndim = like->ndim,
        .dtype = {(uint8_t)mf_dtype_dlpack(like->dtype), (uint8_t)(8 * mf_dtype_size(like->dtype)), 1},
        .shape = copy.shape,
        .strides = copy.strides,
    };
    mfpy_dlversioned *made = NULL;
    void *object = NULL;
    if (api->allocate(&prototype, &made, NULL, set_error) != 0 || api->to_object(made, &object) != 0) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_MemoryError, "the array library could not allocate a result");
        return NULL;
    }
    return object;
}
