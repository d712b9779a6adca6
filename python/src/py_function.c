/* mathfuse._core.Function: a callable with its plans. A call whose signature was seen before runs its plan without any
 * Python code; a new one is traced by mathfuse._trace.build. */
#include "py_core.h"

/* The table starts over beyond MAX_ENTRIES; and where its plans keep more than HELD_MAX bytes, unless they are few. */
enum { MAX_ENTRIES = 1024, FEW_ENTRIES = 16, HELD_MAX = 512 << 20, FIRST_SLOTS = 8 };

typedef struct entry {
    uint64_t hash;
    uint8_t *bytes; /* NULL: free slot */
    size_t length;
    PyObject *plan, *references; /* the objects that the bytes name */
} entry;

typedef struct function {
    PyObject_HEAD PyObject *implementation, *dict, *weak;
    int flags; /* MF_PLAN_* */
    entry *slots;
    size_t count, capacity;  /* capacity: a power of two */
    size_t held;             /* bytes that the plans keep */
    PyThread_type_lock lock; /* slots */
} function;

#define FUNCTION(self) ((function *)(self))

/* ---- the table ---- */

static uint64_t hash_bytes(const uint8_t *bytes, size_t length)
{
    uint64_t h = 0x9e3779b97f4a7c15u ^ length;
    for (size_t i = 0; i < length; i += 8) {
        uint64_t word;
        memcpy(&word, bytes + i, 8);
        h = (h ^ word) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    return h;
}

static entry *slot_for(entry *slots, size_t capacity, uint64_t hash, const uint8_t *bytes, size_t length)
{
    size_t at = hash & (capacity - 1);
    while (slots[at].bytes &&
           (slots[at].hash != hash || slots[at].length != length || memcmp(slots[at].bytes, bytes, length) != 0))
        at = (at + 1) & (capacity - 1);
    return &slots[at];
}

static PyObject *find_plan(function *self, uint64_t hash, const mfpy_signature *s)
{
    PyObject *plan = NULL;
    MFPY_LOCK(self->lock);
    if (self->capacity)
        plan = Py_XNewRef(slot_for(self->slots, self->capacity, hash, s->bytes, s->length)->plan);
    MFPY_UNLOCK(self->lock);
    return plan;
}

static void release_entries(entry *slots, size_t capacity)
{
    for (size_t i = 0; i < capacity; i++) {
        PyMem_Free(slots[i].bytes);
        Py_XDECREF(slots[i].plan);
        Py_XDECREF(slots[i].references);
    }
    PyMem_Free(slots);
}

/* All entries leave the table. To release them may run any code, so whoever takes them does it outside the lock. */
static entry *take_entries(function *self, size_t *capacity)
{
    entry *slots = self->slots;
    *capacity = self->capacity;
    self->slots = NULL;
    self->count = self->capacity = self->held = 0;
    return slots;
}

static bool grow(function *self)
{
    size_t capacity = self->capacity ? 2 * self->capacity : FIRST_SLOTS;
    entry *slots = PyMem_Calloc(capacity, sizeof *slots);
    if (!slots)
        return false;
    for (size_t i = 0; i < self->capacity; i++)
        if (self->slots[i].bytes)
            *slot_for(slots, capacity, self->slots[i].hash, self->slots[i].bytes, self->slots[i].length) =
                self->slots[i];
    PyMem_Free(self->slots);
    self->slots = slots;
    self->capacity = capacity;
    return true;
}

static PyObject *references_of(const mfpy_signature *s)
{
    PyObject *tuple = PyTuple_New(s->reference_count);
    for (int i = 0; tuple && i < s->reference_count; i++)
        PyTuple_SetItem(tuple, i, Py_NewRef(s->references[i]));
    return tuple;
}

static size_t held_by(const mfpy_plan *plan)
{
    int index;
    bool gpu = mf_context_device(((mfpy_context *)plan->context)->context, &index) == MF_CUDA;
    return mf_plan_memory(plan->plan) >> (gpu ? 3 : 0); /* a device's memory counts less */
}

/* Remember a plan. When the table is full it starts over: a signature that never repeats must not fill the memory. */
static int remember(function *self, uint64_t hash, const mfpy_signature *s, PyObject *plan)
{
    entry fresh = {hash, PyMem_Malloc(s->length + 1), s->length, Py_NewRef(plan), references_of(s)};
    entry *dropped = NULL;
    size_t dropped_capacity = 0, held = held_by((mfpy_plan *)plan);
    bool stored = false;
    if (fresh.bytes && fresh.references) {
        memcpy(fresh.bytes, s->bytes, s->length);
        MFPY_LOCK(self->lock);
        if (self->count >= MAX_ENTRIES || (self->count >= FEW_ENTRIES && self->held + held > HELD_MAX))
            dropped = take_entries(self, &dropped_capacity);
        if (2 * (self->count + 1) <= self->capacity || grow(self)) {
            entry *slot = slot_for(self->slots, self->capacity, hash, fresh.bytes, fresh.length);
            self->count += !slot->bytes;
            self->held += slot->bytes ? 0 : held;
            entry old = *slot;
            *slot = fresh;
            fresh = old;
            stored = true;
        }
        MFPY_UNLOCK(self->lock);
    }
    release_entries(dropped, dropped_capacity);
    PyMem_Free(fresh.bytes);
    Py_XDECREF(fresh.plan);
    Py_XDECREF(fresh.references);
    if (!stored)
        PyErr_NoMemory();
    return stored ? 0 : -1;
}

/* ---- a new signature ---- */

static PyObject *specs_of(const mfpy_arrays *arrays)
{
    PyObject *list = PyList_New(arrays->count);
    for (int i = 0; list && i < arrays->count; i++) {
        const mf_tensor *t = &arrays->items[i].tensor;
        PyObject *shape = mfpy_ints_tuple(t->ndim, t->shape);
        PyObject *item = shape ? Py_BuildValue("sN", mf_dtype_name(t->dtype), shape) : NULL;
        if (!item || PyList_SetItem(list, i, item) < 0)
            Py_CLEAR(list);
    }
    return list;
}

/* The keyword arguments that the implementation gets: all but out and stream. */
static PyObject *plain_keywords(mfpy_state *state, PyObject *kwargs)
{
    PyObject *copy = kwargs ? PyDict_Copy(kwargs) : PyDict_New();
    for (int i = MFPY_S_OUT; copy && i <= MFPY_S_STREAM; i++)
        if (PyDict_GetItemWithError(copy, state->names[i]) && PyDict_DelItem(copy, state->names[i]) < 0)
            Py_CLEAR(copy);
    return copy;
}

static PyObject *trace(mfpy_state *state, function *self, PyObject *args, PyObject *kwargs, const mfpy_arrays *arrays)
{
    PyObject *build = mfpy_helper_get(state, MFPY_H_BUILD);
    PyObject *keywords = plain_keywords(state, kwargs), *specs = specs_of(arrays), *built = NULL;
    if (build && keywords && specs)
        built = PyObject_CallFunctionObjArgs(build, self->implementation, args, keywords, specs, NULL);
    Py_XDECREF(keywords);
    Py_XDECREF(specs);
    return built;
}

/* Trace, then plan for the arrays at hand. Captured arrays are imported for it and dropped again: a run adds them
 * itself. */
static PyObject *plan_for(mfpy_state *state, function *self, PyObject *args, PyObject *kwargs, mfpy_arrays *arrays)
{
    PyObject *built = trace(state, self, args, kwargs, arrays), *graph, *finish, *captured, *plan = NULL;
    mfpy_place place;
    int given = arrays->count;
    if (!built)
        return NULL;
    if (PyArg_ParseTuple(built, "O!OO!", state->graph_type, &graph, &finish, &PyTuple_Type, &captured) &&
        mfpy_add_tuple(state, captured, arrays, -1) == 0 &&
        mfpy_place_of(state, arrays, self->implementation, &place) == 0) {
        mfpy_plan_request request = {.graph = graph,
                                     .context = mfpy_context_for(state, place.device, place.index),
                                     .finish = finish == Py_None ? NULL : finish,
                                     .captured = captured,
                                     .flags = self->flags,
                                     .bindings = arrays};
        plan = request.context ? mfpy_plan_create(state, &request) : NULL;
    }
    while (arrays->count > given)
        mfpy_array_clear(&arrays->items[--arrays->count]);
    Py_DECREF(built);
    return plan;
}

/* ---- calling ---- */

static PyObject *call_traced(mfpy_state *state, function *self, PyObject *args, PyObject *kwargs,
                             const mfpy_signature *s)
{
    if ((s->out && s->out != Py_None) || (s->stream && s->stream != Py_None)) {
        PyErr_SetString(PyExc_TypeError, "out= and stream= belong to the call of the fused function, not inside it");
        return NULL;
    }
    PyObject *keywords = plain_keywords(state, kwargs);
    PyObject *result = keywords ? PyObject_Call(self->implementation, args, keywords) : NULL;
    Py_XDECREF(keywords);
    return result;
}

static PyObject *call_planned(mfpy_state *state, function *self, PyObject *args, PyObject *kwargs,
                              const mfpy_signature *s, mfpy_arrays *arrays)
{
    uint64_t hash = hash_bytes(s->bytes, s->length);
    PyObject *plan = find_plan(self, hash, s);
    if (!plan) {
        plan = plan_for(state, self, args, kwargs, arrays);
        if (!plan)
            return NULL;
        if (remember(self, hash, s, plan) < 0) {
            Py_DECREF(plan);
            return NULL;
        }
    }
    PyObject *result = mfpy_plan_execute(state, plan, arrays, s->out, s->stream);
    Py_DECREF(plan);
    return result;
}

static PyObject *function_call(PyObject *self, PyObject *args, PyObject *kwargs)
{
    mfpy_state *state = mfpy_state_of_object(self);
    mfpy_signature signature;
    mfpy_arrays arrays;
    mfpy_signature_init(&signature);
    mfpy_arrays_init(&arrays);
    PyObject *result = NULL;
    if (mfpy_signature_of_call(state, args, kwargs, &signature, &arrays) == 0) {
        if (signature.traced)
            result = call_traced(state, FUNCTION(self), args, kwargs, &signature);
        else
            result = call_planned(state, FUNCTION(self), args, kwargs, &signature, &arrays);
    }
    mfpy_signature_clear(&signature);
    mfpy_arrays_clear(&arrays);
    return result;
}

/* A method when found on a class, as functions are. */
static PyObject *function_get(PyObject *self, PyObject *object, PyObject *type)
{
    (void)type;
    if (!object || object == Py_None)
        return Py_NewRef(self);
    PyObject *method = mfpy_helper_get(mfpy_state_of_object(self), MFPY_H_METHOD);
    return method ? PyObject_CallFunctionObjArgs(method, self, object, NULL) : NULL;
}

static PyObject *function_repr(PyObject *self)
{
    return PyUnicode_FromFormat("<mathfuse function over %R>", FUNCTION(self)->implementation);
}

/* ---- life ---- */

static PyObject *function_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"implementation", "flags", NULL};
    PyObject *implementation;
    int flags = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|i", names, &implementation, &flags))
        return NULL;
    if (!PyCallable_Check(implementation))
        return PyErr_Format(PyExc_TypeError, "a function is needed, not %R", implementation);
    function *self = PyObject_GC_New(function, type);
    if (!self)
        return NULL;
    self->implementation = Py_NewRef(implementation);
    self->dict = self->weak = NULL;
    self->flags = flags;
    self->slots = NULL;
    self->count = self->capacity = self->held = 0;
    self->lock = MFPY_LOCK_NEW();
    PyObject_GC_Track(self);
    return (PyObject *)self;
}

