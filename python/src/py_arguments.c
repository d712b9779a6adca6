/* Arguments of a launch: arrays to addresses, numbers to what the kernel's source declares. */
#include "py_launch.h"

/* ---- where an array lies ---- */

typedef struct location {
    void *address;
    int dtype; /* mf_dtype, or -1 for one that mathfuse has no name for */
    mf_device_kind device;
    int index;
    bool read_only;
} location;

static int locate_struct(mfpy_state *state, PyObject *object, location *out)
{
    PyObject *capsule = PyObject_GetAttr(object, state->names[MFPY_S_ARRAY_STRUCT]);
    const mfpy_array_struct *s = capsule ? PyCapsule_GetPointer(capsule, NULL) : NULL;
    if (s) {
        int dtype = mfpy_struct_dtype(state, object, s);
        *out = (location){s->data, dtype < 0 ? -1 : dtype, MF_CPU, 0, !(s->flags & MFPY_WRITEABLE)};
    }
    Py_XDECREF(capsule);
    return PyErr_Occurred() ? -1 : 0;
}

/* Torch may keep a conjugation or negation beside the memory. */
static int check_torch(mfpy_state *state, PyObject *object, int dtype)
{
    if (dtype != MF_C64 && dtype != MF_C128)
        return 0;
    int pending = mfpy_truth(object, state->names[MFPY_S_IS_CONJ], true);
    if (pending == 0)
        pending = mfpy_truth(object, state->names[MFPY_S_IS_NEG], true);
    if (pending > 0)
        mfpy_fail(state, MF_E_INVALID,
                  "a tensor is conjugated or negated lazily, which a kernel does not see: pass "
                  "x.resolve_conj().resolve_neg()");
    return pending ? -1 : 0;
}

static int locate_exchange(mfpy_state *state, const mfpy_type *type, PyObject *object, location *out)
{
    mfpy_dltensor t = {0};
    if (type->api->borrow(object, &t) != 0)
        return -1;
    bool cpu = t.device.type == MFPY_DL_CPU || t.device.type == MFPY_DL_CUDA_HOST;
    int dtype = mfpy_dlpack_dtype(t.dtype.code, t.dtype.bits, t.dtype.lanes);
    *out = (location){(char *)t.data + t.byte_offset, dtype < 0 ? -1 : dtype, cpu ? MF_CPU : MF_CUDA,
                      cpu ? 0 : t.device.id, false};
    return type->library == MFPY_TORCH ? check_torch(state, object, dtype) : 0;
}

/* object.first.second as an integer. */
static long long number_at(PyObject *object, const char *first, const char *second)
{
    PyObject *inner = PyObject_GetAttrString(object, first);
    PyObject *number = inner ? PyObject_GetAttrString(inner, second) : NULL;
    long long result = number ? (long long)PyLong_AsUnsignedLongLong(number) : -1;
    Py_XDECREF(inner);
    Py_XDECREF(number);
    return result;
}

/* CuPy's own attributes are found several times faster than what it gives to others. */
static int locate_cupy(mfpy_state *state, PyObject *object, location *out)
{
    long long address = number_at(object, "data", "ptr");
    long long index = PyErr_Occurred() ? -1 : number_at(object, "device", "id");
    PyObject *dtype = PyErr_Occurred() ? NULL : PyObject_GetAttr(object, state->names[MFPY_S_DTYPE]);
    if (!dtype)
        return -1;
    int found = -1;
    for (int d = 0; d < MF_DTYPE_COUNT && found < 0; d++)
        found = state->dtypes[d] == dtype ? d : -1;
    if (found < 0) {
        found = mfpy_dtype_named(state, dtype);
        if (found >= 0 && !mfpy_dtype_object(state, (mf_dtype)found)) /* found at once from now on */
            PyErr_Clear();
    }
    Py_DECREF(dtype);
    *out = (location){(void *)(uintptr_t)address, found, MF_CUDA, (int)index, false};
    return found == -1 ? -1 : 0;
}

