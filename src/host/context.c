/* A context: a device or a target that is not here, what it can do, and one object per provider. */
#include "context_internal.h"
#include "cuda_api.h"
#include "loader.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct owned {
    const void *owner;
    void *object;
    void (*drop)(void *object);
    struct owned *next;
} owned;

struct mf_context {
    atomic_int references;
    pthread_mutex_t lock; /* recursive: making an object may ask for another */
    mfi_caps caps;
    int device; /* CUDA index; -1 on the CPU and for absent targets */
    void *cu_context;
    unsigned prepared;   /* bit per mfi_anchor */
    unsigned looked_for; /* bit per mfi_library */
    owned *objects;
    struct mfi_plan_cache *plans;
};

/* Rates of the data sheets, except the H200's, which were measured; good enough to rank bids. */
static const struct {
    const char *arch;
    int sm, multiprocessors, shared_kib, l2_mib;
    double bytes_per_us, flops_per_us, tensor_flops_per_us;
} targets[] = {
    {"sm_80", 80, 108, 163, 40, 1.6e6, 19.5e6, 312e6},    {"sm_86", 86, 84, 99, 6, 0.8e6, 30e6, 120e6},
    {"sm_89", 89, 142, 99, 96, 0.8e6, 80e6, 330e6},       {"sm_90", 90, 132, 227, 50, 4.27e6, 60e6, 790e6},
    {"sm_90a", 90, 132, 227, 50, 4.27e6, 60e6, 790e6},    {"sm_100", 100, 148, 227, 126, 7.0e6, 75e6, 1800e6},
    {"sm_100a", 100, 148, 227, 126, 7.0e6, 75e6, 1800e6}, {"sm_103a", 103, 148, 227, 126, 7.0e6, 75e6, 1800e6},
    {"sm_120", 120, 170, 99, 96, 1.7e6, 100e6, 400e6},    {"sm_120a", 120, 170, 99, 96, 1.7e6, 100e6, 400e6},
};

static const struct {
    mfi_library library;
    int64_t version; /* planned for where the library is not here: CUDA 13.0's */
    unsigned anchors;
    bool cuda;
} needs[] = {
    {MFI_LIB_BLAS, 0, 1u << MFI_MATMUL | 1u << MFI_SOLVE | 1u << MFI_FACTOR, false},
    {MFI_LIB_LAPACK, 0, 1u << MFI_SOLVE | 1u << MFI_FACTOR, false},
    {MFI_LIB_FFTW, 0, 1u << MFI_FFT, false},
    {MFI_LIB_FFTWF, 0, 1u << MFI_FFT, false},
    {MFI_LIB_CUBLASLT, 130100, 1u << MFI_MATMUL, true},
    {MFI_LIB_CUBLAS, 130100, 1u << MFI_SOLVE | 1u << MFI_FACTOR, true},
    {MFI_LIB_CUFFT, 12000, 1u << MFI_FFT, true},
    {MFI_LIB_CUSOLVER, 12004, 1u << MFI_SOLVE | 1u << MFI_FACTOR, true},
};

static void cpu_caps(mfi_caps *caps, int threads)
{
    caps->threads = threads > 0 ? threads : mfi_thread_default();
    snprintf(caps->arch, sizeof caps->arch, "cpu");
    caps->present = true;
    caps->l2_bytes = (size_t)1 << 20;
    caps->bytes_per_us = 1e4 * (caps->threads < 8 ? caps->threads : 8);
    caps->flops_per_us = caps->tensor_flops_per_us = 9e4 * caps->threads;
    caps->launch_us = 0.5;
}

static bool target_caps(mfi_caps *caps, const char *name)
{
    for (size_t i = 0; i < MFI_COUNT(targets); i++) {
        if (strcmp(targets[i].arch, name) != 0)
            continue;
        caps->cuda = true;
        caps->sm = targets[i].sm;
        snprintf(caps->arch, sizeof caps->arch, "%s", name);
        caps->multiprocessors = targets[i].multiprocessors;
        caps->shared_bytes = (size_t)targets[i].shared_kib << 10;
        caps->l2_bytes = (size_t)targets[i].l2_mib << 20;
        caps->bytes_per_us = targets[i].bytes_per_us;
        caps->flops_per_us = targets[i].flops_per_us;
        caps->tensor_flops_per_us = targets[i].tensor_flops_per_us;
        caps->launch_us = 3.0;
        return true;
    }
    return false;
}

static mf_status open_cuda(mf_context *c, int device)
{
    int count = mfi_cuda_device_count();
    MF_REQUIRE(device < count, MF_E_DEVICE,
               count
                   ? "device cuda:%d was asked for; this machine has %d, numbered from 0"
                   : "device cuda:%d was asked for; no CUDA device is usable here (%d found): use \"cpu\", or a target "
                     "such as \"sm_90a\" to plan for one that is elsewhere",
               device, count);
    MF_TRY(mfi_cuda_open(&c->cu_context, device));
    c->device = device;
    c->caps.cuda = c->caps.present = true;
    c->caps.launch_us = 3.0;
    return mfi_cuda_caps(&c->caps, device);
}

