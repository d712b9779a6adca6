/* Importing arrays: how a Python type is taken, NumPy's array struct, and the bookkeeping of one call's arrays. */
#include "py_core.h"

/* ---- classification ---- */

static mfpy_library library_of(PyTypeObject *type)
{
    PyObject *module = PyObject_GetAttrString((PyObject *)type, "__module__");
    const char *text = module && PyUnicode_Check(module) ? PyUnicode_AsUTF8AndSize(module, NULL) : NULL;
    mfpy_library library = MFPY_OTHER;
    if (text && !strncmp(text, "torch", 5) && (text[5] == '.' || !text[5]))
        library = MFPY_TORCH;
    else if (text && !strncmp(text, "cupy", 4) && (text[4] == '.' || !text[4]))
        library = MFPY_CUPY;
    PyErr_Clear();
    Py_XDECREF(module);
    return library;
}

static bool has(PyTypeObject *type, const char *name)
{
    PyObject *attribute = PyObject_GetAttrString((PyObject *)type, name);
    PyErr_Clear();
    Py_XDECREF(attribute);
    return attribute != NULL && attribute != Py_None;
}

static const mfpy_exchange *exchange_of(PyTypeObject *type)
{
    PyObject *capsule = PyObject_GetAttrString((PyObject *)type, "__dlpack_c_exchange_api__");
    const mfpy_exchange *api = NULL;
    if (capsule && PyCapsule_IsValid(capsule, "dlpack_exchange_api"))
        api = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    PyErr_Clear();
    Py_XDECREF(capsule); /* the type keeps the table alive */
    return api && api->header.version.major == 1 && api->borrow ? api : NULL;
}

/* Only NumPy's integers have a numerator, and only its scalars cannot be finalised. */
static bool is_number(PyTypeObject *type)
{
    if (!has(type, "__array_struct__") || has(type, "__array_finalize__"))
        return false;
    PyObject *name = PyObject_GetAttrString((PyObject *)type, "__name__");
    bool boolean = name && (PyUnicode_CompareWithASCIIString(name, "bool") == 0 ||
                            PyUnicode_CompareWithASCIIString(name, "bool_") == 0);
    PyErr_Clear();
    Py_XDECREF(name);
    return boolean || has(type, "numerator");
}

static mfpy_type classify_type(PyTypeObject *type, PyObject *object)
{
    mfpy_type found = {type, MFPY_STATIC, MFPY_NUMPY, NULL};
    if (has(type, "__mathfuse_traced__")) {
        found.kind = MFPY_TRACED;
    } else if (is_number(type)) {
        found.kind = MFPY_NUMBER;
    } else if (has(type, "__array_struct__")) {
        /* Masked arrays are told apart there: their values are not all values. */
        found.kind = has(type, "filled") && has(type, "mask") ? MFPY_CONVERT : MFPY_STRUCT;
    } else if ((found.api = exchange_of(type)) != NULL) {
        found.kind = MFPY_EXCHANGE;
        found.library = library_of(type);
    } else if (has(type, "__dlpack__") || has(type, "__cuda_array_interface__")) {
        found.kind = has(type, "__dlpack__") ? MFPY_DLPACK : MFPY_CUDA;
        found.library = library_of(type);
    } else if (!PyBytes_Check(object) && !PyByteArray_Check(object) &&
               (PyObject_CheckBuffer(object) || has(type, "__array__") || has(type, "__array_interface__"))) {
        found.kind = MFPY_CONVERT;
    }
    return found;
}

int mfpy_classify(mfpy_state *state, PyObject *object, mfpy_type *out)
{
    PyTypeObject *type = Py_TYPE(object);
    mfpy_type *slot = &state->types[((uintptr_t)type >> 4) % MFPY_TYPE_SLOTS];
    MFPY_LOCK(state->lock);
    bool hit = slot->type == type;
    if (hit)
        *out = *slot;
    MFPY_UNLOCK(state->lock);
    if (hit)
        return 0;
    *out = classify_type(type, object);
    Py_INCREF((PyObject *)type);
    MFPY_LOCK(state->lock);
    PyTypeObject *old = slot->type;
    *slot = *out;
    MFPY_UNLOCK(state->lock);
    Py_XDECREF((PyObject *)old);
    return 0;
}

/* ---- strides ---- */

