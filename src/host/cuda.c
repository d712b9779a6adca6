/* The CUDA driver API for the host code: devices, memory, modules, launches. Loaded at run time; cuda_none.c stands in
 * for a build without CUDA's headers. */
#include "cuda_api.h"
#include "loader.h"

#ifdef MFI_WITH_CUDA
#include <cuda.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

/* The first version of this name: the second is missing in drivers before CUDA 12.8, and does the same. */
#undef cuEventElapsedTime
CUresult CUDAAPI cuEventElapsedTime(float *milliseconds, CUevent begin, CUevent end);

#define DRIVER_FUNCTIONS(X)                                                                                            \
    X(cuInit)                                                                                                          \
    X(cuGetErrorName)                                                                                                  \
    X(cuGetErrorString)                                                                                                \
    X(cuDeviceGetCount)                                                                                                \
    X(cuDeviceGet)                                                                                                     \
    X(cuDeviceGetName)                                                                                                 \
    X(cuDeviceGetAttribute)                                                                                            \
    X(cuDevicePrimaryCtxRetain)                                                                                        \
    X(cuDevicePrimaryCtxRelease)                                                                                       \
    X(cuCtxSetCurrent)                                                                                                 \
    X(cuCtxSynchronize)                                                                                                \
    X(cuMemGetInfo)                                                                                                    \
    X(cuMemAlloc)                                                                                                      \
    X(cuMemFree)                                                                                                       \
    X(cuMemcpy)                                                                                                        \
    X(cuMemcpyAsync)                                                                                                   \
    X(cuMemsetD8Async)                                                                                                 \
    X(cuEventCreate)                                                                                                   \
    X(cuEventDestroy)                                                                                                  \
    X(cuEventRecord)                                                                                                   \
    X(cuEventQuery)                                                                                                    \
    X(cuEventElapsedTime)                                                                                              \
    X(cuStreamCreate)                                                                                                  \
    X(cuStreamDestroy)                                                                                                 \
    X(cuStreamWaitEvent)                                                                                               \
    X(cuStreamIsCapturing)                                                                                             \
    X(cuModuleLoadData)                                                                                                \
    X(cuModuleUnload)                                                                                                  \
    X(cuModuleGetFunction)                                                                                             \
    X(cuFuncGetAttribute)                                                                                              \
    X(cuFuncSetAttribute)                                                                                              \
    X(cuLaunchKernel)                                                                                                  \
    X(cuLaunchKernelEx)                                                                                                \
    X(cuOccupancyMaxActiveClusters)

/* cuda.h maps names to versions (cuMemAlloc to cuMemAlloc_v2) by macros; both expansions below follow it. */
#define TEXT_(name) #name
#define TEXT(name) TEXT_(name)

static struct {
#define FIELD(name) __typeof__(name) *name;
    DRIVER_FUNCTIONS(FIELD)
#undef FIELD
} cu;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_bool forked;
static bool ready, overlaps; /* kernels may start early, captured or not */
static char why_not[256];

static void in_child(void)
{
    atomic_store(&forked, true);
}

static bool load_functions(void)
{
    bool complete = true;
#define LOAD(name)                                                                                                     \
    do {                                                                                                               \
        void *symbol_ = mfi_library_symbol(MFI_LIB_CUDA, TEXT(name));                                                  \
        memcpy(&cu.name, &symbol_, sizeof symbol_);                                                                    \
        if (!symbol_ && complete)                                                                                      \
            snprintf(why_not, sizeof why_not, "the driver has no %s: update it", TEXT(name));                          \
        complete = complete && symbol_;                                                                                \
    } while (0);
    DRIVER_FUNCTIONS(LOAD)
#undef LOAD
    return complete;
}

static void start(void)
{
    const mfi_library_info *info = mfi_library_load(MFI_LIB_CUDA);
    if (!info->found) {
        snprintf(why_not, sizeof why_not, "%.*s", (int)sizeof why_not - 1, info->missing);
        return;
    }
    if (!load_functions())
        return;
    overlaps = info->number >= 12040;
    CUresult result = cu.cuInit(0);
    if (result != CUDA_SUCCESS) {
        const char *name = "unknown";
        cu.cuGetErrorName(result, &name);
        snprintf(why_not, sizeof why_not, "cuInit failed: CUDA error %d (%s)%s", (int)result, name,
                 result == CUDA_ERROR_NOT_INITIALIZED ? ": this process was forked from one that used CUDA" : "");
        return;
    }
    pthread_atfork(NULL, NULL, in_child);
    ready = true;
}

