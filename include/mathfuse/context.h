/* A context: one device (or a target that is not here), its libraries, its caches. */
#ifndef MATHFUSE_CONTEXT_H
#define MATHFUSE_CONTEXT_H

#include <stddef.h>
#include <stdint.h>

#include "mathfuse/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mf_context mf_context;

typedef struct mf_context_options {
    size_t size; /* sizeof(mf_context_options), set by the INIT macro */
    /* NULL: best present. "cpu", "cuda", "cuda:1", or a target to plan for: "sm_80", "sm_90a", "sm_100a" */
    const char *device;
    int threads; /* CPU threads; 0: MATHFUSE_NUM_THREADS, else the cores this process may use */
} mf_context_options;

#define MF_CONTEXT_OPTIONS_INIT                                                                                        \
    {                                                                                                                  \
        sizeof(mf_context_options), NULL, 0                                                                            \
    }

/* Open a device. A target that is not here gives a context that plans and compiles but does not run.
 * Threads: a context may be used by any number of threads at once.
 * Owns: caller frees *out with mf_context_free; plans keep it alive past that.
 * Errors: MF_E_DEVICE if the device is not there, MF_E_INVALID for a name that is none. */
MF_API mf_status mf_context_new(mf_context **out, const mf_context_options *options);
MF_API void mf_context_free(mf_context *context);

/* Where this context's tensors must lie. *index is 0 for the CPU. */
MF_API mf_device_kind mf_context_device(const mf_context *context, int *index);

/* The target's name, "cpu" or "sm_90a", and whether plans can run here. */
MF_API const char *mf_context_target(const mf_context *context);
MF_API int mf_context_can_run(const mf_context *context);

/* Every library that providers use: version, path, how it was found, or what is missing; text or JSON.
 * Owns: caller frees *out with mf_free. `context` may be NULL: report the libraries only. */
MF_API mf_status mf_context_info(char **out, mf_context *context, int json);

/* Directories searched for vendor libraries before the system's own, ':'-separated (Python hands over site-packages). */
MF_API mf_status mf_library_path(const char *directories);

/* Device memory for C users and tests; any allocator's memory may be used instead. Stream-unordered. */
MF_API mf_status mf_context_alloc(void **out, mf_context *context, size_t bytes);
MF_API void mf_context_release(mf_context *context, void *memory);
/* any direction, synchronous */
MF_API mf_status mf_context_copy(mf_context *context, void *dst, const void *src, size_t bytes);
MF_API mf_status mf_context_synchronize(mf_context *context);

#ifdef __cplusplus
}
#endif
#endif