void mfpy_normalise(mf_tensor *tensor)
{
    bool empty = mf_tensor_elements(tensor) == 0;
    int64_t step = 1;
    for (int d = tensor->ndim - 1; d >= 0; d--) {
        if (tensor->shape[d] == 1 || empty)
            tensor->strides[d] = step;
        step *= tensor->shape[d] > 1 ? tensor->shape[d] : 1;
    }
}

bool mfpy_set_strides(mf_tensor *tensor, const intptr_t *byte_strides)
{
    intptr_t size = (intptr_t)mf_dtype_size(tensor->dtype);
    bool whole = true;
    for (int d = 0; d < tensor->ndim; d++) {
        tensor->strides[d] = byte_strides[d] / size;
        whole = whole && (byte_strides[d] % size == 0 || tensor->shape[d] <= 1);
    }
    mfpy_normalise(tensor);
    return whole;
}

/* ---- NumPy ---- */

int mfpy_dtype_named(mfpy_state *state, PyObject *dtype)
{
    PyObject *name = PyObject_GetAttr(dtype, state->names[MFPY_S_NAME]);
    const char *text = name && PyUnicode_Check(name) ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
    int found = name ? -2 : -1;
    for (int d = 0; text && d < MF_DTYPE_COUNT; d++)
        if (!strcmp(text, mf_dtype_numpy((mf_dtype)d)))
            found = d;
    Py_XDECREF(name);
    return found;
}

/* bfloat16 and fp8 have no kind of their own: ask the dtype. */
static int extension_dtype(mfpy_state *state, PyObject *object)
{
    static const mf_dtype candidates[] = {MF_BF16, MF_E4M3, MF_E5M2};
    PyObject *dtype = PyObject_GetAttr(object, state->names[MFPY_S_DTYPE]);
    if (!dtype)
        return -1;
    int found = -2;
    for (size_t i = 0; i < sizeof candidates / sizeof *candidates && found == -2; i++)
        if (state->dtypes[candidates[i]] == dtype)
            found = candidates[i];
    if (found == -2)
        found = mfpy_dtype_named(state, dtype);
    Py_DECREF(dtype);
    return found;
}

int mfpy_struct_dtype(mfpy_state *state, PyObject *object, const mfpy_array_struct *s)
{
    switch (s->kind) {
    case 'b':
        return MF_BOOL;
    case 'i':
        return s->itemsize == 4 ? MF_I32 : s->itemsize == 8 ? MF_I64 : s->itemsize == 1 ? MF_I8 : -2;
    case 'f':
        if (s->itemsize >= 2)
            return s->itemsize == 2 ? MF_F16 : s->itemsize == 4 ? MF_F32 : s->itemsize == 8 ? MF_F64 : -2;
        return extension_dtype(state, object);
    case 'c':
        return s->itemsize == 8 ? MF_C64 : s->itemsize == 16 ? MF_C128 : -2;
    case 'V':
        return s->itemsize <= 2 ? extension_dtype(state, object) : -2;
    default:
        return -2;
    }
}

/* 0, -1 with an exception, or -2: convert first. */
static int fill_from_struct(mfpy_state *state, mfpy_array *array, const mfpy_array_struct *s)
{
    if (s->ndim > MF_MAX_DIMS) {
        mfpy_fail(state, MF_E_SHAPE, "an array has %d dimensions; at most %d are possible", s->ndim, MF_MAX_DIMS);
        return -1;
    }
    int dtype = mfpy_struct_dtype(state, array->object, s);
    if (dtype < 0)
        return dtype;
    mf_tensor *t = &array->tensor;
    t->data = s->data;
    t->dtype = (mf_dtype)dtype;
    t->device = MF_CPU;
    t->device_index = 0;
    t->ndim = s->ndim;
    for (int d = 0; d < s->ndim; d++)
        t->shape[d] = s->shape[d];
    array->read_only = !(s->flags & MFPY_WRITEABLE);
    bool native = (s->flags & MFPY_NATIVE) || s->itemsize == 1 || s->kind == 'V';
    return mfpy_set_strides(t, s->strides) && native && (s->flags & MFPY_ALIGNED) ? 0 : -2;
}

static int import_struct(mfpy_state *state, mfpy_array *array)
{
    PyObject *capsule = PyObject_GetAttr(array->object, state->names[MFPY_S_ARRAY_STRUCT]);
    if (!capsule)
        return -1;
    const mfpy_array_struct *s = PyCapsule_GetPointer(capsule, NULL);
    array->holder = capsule; /* a scalar's memory lives no longer than that */
    return s ? fill_from_struct(state, array, s) : -1;
}

/* ---- any array ---- */