static mf_status open_device(mf_context *c, const char *name, int threads)
{
    int index = 0, used = 0;
    c->device = -1;
    cpu_caps(&c->caps, threads);
    if (!name)
        return mfi_cuda_device_count() > 0 ? open_cuda(c, 0) : MF_OK;
    if (!strcmp(name, "cpu"))
        return MF_OK;
    if (!strcmp(name, "cuda"))
        return open_cuda(c, 0);
    if (sscanf(name, "cuda:%d%n", &index, &used) == 1 && !name[used] && index >= 0)
        return open_cuda(c, index);
    c->caps.present = false;
    if (target_caps(&c->caps, name))
        return MF_OK;
    mfi_text known = {0};
    for (size_t i = 0; i < MFI_COUNT(targets); i++)
        mfi_text_add(&known, " %s", targets[i].arch);
    mf_status status = mfi_fail(MF_E_INVALID, "no device or target is called \"%s\"; there are cpu, cuda, cuda:N and%s",
                                name, known.data ? known.data : "");
    mfi_text_free(&known);
    return status;
}

static void destroy(mf_context *c)
{
    if (c->cu_context)
        (void)mfi_cuda_set_current(c->cu_context);
    while (c->objects) {
        owned *o = c->objects;
        c->objects = o->next;
        o->drop(o->object);
        mf_free(o);
    }
    if (c->cu_context)
        mfi_cuda_close(c->device);
    pthread_mutex_destroy(&c->lock);
    mf_free(c);
}

mf_status mf_context_new(mf_context **out, const mf_context_options *options)
{
    const mf_context_options defaults = MF_CONTEXT_OPTIONS_INIT;
    MF_REQUIRE(out, MF_E_INVALID, "mf_context_new: out is NULL");
    *out = NULL;
    if (!options)
        options = &defaults;
    MF_REQUIRE(options->size == sizeof defaults, MF_E_INVALID,
               "mf_context_options.size is %zu; set it with MF_CONTEXT_OPTIONS_INIT (%zu)", options->size,
               sizeof defaults);
    mf_context *c = mfi_calloc(1, sizeof *c);
    if (!c)
        return MFI_NO_MEMORY(sizeof *c);
    pthread_mutexattr_t recursive;
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&c->lock, &recursive);
    pthread_mutexattr_destroy(&recursive);
    atomic_init(&c->references, 1);
    mf_status status = open_device(c, options->device, options->threads);
    if (status == MF_OK)
        status = mfi_plan_cache_new(&c->plans);
    if (status != MF_OK) {
        destroy(c);
        return status;
    }
    *out = c;
    return MF_OK;
}

void mfi_context_retain(mf_context *c)
{
    atomic_fetch_add(&c->references, 1);
}

void mf_context_free(mf_context *c)
{
    if (!c || atomic_fetch_sub(&c->references, 1) != 1)
        return;
    mfi_plan_cache_free(c->plans);
    destroy(c);
}

mf_device_kind mf_context_device(const mf_context *c, int *index)
{
    if (index)
        *index = c->device < 0 ? 0 : c->device;
    return c->caps.cuda ? MF_CUDA : MF_CPU;
}

const char *mf_context_target(const mf_context *c)
{
    return c->caps.arch;
}

int mf_context_can_run(const mf_context *c)
{
    return c->caps.present;
}

const mfi_caps *mfi_context_caps(const mf_context *c)
{
    return &c->caps;
}

struct mfi_plan_cache *mfi_context_plans(mf_context *c)
{
    return c->plans;
}

mf_status mfi_context_make_current(mf_context *c)
{
    if (!c->cu_context)
        return MF_OK;
    MF_REQUIRE(!mfi_cuda_forked(), MF_E_STATE,
               "this process was forked after CUDA was used: CUDA does not work in the child; start it with spawn "
               "instead of fork, or use the CPU there");
    return mfi_cuda_set_current(c->cu_context);
}

/* Written once: other threads read it, without the lock, when they have been here for its sake. */
static void look_for(mf_context *c, mfi_library library, int64_t version)
{
    if (c->looked_for & 1u << library)
        return;
    c->looked_for |= 1u << library;
    const mfi_library_info *info = mfi_library_load(library);
    c->caps.version[library] = info->found && info->number ? info->number : version;
    c->caps.library[library] = info->found || (c->caps.cuda && !c->caps.present);
}