static int function_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(FUNCTION(self)->implementation);
    Py_VISIT(FUNCTION(self)->dict);
    for (size_t i = 0; i < FUNCTION(self)->capacity; i++) {
        Py_VISIT(FUNCTION(self)->slots[i].plan);
        Py_VISIT(FUNCTION(self)->slots[i].references);
    }
    return 0;
}

static int function_clear(PyObject *self)
{
    function *f = FUNCTION(self);
    size_t capacity;
    entry *slots = take_entries(f, &capacity);
    release_entries(slots, capacity);
    Py_CLEAR(f->dict);
    return 0;
}

static void function_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (FUNCTION(self)->weak)
        PyObject_ClearWeakRefs(self);
    function_clear(self);
    Py_CLEAR(FUNCTION(self)->implementation);
    MFPY_LOCK_FREE(FUNCTION(self)->lock);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyObject *function_forget(PyObject *self, PyObject *unused)
{
    (void)unused;
    function *f = FUNCTION(self);
    MFPY_LOCK(f->lock);
    size_t capacity;
    entry *slots = take_entries(f, &capacity);
    MFPY_UNLOCK(f->lock);
    release_entries(slots, capacity);
    Py_RETURN_NONE;
}

static PyObject *function_plans(PyObject *self, void *closure)
{
    (void)closure;
    return PyLong_FromSize_t(FUNCTION(self)->count);
}