static mf_status usable(void)
{
    pthread_once(&once, start);
    MF_REQUIRE(ready, MF_E_MISSING, "CUDA is not usable here: %s", why_not);
    MF_REQUIRE(!atomic_load_explicit(&forked, memory_order_relaxed), MF_E_STATE,
               "this process was forked after CUDA was used: CUDA does not work in the child; start it with spawn "
               "instead of fork, or use the CPU there");
    return MF_OK;
}

/* Errors of kernels that ran earlier surface in whatever call comes next. */
static bool from_earlier_work(CUresult result)
{
    return result == CUDA_ERROR_ILLEGAL_ADDRESS ||
           (result >= CUDA_ERROR_HARDWARE_STACK_ERROR && result <= CUDA_ERROR_LAUNCH_FAILED);
}

static mf_status check(CUresult result, const char *call)
{
    const char *name = "unknown", *text = "";
    if (result == CUDA_SUCCESS)
        return MF_OK;
    cu.cuGetErrorName(result, &name);
    cu.cuGetErrorString(result, &text);
    return mfi_fail(MF_E_CUDA, "CUDA error %d (%s: %s) in %s%s", (int)result, name, text, call,
                    from_earlier_work(result) ? "; work submitted earlier caused it, not this call" : "");
}

static CUdeviceptr address(const void *memory)
{
    return (CUdeviceptr)(uintptr_t)memory;
}

/* ---- devices ---- */

bool mfi_cuda_forked(void)
{
    return atomic_load_explicit(&forked, memory_order_relaxed);
}

int mfi_cuda_device_count(void)
{
    int count = 0;
    pthread_once(&once, start);
    return ready && !mfi_cuda_forked() && cu.cuDeviceGetCount(&count) == CUDA_SUCCESS ? count : 0;
}

mf_status mfi_cuda_open(void **cu_context, int device)
{
    CUdevice handle;
    CUcontext context = NULL;
    *cu_context = NULL;
    MF_TRY(usable());
    MF_TRY(check(cu.cuDeviceGet(&handle, device), "cuDeviceGet"));
    MF_TRY(check(cu.cuDevicePrimaryCtxRetain(&context, handle), "cuDevicePrimaryCtxRetain"));
    *cu_context = context;
    return check(cu.cuCtxSetCurrent(context), "cuCtxSetCurrent");
}

void mfi_cuda_close(int device)
{
    CUdevice handle;
    if (ready && !mfi_cuda_forked() && cu.cuDeviceGet(&handle, device) == CUDA_SUCCESS)
        cu.cuDevicePrimaryCtxRelease(handle);
}

mf_status mfi_cuda_set_current(void *cu_context)
{
    MF_TRY(usable());
    return check(cu.cuCtxSetCurrent(cu_context), "cuCtxSetCurrent");
}

/* Multiply-adds of a multiprocessor in one clock: FP32 lanes, and dense bf16 tensor cores with f32 accumulation. */
static void rates_of(int sm, int *lanes, int *tensor)
{
    static const struct {
        int sm, lanes, tensor;
    } known[] = {{100, 128, 4096}, {90, 128, 2048}, {80, 64, 1024}};
    *lanes = 128;
    *tensor = 512;
    for (size_t i = 0; i < MFI_COUNT(known); i++)
        if (sm / 10 == known[i].sm / 10 && (known[i].sm != 80 || sm == 80)) {
            *lanes = known[i].lanes;
            *tensor = known[i].tensor;
        }
}

