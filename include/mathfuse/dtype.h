/* Element types and NumPy's promotion rules. */
#ifndef MATHFUSE_DTYPE_H
#define MATHFUSE_DTYPE_H

#include <stddef.h>

#include "mathfuse/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum mf_dtype {
#define MF_DTYPE(ENUM, name, bytes, kind, compute, dlpack, numpy) MF_##ENUM,
#include "mathfuse/def/dtype.def"
#undef MF_DTYPE
    MF_DTYPE_COUNT
} mf_dtype;

/* Short name ("bf16"), NumPy's name ("bfloat16") and element size in bytes; NULL and 0 for no dtype. */
MF_API const char *mf_dtype_name(mf_dtype dtype);
MF_API const char *mf_dtype_numpy(mf_dtype dtype);
MF_API size_t mf_dtype_size(mf_dtype dtype);

/* DLPack's type code; bits are 8 * size, lanes 1. */
MF_API int mf_dtype_dlpack(mf_dtype dtype);

/* The dtype with a short or a NumPy name. Errors: MF_E_TYPE names those there are. */
MF_API mf_status mf_dtype_parse(mf_dtype *out, const char *name);

/* NumPy's result type of two arrays. bf16 with f16 gives f32; fp8 gives way to any float, and two fp8 give f32. */
MF_API mf_dtype mf_dtype_promote(mf_dtype a, mf_dtype b);

/* The real dtype of a complex one and the complex dtype of a real one; others are returned as they are. */
MF_API mf_dtype mf_dtype_to_real(mf_dtype dtype);
MF_API mf_dtype mf_dtype_to_complex(mf_dtype dtype);

#ifdef __cplusplus
}
#endif
#endif
