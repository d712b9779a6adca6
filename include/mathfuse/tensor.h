/* A borrowed, strided view of memory on one device. */
#ifndef MATHFUSE_TENSOR_H
#define MATHFUSE_TENSOR_H

#include <stdint.h>

#include "mathfuse/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MF_MAX_DIMS 12

typedef enum mf_device_kind { MF_CPU = 0, MF_CUDA = 1 } mf_device_kind;

/* Element (i0, i1, …) lies at data + size * (i0*strides[0] + i1*strides[1] + …).
 * strides count elements; they may be negative, 0 (repeated) or padded. */
typedef struct mf_tensor {
    void *data;
    mf_dtype dtype;
    mf_device_kind device;
    int32_t device_index;
    int32_t ndim;
    int64_t shape[MF_MAX_DIMS];
    int64_t strides[MF_MAX_DIMS];
} mf_tensor;

/* A C-contiguous view of `data` on the CPU; change `device` for others.
 * Errors: MF_E_SHAPE for ndim outside [0, MF_MAX_DIMS] or a negative extent; *out is then zeroed. */
MF_API mf_status mf_tensor_init(mf_tensor *out, void *data, mf_dtype dtype, int ndim, const int64_t *shape);

/* Number of elements; 1 for ndim 0. */
MF_API int64_t mf_tensor_elements(const mf_tensor *tensor);

#ifdef __cplusplus
}
#endif
#endif
