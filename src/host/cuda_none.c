/* The driver API of a build without CUDA's headers: no device, and one clear error. */
#include "cuda_api.h"

#ifndef MFI_WITH_CUDA
static mf_status not_built(void)
{
    return mfi_fail(MF_E_MISSING, "this build of mathfuse has no CUDA support: rebuild with CUDA's headers (a toolkit, "
                                  "or the nvidia-* wheels) and MATHFUSE_CUDA=ON");
}

bool mfi_cuda_forked(void)
{
    return false;
}

int mfi_cuda_device_count(void)
{
    return 0;
}

mf_status mfi_cuda_open(void **cu_context, int device)
{
    *cu_context = NULL;
    (void)device;
    return not_built();
}

void mfi_cuda_close(int device)
{
    (void)device;
}

mf_status mfi_cuda_set_current(void *cu_context)
{
    (void)cu_context;
    return not_built();
}

mf_status mfi_cuda_caps(mfi_caps *caps, int device)
{
    (void)caps, (void)device;
    return not_built();
}

mf_status mfi_cuda_alloc(void **out, size_t bytes)
{
    *out = NULL;
    (void)bytes;
    return not_built();
}

void mfi_cuda_release(void *memory)
{
    (void)memory;
}

mf_status mfi_cuda_copy(void *dst, const void *src, size_t bytes)
{
    (void)dst, (void)src, (void)bytes;
    return not_built();
}

mf_status mfi_cuda_copy_async(void *dst, const void *src, size_t bytes, void *stream)
{
    (void)dst, (void)src, (void)bytes, (void)stream;
    return not_built();
}

mf_status mfi_cuda_zero_async(void *dst, size_t bytes, void *stream)
{
    (void)dst, (void)bytes, (void)stream;
    return not_built();
}

mf_status mfi_cuda_synchronize(void)
{
    return not_built();
}

bool mfi_cuda_capturing(void *stream)
{
    (void)stream;
    return false;
}

mf_status mfi_cuda_tensor_map(uint64_t out[16], const mfi_tensor_map *map)
{
    (void)out, (void)map;
    return not_built();
}

mf_status mfi_cuda_name(char *out, size_t bytes, int device)
{
    (void)out, (void)bytes, (void)device;
    return not_built();
}

mf_status mfi_cuda_event_new(void **out)
{
    *out = NULL;
    return not_built();
}

void mfi_cuda_event_free(void *event)
{
    (void)event;
}

mf_status mfi_cuda_event_record(void *event, void *stream)
{
    (void)event, (void)stream;
    return not_built();
}

mf_status mfi_cuda_event_wait(bool *done, void *event, double seconds)
{
    *done = false;
    (void)event, (void)seconds;
    return not_built();
}

mf_status mfi_cuda_event_us(double *us, void *begin, void *end)
{
    *us = 0;
    (void)begin, (void)end;
    return not_built();
}

mf_status mfi_cuda_module_load(void **module, void **function, const void *cubin, const char *name)
{
    *module = *function = NULL;
    (void)cubin, (void)name;
    return not_built();
}

void mfi_cuda_module_unload(void *module)
{
    (void)module;
}

mf_status mfi_cuda_function_attribute(int *out, void *function, int attribute)
{
    *out = 0;
    (void)function, (void)attribute;
    return not_built();
}

mf_status mfi_cuda_function_shared(void *function, size_t bytes)
{
    (void)function, (void)bytes;
    return not_built();
}

mf_status mfi_cuda_most_clusters(int *out, void *function, int blocks, int threads, size_t shared)
{
    *out = 0;
    (void)function, (void)blocks, (void)threads, (void)shared;
    return not_built();
}

mf_status mfi_cuda_launch(void *function, const int grid[3], const int block[3], size_t shared, void *stream,
                          void **args, bool early)
{
    (void)function, (void)grid, (void)block, (void)shared, (void)stream, (void)args, (void)early;
    return not_built();
}
#endif
