/* A kernel's parameters, as its source declares them, and the arguments of one launch. */
#ifndef MFPY_LAUNCH_H
#define MFPY_LAUNCH_H

#include "py_core.h"

enum { MFPY_MAX_PARAMETERS = 64 };

typedef struct mfpy_parameter {
    PyObject *name, *type, *allowed; /* str; allowed: words on the dtypes that a pointer takes */
    char code;                       /* 'P' pointer, 'x' bytes, else as in Python's struct */
    bool writable;                   /* a pointer to what is not const */
    uint32_t dtypes;                 /* bits of mf_dtype that a pointer takes; 0: any array */
} mfpy_parameter;

typedef struct mfpy_launcher {
    PyObject_HEAD PyObject *name;
    PyObject *compile, *emulate, *locate; /* callables of mathfuse._kernel */
    PyObject *compiled[MFPY_MAX_DEVICES]; /* Kernel */
    int count;
    mfpy_parameter *parameters;
} mfpy_launcher;

/* The arguments of one call. */
typedef union mfpy_value {
    int8_t i1;
    int16_t i2;
    int32_t i4;
    int64_t i8;
    float f4;
    double f8;
    void *pointer;
} mfpy_value;

typedef struct mfpy_arguments {
    mfpy_value values[MFPY_MAX_PARAMETERS];
    void *addresses[MFPY_MAX_PARAMETERS];
    size_t bytes[MFPY_MAX_PARAMETERS];
    PyObject *held[MFPY_MAX_PARAMETERS]; /* bytes objects */
    int count, first;                    /* first: the array that says where to run, or -1 */
    mfpy_place place;
} mfpy_arguments;

/* Convert argument i of a call; where the first array lies, the launch goes. */
int mfpy_argument(mfpy_state *state, const mfpy_launcher *self, int i, PyObject *object, mfpy_arguments *arguments);
/* Bytes of a scalar parameter; 0: no such code. */
size_t mfpy_scalar_size(char code);

#endif
