/* The signature of a call: a walk over its arguments that tells arrays from static values and writes both down as
 * bytes. */
#include "py_core.h"

enum {
    TAG_ARRAY = 1,
    TAG_INT,
    TAG_FLOAT,
    TAG_COMPLEX,
    TAG_NUMBER,
    TAG_STR,
    TAG_IDENTITY,
    TAG_SEQUENCE,
    TAG_DICT,
    TAG_SLICE,
    TAG_KEYWORD
};

/* Where the walk is: which argument, for messages. */
typedef struct walk {
    mfpy_state *state;
    mfpy_signature *signature;
    mfpy_arrays *arrays;
    int64_t stream;
    int position;
    PyObject *keyword;
} walk;

void mfpy_signature_init(mfpy_signature *s)
{
    s->bytes = s->local;
    s->length = 0;
    s->capacity = sizeof s->local;
    s->references = s->local_references;
    s->reference_count = 0;
    s->reference_capacity = (int)(sizeof s->local_references / sizeof *s->local_references);
    s->traced = false;
    s->out = s->stream = NULL;
}

void mfpy_signature_clear(mfpy_signature *s)
{
    if (s->bytes != s->local)
        PyMem_Free(s->bytes);
    if (s->references != s->local_references)
        PyMem_Free(s->references);
    mfpy_signature_init(s);
}

static int write_bytes(mfpy_signature *s, const void *data, size_t bytes)
{
    size_t padded = (bytes + 7) / 8 * 8;
    if (s->length + padded > s->capacity) {
        size_t capacity = 2 * (s->length + padded);
        uint8_t *grown = PyMem_Malloc(capacity);
        if (!grown) {
            PyErr_NoMemory();
            return -1;
        }
        memcpy(grown, s->bytes, s->length);
        if (s->bytes != s->local)
            PyMem_Free(s->bytes);
        s->bytes = grown;
        s->capacity = capacity;
    }
    if (padded != bytes)
        memset(s->bytes + s->length + padded - 8, 0, 8);
    memcpy(s->bytes + s->length, data, bytes);
    s->length += padded;
    return 0;
}

static int write_word(mfpy_signature *s, uint64_t word)
{
    return write_bytes(s, &word, sizeof word);
}

static int write_tag(mfpy_signature *s, int tag, uint64_t detail)
{
    return write_word(s, (uint64_t)tag << 56 | (detail & 0x00ffffffffffffff));
}

static int write_identity(mfpy_signature *s, PyObject *object)
{
    if (s->reference_count == s->reference_capacity) {
        size_t bytes = sizeof(PyObject *) * (size_t)s->reference_capacity;
        PyObject **grown = PyMem_Malloc(2 * bytes);
        if (!grown) {
            PyErr_NoMemory();
            return -1;
        }
        memcpy(grown, s->references, bytes);
        if (s->references != s->local_references)
            PyMem_Free(s->references);
        s->references = grown;
        s->reference_capacity *= 2;
    }
    s->references[s->reference_count++] = object;
    return write_word(s, (uint64_t)(uintptr_t)object);
}

static int write_text(mfpy_signature *s, PyObject *text)
{
    Py_ssize_t length;
    const char *data = PyUnicode_AsUTF8AndSize(text, &length);
    return data && write_tag(s, TAG_STR, (uint64_t)length) == 0 ? write_bytes(s, data, (size_t)length) : -1;
}

static int write_array(mfpy_signature *s, const mfpy_array *array)
{
    const mf_tensor *t = &array->tensor;
    uintptr_t address = (uintptr_t)t->data;
    uint64_t alignment = address % 16 ? address & (~address + 1) : 16; /* finer classes are the plan's business */
    if (write_tag(s, TAG_ARRAY,
                  (uint64_t)t->ndim << 32 | (uint64_t)t->dtype << 24 | (uint64_t)t->device << 20 |
                      (uint64_t)array->type.library << 16 | (uint64_t)(t->device_index & 0xff) << 8 | alignment) < 0)
        return -1;
    return write_bytes(s, t->shape, (size_t)t->ndim * 8) < 0 ? -1 : write_bytes(s, t->strides, (size_t)t->ndim * 8);
}

