/* The memory layout of DLPack 1.x, as its public header gives it, and of NumPy's array interface struct. */
#ifndef MFPY_DLPACK_H
#define MFPY_DLPACK_H

#include <stdint.h>

enum { MFPY_DL_CPU = 1, MFPY_DL_CUDA = 2, MFPY_DL_CUDA_HOST = 3, MFPY_DL_CUDA_MANAGED = 13 };
enum { MFPY_DL_INT = 0, MFPY_DL_UINT = 1, MFPY_DL_FLOAT = 2, MFPY_DL_BOOL = 6 };
enum { MFPY_DL_READ_ONLY = 1 };

typedef struct mfpy_dltensor {
    void *data;
    struct {
        int32_t type, id;
    } device;
    int32_t ndim;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape, *strides; /* strides in elements; NULL before 1.2: contiguous */
    uint64_t byte_offset;
} mfpy_dltensor;

/* The capsule "dltensor". */
typedef struct mfpy_dlmanaged {
    mfpy_dltensor tensor;
    void *owner;
    void (*deleter)(struct mfpy_dlmanaged *self);
} mfpy_dlmanaged;

typedef struct mfpy_dlversion {
    uint32_t major, minor;
} mfpy_dlversion;

/* The capsule "dltensor_versioned". */
typedef struct mfpy_dlversioned {
    mfpy_dlversion version;
    void *owner;
    void (*deleter)(struct mfpy_dlversioned *self);
    uint64_t flags;
    mfpy_dltensor tensor;
} mfpy_dlversioned;

/* The capsule "dlpack_exchange_api" of a type. Functions return 0, or -1 with a Python exception set. */
typedef struct mfpy_exchange {
    struct {
        mfpy_dlversion version;
        void *previous;
    } header;
    int (*allocate)(mfpy_dltensor *prototype, mfpy_dlversioned **out, void *error_context,
                    void (*set_error)(void *error_context, const char *kind, const char *message));
    int (*from_object)(void *object, mfpy_dlversioned **out);
    int (*to_object)(mfpy_dlversioned *tensor, void **out);
    int (*borrow)(void *object, mfpy_dltensor *out); /* valid until control returns to Python */
    int (*current_stream)(int32_t device_type, int32_t device_id, void **out);
} mfpy_exchange;

/* What __array_struct__ points to (NumPy's array interface, version 3). */
typedef struct mfpy_array_struct {
    int two, ndim;
    char kind;
    int itemsize, flags;
    intptr_t *shape, *strides; /* bytes */
    void *data;
    void *descr;
} mfpy_array_struct;
enum { MFPY_ALIGNED = 0x100, MFPY_NATIVE = 0x200, MFPY_WRITEABLE = 0x400 };

#endif
