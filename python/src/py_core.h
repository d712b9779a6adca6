/* What the extension's files share: module state, imported arrays, the argument parser. Public mathfuse headers only.
 */
#ifndef MFPY_CORE_H
#define MFPY_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "mathfuse/mathfuse.h"
#include "py_dlpack.h"

#ifdef Py_GIL_DISABLED
#define MFPY_LOCK_NEW() PyThread_allocate_lock()
#define MFPY_LOCK(lock) PyThread_acquire_lock(lock, WAIT_LOCK)
#define MFPY_UNLOCK(lock) PyThread_release_lock(lock)
#define MFPY_LOCK_FREE(lock) PyThread_free_lock(lock)
#else
/* With the GIL, what these guard runs without letting go of it. */
#define MFPY_LOCK_NEW() NULL
#define MFPY_LOCK(lock) ((void)(lock))
#define MFPY_UNLOCK(lock) ((void)(lock))
#define MFPY_LOCK_FREE(lock) ((void)(lock))
#endif

/* ---- how a Python type is taken ---- */

typedef enum mfpy_kind {
    MFPY_STATIC,   /* no array: part of the signature */
    MFPY_NUMBER,   /* a NumPy integer or bool scalar: static too, by value, for it may be an axis or a length */
    MFPY_TRACED,   /* a value inside a trace */
    MFPY_STRUCT,   /* __array_struct__: NumPy arrays and scalars, ml_dtypes' included */
    MFPY_EXCHANGE, /* DLPack's C exchange table */
    MFPY_DLPACK,   /* __dlpack__ */
    MFPY_CUDA,     /* __cuda_array_interface__ alone */
    MFPY_CONVERT,  /* memoryview, array.array, __array__: numpy.asarray first */
} mfpy_kind;

typedef enum mfpy_library { MFPY_NUMPY, MFPY_TORCH, MFPY_CUPY, MFPY_OTHER } mfpy_library;

typedef struct mfpy_type {
    PyTypeObject *type; /* strong */
    mfpy_kind kind;
    mfpy_library library;
    const mfpy_exchange *api;
} mfpy_type;

/* An array of the caller, borrowed for one call. */
typedef struct mfpy_array {
    mf_tensor tensor;
    PyObject *object; /* strong: the caller's object, or what it was converted to */
    PyObject *holder; /* strong: the capsule that keeps the view valid, or NULL */
    mfpy_type type;   /* type.type is borrowed from the object */
    bool read_only;
    bool converted;    /* object is a copy of what the caller gave */
    int position;      /* which argument it is in, or -1 */
    PyObject *keyword; /* borrowed: the keyword it was given as, or NULL */
} mfpy_array;

/* Arrays of one call. The first few live in place. */
typedef struct mfpy_arrays {
    mfpy_array *items, local[8];
    int count, capacity;
} mfpy_arrays;

/* ---- module state ---- */

enum { MFPY_TYPE_SLOTS = 64, MFPY_MAX_DEVICES = 64 };

typedef enum mfpy_name {
    MFPY_S_ARRAY_STRUCT,
    MFPY_S_DLPACK,
    MFPY_S_CAI,
    MFPY_S_DTYPE,
    MFPY_S_NAME,
    MFPY_S_OUT,
    MFPY_S_STREAM,
    MFPY_S_REQUIRES_GRAD,
    MFPY_S_IS_CONJ,
    MFPY_S_IS_NEG,
    MFPY_NAME_COUNT
} mfpy_name;

/* Python helpers of the package, imported on first use. */
typedef enum mfpy_helper {
    MFPY_H_ERROR_CLASS,
    MFPY_H_CONVERT,
    MFPY_H_EMPTY,
    MFPY_H_CURRENT_STREAM,
    MFPY_H_STREAM_POINTER,
    MFPY_H_DTYPE,
    MFPY_H_TORCH_PLAIN,
    MFPY_H_WRAP,
    MFPY_H_BUILD,
    MFPY_H_NUMPY_EMPTY,
    MFPY_H_METHOD,
    MFPY_H_DEVICE_HEADER,
    MFPY_H_TUNE,
    MFPY_H_TUNING,
    MFPY_H_PROFILE,
    MFPY_HELPER_COUNT
} mfpy_helper;

typedef struct mfpy_state {
    PyTypeObject *context_type, *graph_type, *plan_type, *function_type, *kernel_type, *launcher_type, *launch_type;
    PyObject *names[MFPY_NAME_COUNT];
    PyObject *helpers[MFPY_HELPER_COUNT];
    PyObject *dtypes[MF_DTYPE_COUNT];       /* NumPy's dtype objects */
    PyObject *cpu, *cuda[MFPY_MAX_DEVICES]; /* Context objects, made on first use */
    mfpy_type types[MFPY_TYPE_SLOTS];
    PyThread_type_lock lock; /* types, contexts, helpers */
} mfpy_state;