mf_status mfi_cuda_caps(mfi_caps *caps, int device)
{
    enum { MAJOR, MINOR, COUNT, SHARED, L2, CLOCK, MEMORY_CLOCK, BUS, ATTRIBUTES };
    static const CUdevice_attribute attributes[ATTRIBUTES] = {
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
        CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
        CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE,
        CU_DEVICE_ATTRIBUTE_CLOCK_RATE,
        CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE,
        CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH,
    };
    CUdevice handle;
    int value[ATTRIBUTES] = {0}, lanes, tensor;
    MF_TRY(usable());
    MF_TRY(check(cu.cuDeviceGet(&handle, device), "cuDeviceGet"));
    for (int i = 0; i < ATTRIBUTES; i++)
        MF_TRY(check(cu.cuDeviceGetAttribute(&value[i], attributes[i], handle), "cuDeviceGetAttribute"));
    caps->sm = 10 * value[MAJOR] + value[MINOR];
    snprintf(caps->arch, sizeof caps->arch, "sm_%d%s", caps->sm, caps->sm >= 90 ? "a" : "");
    caps->multiprocessors = value[COUNT];
    caps->shared_bytes = (size_t)value[SHARED];
    caps->l2_bytes = (size_t)value[L2];
    rates_of(caps->sm, &lanes, &tensor);
    double clock = value[CLOCK] > 0 ? value[CLOCK] / 1e3 : 1500; /* MHz */
    double memory_clock = value[MEMORY_CLOCK] > 0 ? value[MEMORY_CLOCK] / 1e3 : 1000;
    /* Shares of the nominal rates that one H200 kept up: a copy 4.27 of 4.82 TB/s, bf16 GEMM 790 of 1070 TF/s. */
    caps->bytes_per_us = 0.886 * 2 * memory_clock * value[BUS] / 8;
    caps->flops_per_us = 2.0 * lanes * value[COUNT] * clock;
    caps->tensor_flops_per_us = 0.74 * 2 * tensor * value[COUNT] * clock;
    return MF_OK;
}

/* ---- memory ---- */

mf_status mfi_cuda_alloc(void **out, size_t bytes)
{
    CUdeviceptr memory = 0;
    *out = NULL;
    MF_TRY(usable());
    CUresult result = cu.cuMemAlloc(&memory, bytes);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        char call[96];
        size_t available = 0, total = 0;
        cu.cuMemGetInfo(&available, &total);
        snprintf(call, sizeof call, "cuMemAlloc of %zu bytes; %zu of %zu are free", bytes, available, total);
        return check(result, call);
    }
    MF_TRY(check(result, "cuMemAlloc"));
    memcpy(out, &memory, sizeof memory);
    return MF_OK;
}

void mfi_cuda_release(void *memory)
{
    if (memory && ready && !mfi_cuda_forked())
        cu.cuMemFree(address(memory));
}

mf_status mfi_cuda_copy(void *dst, const void *src, size_t bytes)
{
    MF_TRY(usable());
    return bytes ? check(cu.cuMemcpy(address(dst), address(src), bytes), "cuMemcpy") : MF_OK;
}

mf_status mfi_cuda_copy_async(void *dst, const void *src, size_t bytes, void *stream)
{
    MF_TRY(usable());
    return bytes ? check(cu.cuMemcpyAsync(address(dst), address(src), bytes, stream), "cuMemcpyAsync") : MF_OK;
}

mf_status mfi_cuda_zero_async(void *dst, size_t bytes, void *stream)
{
    MF_TRY(usable());
    return bytes ? check(cu.cuMemsetD8Async(address(dst), 0, bytes, stream), "cuMemsetD8Async") : MF_OK;
}

mf_status mfi_cuda_synchronize(void)
{
    MF_TRY(usable());
    return check(cu.cuCtxSynchronize(), "cuCtxSynchronize");
}

bool mfi_cuda_capturing(void *stream)
{
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    if (usable() != MF_OK)
        return false;
    CUresult result = cu.cuStreamIsCapturing(stream, &capture);
    return result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT ||
           (result == CUDA_SUCCESS && capture != CU_STREAM_CAPTURE_STATUS_NONE);
}

/* ---- tensor maps ---- */

