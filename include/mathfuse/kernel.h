/* Custom kernels: CUDA source compiled in process, with mathfuse's device headers on its include path. */
#ifndef MATHFUSE_KERNEL_H
#define MATHFUSE_KERNEL_H

#include <stddef.h>

#include "mathfuse/context.h"
#include "mathfuse/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mf_kernel mf_kernel;

/* Compile `source` for the context's target and take its kernel `name`, which it declares extern "C". The headers
 * "mathfuse/device/….cuh" can be included from anywhere. Compiled code is kept on disk.
 * Owns: caller frees *out with mf_kernel_free. Keeps the context alive.
 * Errors: MF_E_COMPILE with the compiler's log and the source's lines; MF_E_MISSING without NVRTC; MF_E_DEVICE for a CPU. */
MF_API mf_status mf_kernel_new(mf_kernel **out, mf_context *context, const char *source, const char *name);
MF_API void mf_kernel_free(mf_kernel *kernel);

/* Submit. args[i] points at the value of parameter i, as the kernel declares it; shared is the dynamic shared memory of a
 * block in bytes, up to the device's opt-in maximum. stream: CUstream, NULL the default one.
 * Threads: any. Async: returns after submission. Capture: safe after the first launch with as much shared memory.
 * Errors: MF_E_INVALID for extents below 1 or blocks of over 1024 threads. */
MF_API mf_status mf_kernel_launch(mf_kernel *kernel, const int grid[3], const int block[3], size_t shared, void *stream,
                                  void **args);

/* Source, cubin, registers, static shared memory and local memory. Strings and bytes belong to the kernel. */
MF_API mf_status mf_kernel_describe(const mf_kernel *kernel, mf_kernel_info *out);

/* What source is compiled to. LTO-IR of device functions, extern "C", is for nvJitLink, which links it into kernels made
 * elsewhere: by numba-cuda, or as cuFFT's callbacks. */
typedef enum mf_code { MF_CUBIN, MF_PTX, MF_LTOIR } mf_code;

/* Compile CUDA source over the same headers for an architecture, "sm_90". Needs NVRTC, no GPU. Kept on disk.
 * Owns: caller frees *out with mf_free. PTX ends with a zero byte, which *bytes counts.
 * Errors: MF_E_COMPILE with the compiler's log; MF_E_MISSING without NVRTC. */
MF_API mf_status mf_compile(void **out, size_t *bytes, mf_code code, const char *arch, const char *name,
                            const char *source);

#ifdef __cplusplus
}
#endif
#endif