static PyMemberDef function_members[] = {
    {"__dictoffset__", T_PYSSIZET, offsetof(function, dict), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(function, weak), READONLY, NULL},
    {"flags", T_INT, offsetof(function, flags), READONLY, "what every plan is made with"},
    {"__wrapped__", T_OBJECT, offsetof(function, implementation), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef function_getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {"plans", function_plans, NULL, "how many signatures have been planned", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

/* By name, as functions are pickled and copied. */
static PyObject *function_reduce(PyObject *self, PyObject *unused)
{
    (void)unused;
    return PyObject_GetAttrString(self, "__qualname__");
}

static PyMethodDef function_methods[] = {
    {"__reduce__", function_reduce, METH_NOARGS, NULL},
    {"forget", function_forget, METH_NOARGS, "forget($self, /)\n--\n\nDrop all plans; the next call traces again."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot function_slots[] = {
    {Py_tp_new, function_new},
    {Py_tp_dealloc, function_dealloc},
    {Py_tp_traverse, function_traverse},
    {Py_tp_clear, function_clear},
    {Py_tp_call, function_call},
    {Py_tp_descr_get, function_get},
    {Py_tp_repr, function_repr},
    {Py_tp_members, function_members},
    {Py_tp_getset, function_getset},
    {Py_tp_methods, function_methods},
    {0, NULL},
};

PyType_Spec mfpy_function_spec = {
    .name = "mathfuse._core.Function",
    .basicsize = sizeof(function),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = function_slots,
};