/* Numbers and text by value and type; false: none of those. */
static int write_plain(mfpy_signature *s, PyObject *object, bool *done)
{
    PyTypeObject *type = Py_TYPE(object);
    *done = true;
    if (type == &PyFloat_Type) {
        double value = PyFloat_AsDouble(object);
        return write_tag(s, TAG_FLOAT, 0) < 0 ? -1 : write_bytes(s, &value, sizeof value);
    }
    if (type == &PyUnicode_Type)
        return write_text(s, object);
    if (type == &PyComplex_Type) {
        double parts[2] = {PyComplex_RealAsDouble(object), PyComplex_ImagAsDouble(object)};
        return write_tag(s, TAG_COMPLEX, 0) < 0 ? -1 : write_bytes(s, parts, sizeof parts);
    }
    if (type == &PyLong_Type) {
        int overflow;
        long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
        if (!overflow)
            return write_tag(s, TAG_INT, 0) < 0 ? -1 : write_word(s, (uint64_t)value);
    }
    *done = false;
    return 0;
}

static int walk_object(walk *w, PyObject *object);

static int walk_sequence(walk *w, PyObject *object, Py_ssize_t count, bool tuple)
{
    if (write_tag(w->signature, TAG_SEQUENCE, (uint64_t)count) < 0 ||
        write_identity(w->signature, (PyObject *)Py_TYPE(object)) < 0)
        return -1;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = tuple ? PyTuple_GetItem(object, i) : PyList_GetItem(object, i);
        if (!item || walk_object(w, item) < 0)
            return -1;
    }
    return 0;
}

static int walk_dict(walk *w, PyObject *object)
{
    Py_ssize_t at = 0;
    PyObject *key, *value;
    if (write_tag(w->signature, TAG_DICT, (uint64_t)PyDict_Size(object)) < 0)
        return -1;
    while (PyDict_Next(object, &at, &key, &value)) {
        bool done;
        if (write_plain(w->signature, key, &done) < 0)
            return -1;
        if (!done && write_identity(w->signature, key) < 0)
            return -1;
        if (walk_object(w, value) < 0)
            return -1;
    }
    return 0;
}

static int walk_slice(walk *w, PyObject *object)
{
    static const char *const parts[] = {"start", "stop", "step"};
    if (write_tag(w->signature, TAG_SLICE, 0) < 0)
        return -1;
    for (int i = 0; i < 3; i++) {
        PyObject *part = PyObject_GetAttrString(object, parts[i]);
        int result = part ? walk_object(w, part) : -1; /* the slice keeps it alive */
        Py_XDECREF(part);
        if (result < 0)
            return -1;
    }
    return 0;
}

/* A name for the argument in front of what went wrong with it. */
static void name_argument(const walk *w)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    PyObject *text = w->keyword ? PyUnicode_FromFormat("argument %R: %S", w->keyword, value)
                                : PyUnicode_FromFormat("argument %d: %S", w->position + 1, value);
    if (text &&
        (PyErr_GivenExceptionMatches(type, PyExc_TypeError) || PyErr_GivenExceptionMatches(type, PyExc_ValueError))) {
        PyErr_SetObject(type, text);
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(traceback);
    } else {
        PyErr_Restore(type, value, traceback);
    }
    Py_XDECREF(text);
}