static int import_once(mfpy_state *state, mfpy_array *array, int64_t stream)
{
    switch (array->type.kind) {
    case MFPY_STRUCT:
        return import_struct(state, array);
    case MFPY_EXCHANGE:
        /* The table does not order work: a stream of the caller's choice is told to __dlpack__ instead. */
        return stream == -1 ? mfpy_import_exchange(state, array) : mfpy_import_dlpack(state, array, stream);
    case MFPY_DLPACK:
        return mfpy_import_dlpack(state, array, stream);
    case MFPY_CUDA:
        return mfpy_import_cuda(state, array);
    default:
        return -2;
    }
}

static int convert(mfpy_state *state, mfpy_array *array, int64_t stream)
{
    PyObject *helper = mfpy_helper_get(state, MFPY_H_CONVERT);
    PyObject *converted = helper ? PyObject_CallFunctionObjArgs(helper, array->object, NULL) : NULL;
    if (!converted)
        return -1;
    Py_CLEAR(array->holder);
    Py_DECREF(array->object);
    array->object = converted;
    array->converted = true;
    mfpy_classify(state, converted, &array->type);
    int result = import_once(state, array, stream);
    if (result == -2)
        PyErr_Format(PyExc_TypeError, "%R was not converted to a supported dtype", (PyObject *)Py_TYPE(converted));
    return result == 0 ? 0 : -1;
}

int mfpy_import(mfpy_state *state, PyObject *object, const mfpy_type *type, bool writable, int64_t stream,
                mfpy_array *out)
{
    out->object = Py_NewRef(object);
    out->holder = NULL;
    out->type = *type;
    out->read_only = out->converted = false;
    out->position = -1;
    out->keyword = NULL;
    int result = import_once(state, out, stream);
    if (result == -2 && writable) {
        mfpy_fail(state, MF_E_TYPE,
                  "out is of type %R with a dtype or layout that cannot be written in place; pass an aligned, native "
                  "array of the result's dtype",
                  (PyObject *)type->type);
        result = -1;
    } else if (result == -2) {
        result = convert(state, out, stream);
    }
    if (result == 0 && writable && out->read_only) {
        mfpy_fail(state, MF_E_INVALID, "out is read-only; pass a writable array");
        result = -1;
    }
    if (result < 0)
        mfpy_array_clear(out);
    return result;
}

void mfpy_array_clear(mfpy_array *array)
{
    Py_CLEAR(array->holder);
    Py_CLEAR(array->object);
}

void mfpy_arrays_init(mfpy_arrays *arrays)
{
    arrays->items = arrays->local;
    arrays->count = 0;
    arrays->capacity = (int)(sizeof arrays->local / sizeof *arrays->local);
}

int mfpy_arrays_add(mfpy_state *state, mfpy_arrays *arrays, PyObject *object, const mfpy_type *type, bool writable,
                    int64_t stream)
{
    if (arrays->count == arrays->capacity) {
        size_t bytes = sizeof(mfpy_array) * (size_t)arrays->capacity;
        mfpy_array *grown = PyMem_Malloc(2 * bytes);
        if (!grown) {
            PyErr_NoMemory();
            return -1;
        }
        memcpy(grown, arrays->items, bytes);
        if (arrays->items != arrays->local)
            PyMem_Free(arrays->items);
        arrays->items = grown;
        arrays->capacity *= 2;
    }
    if (mfpy_import(state, object, type, writable, stream, &arrays->items[arrays->count]) < 0)
        return -1;
    arrays->count++;
    return 0;
}

void mfpy_arrays_clear(mfpy_arrays *arrays)
{
    for (int i = 0; i < arrays->count; i++)
        mfpy_array_clear(&arrays->items[i]);
    if (arrays->items != arrays->local)
        PyMem_Free(arrays->items);
    mfpy_arrays_init(arrays);
}

PyObject *mfpy_describe(const mfpy_array *array)
{
    PyObject *type = PyObject_GetAttrString((PyObject *)array->type.type, "__qualname__");
    PyObject *module = PyObject_GetAttrString((PyObject *)array->type.type, "__module__");
    PyObject *text = NULL;
    if (type && module && array->tensor.device == MF_CPU)
        text = PyUnicode_FromFormat("a %U.%U on the CPU", module, type);
    else if (type && module)
        text = PyUnicode_FromFormat("a %U.%U on cuda:%d", module, type, (int)array->tensor.device_index);
    Py_XDECREF(type);
    Py_XDECREF(module);
    return text;
}