static inline mfpy_state *mfpy_state_of(PyTypeObject *defining)
{
    return PyType_GetModuleState(defining);
}
static inline mfpy_state *mfpy_state_of_object(PyObject *self)
{
    return PyType_GetModuleState(Py_TYPE(self));
}

/* A borrowed reference to a helper; NULL with an exception if it cannot be imported. */
PyObject *mfpy_helper_get(mfpy_state *state, mfpy_helper helper);

/* ---- errors (py_errors.c) ---- */

/* Raise the exception of a status with the thread's message; returns NULL. Call before anything else can fail. */
PyObject *mfpy_raise(mfpy_state *state, mf_status status);
/* Raise the exception of a status with words of our own; returns NULL. */
PyObject *mfpy_fail(mfpy_state *state, mf_status status, const char *format, ...);

/* ---- arguments (py_args.c) ---- */

/* One parameter. A list of them ends with {0}. kind: 'O' object, 's' str, 'i' int, 'd' float, 'p' truth value,
 * 'n' an int64 list (mfpy_ints). Parameters from the first one marked `optional` on keep what *out held when missing.
 */
typedef struct mfpy_param {
    const char *name;
    char kind;
    void *out;
    bool optional, keyword_only;
} mfpy_param;

/* Up to MF_MAX_DIMS integers out of an int or a sequence; None leaves count -1. */
typedef struct mfpy_ints {
    int count;
    int64_t values[MF_MAX_DIMS];
} mfpy_ints;

int mfpy_parse(const char *function, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames,
               const mfpy_param *params);
int mfpy_ints_from(PyObject *object, const char *what, mfpy_ints *out);
PyObject *mfpy_ints_tuple(int count, const int64_t *values);

/* ---- arrays (py_array.c, py_dlpack.c) ---- */

/* How objects of this type are taken. *out is filled; its type is borrowed. */
int mfpy_classify(mfpy_state *state, PyObject *object, mfpy_type *out);
static inline bool mfpy_is_array(mfpy_kind kind)
{
    return kind >= MFPY_STRUCT;
}

/* Import one array. writable: as an output, which is never converted. stream: what DLPack producers are to order their
 * work for; -1 if the run is on their current stream. */
int mfpy_import(mfpy_state *state, PyObject *object, const mfpy_type *type, bool writable, int64_t stream,
                mfpy_array *out);
void mfpy_array_clear(mfpy_array *array);
/* Import and append. */
int mfpy_arrays_add(mfpy_state *state, mfpy_arrays *arrays, PyObject *object, const mfpy_type *type, bool writable,
                    int64_t stream);
void mfpy_arrays_init(mfpy_arrays *arrays);
void mfpy_arrays_clear(mfpy_arrays *arrays);
/* Byte strides to element strides, and one form for axes of length 1. false: not a multiple of the element. */
bool mfpy_set_strides(mf_tensor *tensor, const intptr_t *byte_strides);
void mfpy_normalise(mf_tensor *tensor);

/* The mf_dtype of an array struct, of DLPack's type and of a NumPy dtype object. -1: an exception; -2: none of ours. */
int mfpy_struct_dtype(mfpy_state *state, PyObject *object, const mfpy_array_struct *s);
int mfpy_dlpack_dtype(uint8_t code, uint8_t bits, uint16_t lanes);
/* The truth of object.name, called if `call`; -1 with an exception. */
int mfpy_truth(PyObject *object, PyObject *name, bool call);
int mfpy_dtype_named(mfpy_state *state, PyObject *dtype);

int mfpy_import_exchange(mfpy_state *state, mfpy_array *array);
int mfpy_import_dlpack(mfpy_state *state, mfpy_array *array, int64_t stream);
int mfpy_import_cuda(mfpy_state *state, mfpy_array *array);
/* -2: unsupported but convertible dtype. */
int mfpy_dlpack_tensor(const mfpy_dltensor *from, mf_tensor *out);
PyObject *mfpy_dlpack_allocate(mfpy_state *state, const mfpy_exchange *api, const mf_tensor *like);

/* "a NumPy array on the cpu" */
PyObject *mfpy_describe(const mfpy_array *array);

/* ---- outputs and streams (py_output.c) ---- */

/* Where a call runs and what its results look like. */
typedef struct mfpy_place {
    mfpy_type type;
    mf_device_kind device;
    int index;
} mfpy_place;

/* The NumPy dtype object of a dtype, borrowed. */
PyObject *mfpy_dtype_object(mfpy_state *state, mf_dtype dtype);
/* A new array of the caller's library; *out is its import. */
int mfpy_allocate(mfpy_state *state, const mfpy_place *place, mf_dtype dtype, int ndim, const int64_t *shape,
                  PyObject *shape_tuple, mfpy_array *out);