/* Drivers before CUDA 12 have none. */
typedef CUresult encode(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *, const cuuint64_t *,
                        const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                        CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

static encode *encoder(void)
{
    static _Atomic(encode *) found;
    encode *function = atomic_load_explicit(&found, memory_order_relaxed);
    if (!function) {
        void *symbol = mfi_library_symbol(MFI_LIB_CUDA, "cuTensorMapEncodeTiled");
        memcpy(&function, &symbol, sizeof function);
        atomic_store_explicit(&found, function, memory_order_relaxed);
    }
    return function;
}

mf_status mfi_cuda_tensor_map(uint64_t out[16], const mfi_tensor_map *m)
{
    static const CUtensorMapDataType types[MF_DTYPE_COUNT] = {
        [MF_F16] = CU_TENSOR_MAP_DATA_TYPE_FLOAT16, [MF_BF16] = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        [MF_F32] = CU_TENSOR_MAP_DATA_TYPE_FLOAT32, [MF_I32] = CU_TENSOR_MAP_DATA_TYPE_INT32,
        [MF_E4M3] = CU_TENSOR_MAP_DATA_TYPE_UINT8,  [MF_E5M2] = CU_TENSOR_MAP_DATA_TYPE_UINT8,
        [MF_I8] = CU_TENSOR_MAP_DATA_TYPE_UINT8,    [MF_BOOL] = CU_TENSOR_MAP_DATA_TYPE_UINT8};
    CUtensorMapSwizzle swizzle = m->box_bytes == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
                                 : m->box_bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                                      : CU_TENSOR_MAP_SWIZZLE_32B;
    const cuuint64_t size = mf_dtype_size(m->dtype);
    const cuuint64_t extents[3] = {(cuuint64_t)m->inner, (cuuint64_t)m->outer, (cuuint64_t)m->items};
    const cuuint64_t strides[2] = {(cuuint64_t)m->ld * size, (cuuint64_t)m->item_ld * size};
    const cuuint32_t box[3] = {(cuuint32_t)m->box_bytes / (cuuint32_t)size, (cuuint32_t)m->box_outer, 1};
    const cuuint32_t steps[3] = {1, 1, 1};
    CUtensorMap map;
    MF_TRY(usable());
    encode *function = encoder();
    MF_REQUIRE(function, MF_E_UNSUPPORTED, "the driver has no tensor maps: CUDA 12 or newer is needed");
    MF_TRY(check(function(&map, types[m->dtype], m->items ? 3 : 2, m->base, extents, strides, box, steps,
                          CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                          CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
                 "cuTensorMapEncodeTiled"));
    memcpy(out, &map, sizeof map);
    /* Up to 13.1 the driver sets a bit in the maps of small tensors that it should not. */
    if (mfi_library_load(MFI_LIB_CUDA)->number <= 13010 &&
        (m->items > 1 ? m->items * m->item_ld : m->outer * m->ld) * (int64_t)size < 131072)
        out[1] &= ~(1ull << 21);
    return MF_OK;
}

/* ---- streams ---- */

mf_status mfi_cuda_stream_new(void **out)
{
    CUstream stream = NULL;
    *out = NULL;
    MF_TRY(usable());
    MF_TRY(check(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate"));
    *out = stream;
    return MF_OK;
}

void mfi_cuda_stream_free(void *stream)
{
    if (stream && ready && !mfi_cuda_forked())
        cu.cuStreamDestroy(stream);
}

mf_status mfi_cuda_stream_wait(void *stream, void *event)
{
    MF_TRY(usable());
    return check(cu.cuStreamWaitEvent(stream, event, 0), "cuStreamWaitEvent");
}

/* ---- events ---- */

mf_status mfi_cuda_event_new(void **out)
{
    CUevent event = NULL;
    *out = NULL;
    MF_TRY(usable());
    MF_TRY(check(cu.cuEventCreate(&event, CU_EVENT_DEFAULT), "cuEventCreate"));
    *out = event;
    return MF_OK;
}

void mfi_cuda_event_free(void *event)
{
    if (event && ready && !mfi_cuda_forked())
        cu.cuEventDestroy(event);
}

mf_status mfi_cuda_event_record(void *event, void *stream)
{
    MF_TRY(usable());
    return check(cu.cuEventRecord(event, stream), "cuEventRecord");
}

mf_status mfi_cuda_event_wait(bool *done, void *event, double seconds)
{
    struct timespec begin, now, nap = {0, 20000};
    double waited = 0;
    *done = false;
    MF_TRY(usable());
    clock_gettime(CLOCK_MONOTONIC, &begin);
    while (waited < seconds) {
        CUresult result = cu.cuEventQuery(event);
        if (result != CUDA_ERROR_NOT_READY) {
            *done = result == CUDA_SUCCESS;
            return check(result, "cuEventQuery");
        }
        nanosleep(&nap, NULL);
        clock_gettime(CLOCK_MONOTONIC, &now);
        waited = (double)(now.tv_sec - begin.tv_sec) + 1e-9 * (double)(now.tv_nsec - begin.tv_nsec);
    }
    return MF_OK;
}

mf_status mfi_cuda_event_us(double *us, void *begin, void *end)
{
    float milliseconds = 0;
    MF_TRY(usable());
    MF_TRY(check(cu.cuEventElapsedTime(&milliseconds, begin, end), "cuEventElapsedTime"));
    *us = 1e3 * (double)milliseconds;
    return MF_OK;
}

mf_status mfi_cuda_name(char *out, size_t bytes, int device)
{
    CUdevice handle;
    MF_TRY(usable());
    MF_TRY(check(cu.cuDeviceGet(&handle, device), "cuDeviceGet"));
    return check(cu.cuDeviceGetName(out, (int)bytes, handle), "cuDeviceGetName");
}

/* ---- kernels ---- */

mf_status mfi_cuda_module_load(void **module, void **function, const void *cubin, const char *name)
{
    CUmodule loaded = NULL;
    CUfunction entry = NULL;
    *module = *function = NULL;
    MF_TRY(usable());
    MF_TRY(check(cu.cuModuleLoadData(&loaded, cubin), "cuModuleLoadData"));
    mf_status status = check(cu.cuModuleGetFunction(&entry, loaded, name), "cuModuleGetFunction");
    if (status != MF_OK) {
        cu.cuModuleUnload(loaded);
        return mfi_prefix(status, "kernel %s: ", name);
    }
    *module = loaded;
    *function = entry;
    return MF_OK;
}

void mfi_cuda_module_unload(void *module)
{
    if (module && ready && !mfi_cuda_forked())
        cu.cuModuleUnload(module);
}

mf_status mfi_cuda_function_attribute(int *out, void *function, int attribute)
{
    *out = 0;
    MF_TRY(usable());
    return check(cu.cuFuncGetAttribute(out, (CUfunction_attribute)attribute, function), "cuFuncGetAttribute");
}

mf_status mfi_cuda_function_shared(void *function, size_t bytes)
{
    MF_TRY(usable());
    return check(cu.cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)bytes),
                 "cuFuncSetAttribute");
}

mf_status mfi_cuda_most_clusters(int *out, void *function, int blocks, int threads, size_t shared)
{
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
                                   .value.clusterDim = {.x = (unsigned)blocks, .y = 1, .z = 1}};
    const CUlaunchConfig config = {.gridDimX = (unsigned)blocks,
                                   .gridDimY = 1,
                                   .gridDimZ = 1,
                                   .blockDimX = (unsigned)threads,
                                   .blockDimY = 1,
                                   .blockDimZ = 1,
                                   .sharedMemBytes = (unsigned)shared,
                                   .attrs = &attribute,
                                   .numAttrs = 1};
    *out = 0;
    MF_TRY(usable());
    return check(cu.cuOccupancyMaxActiveClusters(out, function, &config), "cuOccupancyMaxActiveClusters");
}

mf_status mfi_cuda_launch(void *function, const int grid[3], const int block[3], size_t shared, void *stream,
                          void **args, bool early)
{
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                                   .value.programmaticStreamSerializationAllowed = 1};
    const CUlaunchConfig config = {.gridDimX = (unsigned)grid[0],
                                   .gridDimY = (unsigned)grid[1],
                                   .gridDimZ = (unsigned)grid[2],
                                   .blockDimX = (unsigned)block[0],
                                   .blockDimY = (unsigned)block[1],
                                   .blockDimZ = (unsigned)block[2],
                                   .sharedMemBytes = (unsigned)shared,
                                   .hStream = stream,
                                   .attrs = &attribute,
                                   .numAttrs = 1};
    MF_TRY(usable());
    if (early && overlaps)
        return check(cu.cuLaunchKernelEx(&config, function, args, NULL), "cuLaunchKernelEx");
    return check(cu.cuLaunchKernel(function, (unsigned)grid[0], (unsigned)grid[1], (unsigned)grid[2],
                                   (unsigned)block[0], (unsigned)block[1], (unsigned)block[2], (unsigned)shared, stream,
                                   args, NULL),
                 "cuLaunchKernel");
}
#endif