/* Any other array: (address, dtype's name, device index or -1). */
static int locate_slowly(const mfpy_launcher *self, PyObject *object, location *out)
{
    PyObject *found = PyObject_CallFunctionObjArgs(self->locate, object, NULL);
    const char *name;
    unsigned long long address;
    int index;
    int result = found && PyArg_ParseTuple(found, "Ksi", &address, &name, &index) ? 0 : -1;
    if (result == 0) {
        mf_dtype dtype;
        *out = (location){(void *)(uintptr_t)address, -1, index < 0 ? MF_CPU : MF_CUDA, index < 0 ? 0 : index, false};
        if (mf_dtype_parse(&dtype, name) == MF_OK)
            out->dtype = (int)dtype;
    }
    Py_XDECREF(found);
    return result;
}

static int locate(mfpy_state *state, const mfpy_launcher *self, PyObject *object, const mfpy_type *type, location *out)
{
    if (type->kind == MFPY_STRUCT)
        return locate_struct(state, object, out);
    if (type->kind == MFPY_EXCHANGE)
        return locate_exchange(state, type, object, out);
    if (type->library == MFPY_CUPY)
        return locate_cupy(state, object, out);
    return locate_slowly(self, object, out);
}

/* ---- one argument ---- */

/* "argument 2 (y) of gated" */
#define WHERE "argument %d (%U) of %U"

static int array_argument(mfpy_state *state, const mfpy_launcher *self, int i, PyObject *object, const mfpy_type *type,
                          mfpy_arguments *a)
{
    const mfpy_parameter *p = &self->parameters[i];
    location at = {NULL, -1, MF_CPU, 0, false};
    if (locate(state, self, object, type, &at) < 0)
        return -1;
    if (p->dtypes && (at.dtype < 0 || !(p->dtypes >> at.dtype & 1))) {
        PyObject *dtype = PyObject_GetAttr(object, state->names[MFPY_S_DTYPE]);
        if (dtype)
            mfpy_fail(state, MF_E_TYPE, WHERE " points to %U and takes %U; the array is %S", i, p->name, self->name,
                      p->type, p->allowed, dtype);
        Py_XDECREF(dtype);
        return -1;
    }
    if (p->writable && at.read_only) {
        mfpy_fail(state, MF_E_INVALID, WHERE " is no pointer to const, and the array is read-only", i, p->name,
                  self->name);
        return -1;
    }
    if (a->first < 0) {
        a->first = i;
        a->place = (mfpy_place){*type, at.device, at.index};
    } else if (at.device != a->place.device || at.index != a->place.index) {
        mfpy_fail(state, MF_E_DEVICE,
                  "the arrays of %U must share a device: " WHERE " lies on %s:%d, argument %d on %s:%d", self->name, i,
                  p->name, self->name, at.device == MF_CPU ? "cpu" : "cuda", at.index, a->first,
                  a->place.device == MF_CPU ? "cpu" : "cuda", a->place.index);
        return -1;
    }
    a->values[i].pointer = at.address;
    a->bytes[i] = sizeof(void *);
    return 0;
}

/* Fails if `n` does not fit into `bytes`. */
static int store_integer(mfpy_value *v, size_t bytes, bool is_signed, PyObject *number)
{
    if (bytes == 8 && !is_signed) {
        v->i8 = (int64_t)PyLong_AsUnsignedLongLong(number);
        return PyErr_Occurred() ? -1 : 0;
    }
    long long n = PyLong_AsLongLong(number), bits = 8 * (long long)bytes;
    long long least = is_signed ? -(1ll << (bits - 1)) : 0;
    if (PyErr_Occurred() || (bytes < 8 && (n < least || n > (is_signed ? (1ll << (bits - 1)) - 1 : (1ll << bits) - 1))))
        return -1;
    if (bytes == 1)
        v->i1 = (int8_t)n;
    else if (bytes == 2)
        v->i2 = (int16_t)n;
    else if (bytes == 4)
        v->i4 = (int32_t)n;
    else
        v->i8 = n;
    return 0;
}