/* The stream to launch on: `stream` if not None, else the library's current one. NULL pointer on the CPU. */
int mfpy_stream(mfpy_state *state, const mfpy_place *place, PyObject *stream, void **out);
/* What DLPack producers are told: -1 unless the caller chose a stream. */
int mfpy_import_stream(mfpy_state *state, PyObject *stream, int64_t *out);

/* ---- objects ---- */

typedef struct mfpy_context {
    PyObject_HEAD mf_context *context;
} mfpy_context;

typedef struct mfpy_kernel {
    PyObject_HEAD mf_kernel *kernel;
} mfpy_kernel;

typedef struct mfpy_graph {
    PyObject_HEAD mf_graph *graph;
} mfpy_graph;

typedef struct mfpy_output {
    mf_dtype dtype;
    int ndim;
    int64_t shape[MF_MAX_DIMS];
    PyObject *shape_tuple;
} mfpy_output;

typedef struct mfpy_plan {
    PyObject_HEAD mf_plan *plan;
    PyObject *context;  /* Context */
    PyObject *finish;   /* callable over the tuple of outputs, or NULL: one output is the result */
    PyObject *captured; /* tuple of arrays bound after the arguments */
    int inputs, outputs;
    mfpy_output *output;
} mfpy_plan;

/* The cached context of a device, borrowed; made with the GIL released. */
PyObject *mfpy_context_for(mfpy_state *state, mf_device_kind device, int index);

typedef struct mfpy_plan_request {
    PyObject *graph, *context, *finish, *captured; /* finish and captured may be NULL */
    int flags, tune;                               /* mf_tune_policy */
    const char *providers;
    const mfpy_arrays *bindings; /* or NULL */
} mfpy_plan_request;
PyObject *mfpy_plan_create(mfpy_state *state, const mfpy_plan_request *request);

/* Run over imported inputs (captured arrays are added here). out: NULL, None, an array or a tuple of them. */
PyObject *mfpy_plan_execute(mfpy_state *state, PyObject *plan, mfpy_arrays *arrays, PyObject *out, PyObject *stream);
/* Import a tuple of arrays (or NULL), those that a trace captured say, after the ones there are. */
int mfpy_add_tuple(mfpy_state *state, PyObject *captured, mfpy_arrays *arrays, int64_t stream);
/* Check that all arrays are of one library and device; fills *place: the CPU and NumPy for none. */
int mfpy_place_of(mfpy_state *state, const mfpy_arrays *arrays, PyObject *function, mfpy_place *place);

/* ---- tuning (py_tune.c): methods of Plan, functions of the module ---- */

#define MFPY_FASTCALL PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames
PyObject *mfpy_plan_tune(PyObject *self, PyTypeObject *defining, MFPY_FASTCALL);
PyObject *mfpy_plan_tuning(PyObject *self, PyObject *unused);
PyObject *mfpy_plan_profile(PyObject *self, PyTypeObject *defining, MFPY_FASTCALL);
PyObject *mfpy_log_to(PyObject *module, MFPY_FASTCALL);
PyObject *mfpy_tune_database(PyObject *module, PyObject *unused);
PyObject *mfpy_tune_records(PyObject *module, MFPY_FASTCALL);
PyObject *mfpy_tune_verify(PyObject *module, MFPY_FASTCALL);
PyObject *mfpy_tune_merge(PyObject *module, MFPY_FASTCALL);
PyObject *mfpy_tune_import(PyObject *module, MFPY_FASTCALL);
PyObject *mfpy_tune_clear(PyObject *module, MFPY_FASTCALL);

/* ---- signatures (py_signature.c) ---- */

/* What a call's arguments are, as bytes: equal bytes mean that the same plan serves. Objects that count by identity are
 * in `references` (borrowed); whoever keeps the bytes keeps them alive. */
typedef struct mfpy_signature {
    uint8_t *bytes, local[640];
    size_t length, capacity;
    PyObject **references, *local_references[8];
    int reference_count, reference_capacity;
    bool traced;            /* a traced value is among the arguments: the rest is not filled in */
    PyObject *out, *stream; /* borrowed: those keyword arguments */
} mfpy_signature;
void mfpy_signature_init(mfpy_signature *signature);
void mfpy_signature_clear(mfpy_signature *signature);
/* Walk the arguments: fill the signature, import the arrays. */
int mfpy_signature_of_call(mfpy_state *state, PyObject *args, PyObject *kwargs, mfpy_signature *signature,
                           mfpy_arrays *arrays);

extern PyType_Spec mfpy_context_spec, mfpy_graph_spec, mfpy_plan_spec, mfpy_function_spec, mfpy_kernel_spec,
    mfpy_launcher_spec, mfpy_launch_spec;

#endif