void mfi_context_prepare(mf_context *c, mfi_anchor anchor)
{
    anchor = anchor == MFI_FFT_PAIR ? MFI_FFT : anchor == MFI_MATMUL_PAIR ? MFI_MATMUL : anchor;
    pthread_mutex_lock(&c->lock);
    bool first = !(c->prepared & 1u << anchor);
    c->prepared |= 1u << anchor;
    for (size_t i = 0; first && i < MFI_COUNT(needs); i++)
        if (needs[i].anchors & 1u << anchor && needs[i].cuda == c->caps.cuda)
            look_for(c, needs[i].library, needs[i].version);
    if (c->caps.cuda && !(c->looked_for & 1u << MFI_LIB_NVRTC)) {
        c->looked_for |= 1u << MFI_LIB_NVRTC;
        c->caps.library[MFI_LIB_NVRTC] = mfi_library_load(MFI_LIB_NVRTC)->found;
    }
    pthread_mutex_unlock(&c->lock);
}

/* The processor's name as Linux tells it. */
static void processor(char *out, size_t bytes)
{
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "r");
    snprintf(out, bytes, "unknown processor");
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, "model name", 10) && strchr(line, ':')) {
            line[strcspn(line, "\n")] = 0;
            snprintf(out, bytes, "%s", strchr(line, ':') + 2);
            break;
        }
    if (file)
        fclose(file);
}

mf_status mfi_context_fingerprint(mf_context *c, char *out, size_t bytes)
{
    char name[80];
    if (!c->caps.cuda) {
        processor(name, sizeof name);
        snprintf(out, bytes, "%s, %d threads", name, c->caps.threads);
        return MF_OK;
    }
    snprintf(name, sizeof name, "not here");
    if (c->caps.present)
        MF_TRY(mfi_cuda_name(name, sizeof name, c->device));
    snprintf(out, bytes, "%s, %s, %d multiprocessors", name, c->caps.arch, c->caps.multiprocessors);
    return MF_OK;
}

void mfi_context_versions(mf_context *c, unsigned anchors, mfi_text *out)
{
    mfi_text_add(out, "mathfuse %s/%d", mf_version(), MFI_TUNE_GENERATION);
    for (int anchor = 0; anchor < MFI_ANCHOR_COUNT; anchor++)
        if (anchors & 1u << anchor)
            mfi_context_prepare(c, (mfi_anchor)anchor);
    for (size_t i = 0; i < MFI_COUNT(needs); i++)
        if (needs[i].anchors & anchors && needs[i].cuda == c->caps.cuda)
            mfi_text_add(out, ", %s %lld", mfi_library_load(needs[i].library)->name,
                         (long long)c->caps.version[needs[i].library]);
    if (c->caps.cuda)
        mfi_text_add(out, ", NVRTC %lld", (long long)mfi_library_load(MFI_LIB_NVRTC)->number);
}

mf_status mfi_context_object(mf_context *c, const void *owner, mf_status (*make)(void **out, mf_context *context),
                             void (*drop)(void *object), void **out)
{
    mf_status status = MF_OK;
    owned *o = NULL;
    *out = NULL;
    pthread_mutex_lock(&c->lock);
    for (o = c->objects; o && o->owner != owner; o = o->next)
        ;
    if (!o) {
        o = mfi_calloc(1, sizeof *o);
        status = o ? make(&o->object, c) : MFI_NO_MEMORY(sizeof *o);
        if (status == MF_OK) {
            o->owner = owner;
            o->drop = drop;
            o->next = c->objects;
            c->objects = o;
        } else {
            mf_free(o);
            o = NULL;
        }
    }
    if (o)
        *out = o->object;
    pthread_mutex_unlock(&c->lock);
    return status;
}

/* ---- memory for C users ---- */

mf_status mf_context_alloc(void **out, mf_context *c, size_t bytes)
{
    *out = NULL;
    MF_REQUIRE(c->caps.present, MF_E_STATE, "target %s is not on this machine: it has no memory here", c->caps.arch);
    if (c->caps.cuda) {
        MF_TRY(mfi_context_make_current(c));
        return mfi_cuda_alloc(out, bytes ? bytes : 1);
    }
    *out = mfi_alloc_aligned(bytes);
    return *out ? MF_OK : MFI_NO_MEMORY(bytes);
}

void mf_context_release(mf_context *c, void *memory)
{
    if (!memory)
        return;
    if (!c->caps.cuda)
        mfi_free_aligned(memory);
    else if (mfi_context_make_current(c) == MF_OK)
        mfi_cuda_release(memory);
}

mf_status mf_context_copy(mf_context *c, void *dst, const void *src, size_t bytes)
{
    if (!c->cu_context) {
        memmove(dst, src, bytes);
        return MF_OK;
    }
    MF_TRY(mfi_context_make_current(c));
    return mfi_cuda_copy(dst, src, bytes);
}

mf_status mf_context_synchronize(mf_context *c)
{
    if (!c->cu_context)
        return MF_OK;
    MF_TRY(mfi_context_make_current(c));
    return mfi_cuda_synchronize();
}
