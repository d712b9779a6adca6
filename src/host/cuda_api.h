/* The part of the CUDA driver that host code uses, through the loader, so that no vendor header leaves loader.c, jit.c
 * and providers/. */
#ifndef MFI_CUDA_API_H
#define MFI_CUDA_API_H

#include "provider.h"

/* cuda.c. All need MFI_LIB_CUDA; each fails with MF_E_CUDA naming the CUDA error, or MF_E_MISSING. */
int mfi_cuda_device_count(void);                        /* 0 without a driver; never fails */
mf_status mfi_cuda_open(void **cu_context, int device); /* retains the primary context */
void mfi_cuda_close(int device);
mf_status mfi_cuda_set_current(void *cu_context);
mf_status mfi_cuda_caps(mfi_caps *caps, int device); /* fills the device part from attributes */
mf_status mfi_cuda_alloc(void **out, size_t bytes);
void mfi_cuda_release(void *memory);
mf_status mfi_cuda_copy(void *dst, const void *src, size_t bytes); /* any direction, synchronous */
mf_status mfi_cuda_copy_async(void *dst, const void *src, size_t bytes, void *stream);
mf_status mfi_cuda_zero_async(void *dst, size_t bytes, void *stream);
mf_status mfi_cuda_synchronize(void);
bool mfi_cuda_capturing(void *stream);
/* A matrix as the tensor memory accelerator sees it: box_bytes by box_outer at a time, swizzled, zero outside. ld in elements. */
typedef struct mfi_tensor_map {
    void *base;
    mf_dtype dtype; /* of at most 4 bytes */
    int64_t inner, outer, ld;
    int box_outer, box_bytes; /* 128, 64, 32 */
    int64_t items, item_ld;   /* of a third dim, one in a box; 0: there is none */
} mfi_tensor_map;
mf_status mfi_cuda_tensor_map(uint64_t out[16], const mfi_tensor_map *map);
mf_status mfi_cuda_name(char *out, size_t bytes, int device);
mf_status mfi_cuda_stream_new(void **out);
void mfi_cuda_stream_free(void *stream);
mf_status mfi_cuda_stream_wait(void *stream, void *event); /* what follows on the stream waits for the event */
mf_status mfi_cuda_event_new(void **out);
void mfi_cuda_event_free(void *event);
mf_status mfi_cuda_event_record(void *event, void *stream);
mf_status mfi_cuda_event_wait(bool *done, void *event,
                              double seconds); /* no longer than that; an error is what ran before it */
mf_status mfi_cuda_event_us(double *us, void *begin, void *end); /* between two that are done */
mf_status mfi_cuda_module_load(void **module, void **function, const void *cubin, const char *name);
void mfi_cuda_module_unload(void *module);
mf_status mfi_cuda_function_attribute(int *out, void *function, int attribute);
mf_status mfi_cuda_function_shared(void *function, size_t bytes); /* raises the dynamic shared memory limit */
/* How many clusters of so many blocks run at the same time. */
mf_status mfi_cuda_most_clusters(int *out, void *function, int blocks, int threads, size_t shared);
mf_status mfi_cuda_launch(void *function, const int grid[3], const int block[3], size_t shared, void *stream,
                          void **args, bool early); /* early: may start while what is ahead in the stream ends */
bool mfi_cuda_forked(void);                         /* this process forked after CUDA was opened */

#endif