size_t mfpy_scalar_size(char code)
{
    static const char codes[] = "?bBhHiIfqQd";
    static const uint8_t sizes[] = {1, 1, 1, 2, 2, 4, 4, 4, 8, 8, 8};
    const char *found = strchr(codes, code);
    return found && code ? sizes[found - codes] : 0;
}

static int scalar_argument(PyObject *object, char code, mfpy_value *v)
{
    if (code == 'f' || code == 'd') {
        double x = PyFloat_AsDouble(object);
        if (x == -1.0 && PyErr_Occurred())
            return -1;
        if (code == 'f')
            v->f4 = (float)x;
        else
            v->f8 = x;
        return 0;
    }
    if (code == '?') {
        int truth = PyObject_IsTrue(object);
        v->i1 = (int8_t)truth;
        return truth < 0 ? -1 : 0;
    }
    PyObject *number = PyNumber_Index(object);
    int result = number ? store_integer(v, mfpy_scalar_size(code), code >= 'a', number) : -1;
    Py_XDECREF(number);
    return result;
}

/* A value of a type that only the kernel knows: its bytes, or a NumPy scalar. */
static int bytes_argument(mfpy_state *state, const mfpy_launcher *self, int i, PyObject *object, mfpy_arguments *a)
{
    const mfpy_parameter *p = &self->parameters[i];
    a->held[i] = PyBytes_Check(object) ? Py_NewRef(object) : PyObject_CallMethod(object, "tobytes", NULL);
    char *data = NULL;
    Py_ssize_t size = 0;
    if (!a->held[i] || PyBytes_AsStringAndSize(a->held[i], &data, &size) < 0) {
        PyErr_Clear();
        mfpy_fail(state, MF_E_TYPE, WHERE " has the type %U, which is not known: pass its bytes or a NumPy scalar", i,
                  p->name, self->name, p->type);
        return -1;
    }
    a->addresses[i] = data;
    a->bytes[i] = (size_t)size;
    return 0;
}

/* NumPy's scalars look like arrays, but only arrays can be finalised. */
static bool is_array(const mfpy_type *type)
{
    if (type->kind != MFPY_STRUCT)
        return mfpy_is_array(type->kind) && type->kind != MFPY_CONVERT;
    PyObject *attribute = PyObject_GetAttrString((PyObject *)type->type, "__array_finalize__");
    PyErr_Clear();
    Py_XDECREF(attribute);
    return attribute != NULL;
}

int mfpy_argument(mfpy_state *state, const mfpy_launcher *self, int i, PyObject *object, mfpy_arguments *a)
{
    const mfpy_parameter *p = &self->parameters[i];
    mfpy_type type;
    a->addresses[i] = &a->values[i];
    if (p->code == 'P') {
        if (mfpy_classify(state, object, &type) < 0)
            return -1;
        if (is_array(&type))
            return array_argument(state, self, i, object, &type, a);
        mfpy_fail(state, MF_E_TYPE, WHERE " is a pointer: pass an array, not %R", i, p->name, self->name,
                  (PyObject *)Py_TYPE(object));
        return -1;
    }
    if (!PyLong_CheckExact(object) && !PyFloat_CheckExact(object)) {
        if (mfpy_classify(state, object, &type) < 0)
            return -1;
        if (is_array(&type)) {
            mfpy_fail(state, MF_E_TYPE, WHERE " is a %U, not a pointer: pass a number", i, p->name, self->name,
                      p->type);
            return -1;
        }
    }
    if (p->code == 'x')
        return bytes_argument(state, self, i, object, a);
    a->bytes[i] = mfpy_scalar_size(p->code);
    if (scalar_argument(object, p->code, &a->values[i]) < 0) {
        PyErr_Clear();
        mfpy_fail(state, MF_E_TYPE, WHERE " is a %U; %R is not one", i, p->name, self->name, p->type, object);
        return -1;
    }
    return 0;
}