static int write_number(mfpy_signature *s, PyObject *object)
{
    PyObject *integer = PyNumber_Long(object);
    int overflow = 0;
    long long value = integer ? PyLong_AsLongLongAndOverflow(integer, &overflow) : -1;
    Py_XDECREF(integer);
    if (!integer)
        return -1;
    if (overflow) {
        PyErr_Format(PyExc_OverflowError, "%R is beyond 64 bits with sign", object);
        return -1;
    }
    if (write_tag(s, TAG_NUMBER, 0) < 0 || write_identity(s, (PyObject *)Py_TYPE(object)) < 0)
        return -1;
    return write_word(s, (uint64_t)value);
}

static int walk_leaf(walk *w, PyObject *object)
{
    mfpy_type type;
    mfpy_classify(w->state, object, &type);
    if (type.kind == MFPY_TRACED) {
        w->signature->traced = true;
        return 0;
    }
    if (type.kind == MFPY_NUMBER)
        return write_number(w->signature, object);
    if (!mfpy_is_array(type.kind))
        return write_tag(w->signature, TAG_IDENTITY, 0) < 0 ? -1 : write_identity(w->signature, object);
    if (mfpy_arrays_add(w->state, w->arrays, object, &type, false, w->stream) < 0) {
        name_argument(w);
        return -1;
    }
    mfpy_array *array = &w->arrays->items[w->arrays->count - 1];
    array->position = w->position;
    array->keyword = w->keyword;
    return write_array(w->signature, array);
}

static int walk_container(walk *w, PyObject *object, bool *done)
{
    *done = true;
    if (PyTuple_Check(object))
        return walk_sequence(w, object, PyTuple_Size(object), true);
    if (Py_TYPE(object) == &PyList_Type)
        return walk_sequence(w, object, PyList_Size(object), false);
    if (Py_TYPE(object) == &PyDict_Type)
        return walk_dict(w, object);
    if (Py_TYPE(object) == &PySlice_Type)
        return walk_slice(w, object);
    *done = false;
    return 0;
}

static int walk_object(walk *w, PyObject *object)
{
    bool done;
    if (w->signature->traced)
        return 0;
    if (write_plain(w->signature, object, &done) < 0)
        return -1;
    if (done)
        return 0;
    if (Py_EnterRecursiveCall(" while looking for arrays in the arguments"))
        return -1;
    int result = walk_container(w, object, &done);
    Py_LeaveRecursiveCall();
    return done || result < 0 ? result : walk_leaf(w, object);
}

static bool is_name(mfpy_state *state, PyObject *key, mfpy_name name)
{
    return key == state->names[name] || PyUnicode_Compare(key, state->names[name]) == 0;
}

static int walk_keywords(walk *w, PyObject *kwargs)
{
    Py_ssize_t at = 0;
    PyObject *key, *value;
    while (PyDict_Next(kwargs, &at, &key, &value)) {
        if (is_name(w->state, key, MFPY_S_OUT) || is_name(w->state, key, MFPY_S_STREAM))
            continue;
        w->keyword = key;
        if (write_tag(w->signature, TAG_KEYWORD, 0) < 0 || write_text(w->signature, key) < 0 ||
            walk_object(w, value) < 0)
            return -1;
    }
    return 0;
}

int mfpy_signature_of_call(mfpy_state *state, PyObject *args, PyObject *kwargs, mfpy_signature *signature,
                           mfpy_arrays *arrays)
{
    walk w = {state, signature, arrays, -1, 0, NULL};
    if (kwargs) {
        signature->out = PyDict_GetItemWithError(kwargs, state->names[MFPY_S_OUT]);
        signature->stream = PyDict_GetItemWithError(kwargs, state->names[MFPY_S_STREAM]);
        if (mfpy_import_stream(state, signature->stream, &w.stream) < 0)
            return -1;
    }
    Py_ssize_t count = PyTuple_Size(args);
    for (Py_ssize_t i = 0; i < count; i++) {
        w.position = (int)i;
        if (walk_object(&w, PyTuple_GetItem(args, i)) < 0)
            return -1;
    }
    return kwargs ? walk_keywords(&w, kwargs) : 0;
}
