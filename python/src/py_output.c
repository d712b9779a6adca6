/* Making results in the caller's library, and finding the stream to launch on. */
#include "py_core.h"

PyObject *mfpy_dtype_object(mfpy_state *state, mf_dtype dtype)
{
    if (state->dtypes[dtype])
        return state->dtypes[dtype];
    PyObject *helper = mfpy_helper_get(state, MFPY_H_DTYPE);
    PyObject *made = helper ? PyObject_CallFunction(helper, "s", mf_dtype_numpy(dtype)) : NULL;
    if (!made)
        return NULL;
    MFPY_LOCK(state->lock);
    PyObject *extra = made;
    if (!state->dtypes[dtype]) {
        state->dtypes[dtype] = made;
        extra = NULL;
    }
    MFPY_UNLOCK(state->lock);
    Py_XDECREF(extra);
    return state->dtypes[dtype];
}

static PyObject *numpy_empty(mfpy_state *state, mf_dtype dtype, PyObject *shape)
{
    PyObject *empty = mfpy_helper_get(state, MFPY_H_NUMPY_EMPTY), *object = mfpy_dtype_object(state, dtype);
    return empty && object ? PyObject_CallFunctionObjArgs(empty, shape, object, NULL) : NULL;
}

static PyObject *library_empty(mfpy_state *state, const mfpy_place *place, mf_dtype dtype, PyObject *shape)
{
    static const char *const names[] = {"numpy", "torch", "cupy", ""};
    PyObject *helper = mfpy_helper_get(state, MFPY_H_EMPTY);
    return helper ? PyObject_CallFunction(helper, "sOsOi", names[place->type.library], (PyObject *)place->type.type,
                                          mf_dtype_numpy(dtype), shape, place->device == MF_CPU ? -1 : place->index)
                  : NULL;
}

int mfpy_allocate(mfpy_state *state, const mfpy_place *place, mf_dtype dtype, int ndim, const int64_t *shape,
                  PyObject *shape_tuple, mfpy_array *out)
{
    PyObject *made;
    const mfpy_exchange *api = place->type.api;
    if (place->type.library == MFPY_NUMPY) {
        made = numpy_empty(state, dtype, shape_tuple);
    } else if (api && api->allocate && api->to_object) {
        mf_tensor like;
        mf_tensor_init(&like, NULL, dtype, ndim, shape);
        like.device = place->device;
        like.device_index = place->index;
        made = mfpy_dlpack_allocate(state, api, &like);
    } else {
        made = library_empty(state, place, dtype, shape_tuple);
    }
    if (!made)
        return -1;
    mfpy_type type;
    mfpy_classify(state, made, &type);
    int result = mfpy_import(state, made, &type, place->type.library != MFPY_OTHER, -1, out);
    Py_DECREF(made);
    return result;
}

static int pointer_from(PyObject *number, void **out)
{
    if (!number)
        return -1;
    *out = PyLong_AsVoidPtr(number);
    Py_DECREF(number);
    return !*out && PyErr_Occurred() ? -1 : 0;
}

static int given_stream(mfpy_state *state, PyObject *stream, void **out)
{
    if (PyLong_Check(stream))
        return pointer_from(Py_NewRef(stream), out);
    PyObject *helper = mfpy_helper_get(state, MFPY_H_STREAM_POINTER);
    return pointer_from(helper ? PyObject_CallFunctionObjArgs(helper, stream, NULL) : NULL, out);
}

int mfpy_stream(mfpy_state *state, const mfpy_place *place, PyObject *stream, void **out)
{
    static const char *const names[] = {"numpy", "torch", "cupy", ""};
    *out = NULL;
    if (place->device == MF_CPU)
        return 0;
    if (stream && stream != Py_None)
        return given_stream(state, stream, out);
    const mfpy_exchange *api = place->type.api;
    if (api && api->current_stream)
        return api->current_stream(MFPY_DL_CUDA, place->index, out) == 0 ? 0 : -1;
    PyObject *helper = mfpy_helper_get(state, MFPY_H_CURRENT_STREAM);
    return pointer_from(helper ? PyObject_CallFunction(helper, "si", names[place->type.library], place->index) : NULL,
                        out);
}

int mfpy_import_stream(mfpy_state *state, PyObject *stream, int64_t *out)
{
    *out = -1;
    if (!stream || stream == Py_None)
        return 0;
    void *pointer = NULL;
    if (given_stream(state, stream, &pointer) < 0)
        return -1;
    *out = pointer ? (int64_t)(intptr_t)pointer : 1; /* DLPack's name for the legacy default stream */
    return 0;
}
