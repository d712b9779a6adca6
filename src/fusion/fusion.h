/* Fusion: grouping graph nodes into steps, and running or emitting the chains of steps. */
#ifndef MFI_FUSION_H
#define MFI_FUSION_H

#include "chain.h"
#include "provider.h"

/* ---- CPU chains (cpu_chain.c over loops generated from op.def, one object per instruction set) ---- */

/* A chain made ready for the CPU: instructions scheduled, block buffers assigned, loops chosen. Immutable. */
typedef struct mfi_cpu_chain mfi_cpu_chain;
mf_status mfi_cpu_chain_new(mfi_cpu_chain **out, const mfi_problem *p);
void mfi_cpu_chain_free(mfi_cpu_chain *chain);

/* Where ACC comes from, when the chain has one: the element at linear domain index i (row-major over p->shape) is
 * data[(i - base)], contiguous, in compute type. */
typedef struct mfi_acc_block {
    const void *data;
    int64_t base;
} mfi_acc_block;

/* Evaluate the chain for linear domain indices [begin, end) on the calling thread; with reductions the range counts rows
 * (domain without its last nreduce dims). Any sub-range of a matmul's rows is contiguous in the domain. */
void mfi_cpu_chain_run(const mfi_cpu_chain *chain, void *const *slots, int64_t begin, int64_t end,
                       const mfi_acc_block *acc);
/* The whole domain on the process's threads. */
void mfi_cpu_chain_run_all(const mfi_cpu_chain *chain, void *const *slots, const mfi_acc_block *acc, int threads);

/* Copy a strided view of any dtype into contiguous memory of a compute type (packing GEMM operands, FFT and solver inputs),
 * and back, rounding to the view's dtype. `slots` as in a run. extent as in mfi_operand, or NULL. */
void mfi_pack(void *dst, mfi_ctype ctype, const mfi_view *view, void *const *slots, int ndim, const int64_t *shape,
              const int64_t *extent);
void mfi_unpack(const mfi_view *view, void *const *slots, int ndim, const int64_t *shape, const void *src,
                mfi_ctype ctype);

/* ---- generated kernels (emit_map.c, jit.c, jit_cache.c) ---- */

/* CUDA source of a chain's kernel: an argument struct, the chain, one instantiation of a skeleton of src/device. */
typedef struct mfi_source {
    char name[64]; /* extern "C" name, mf_map_<hash> */
    char *text;    /* complete translation unit */
} mfi_source;

/* A compiled kernel; shared, reference counted by the cache of its context. */
typedef struct mfi_module {
    char name[64];
    char *source;
    void *cubin;
    size_t cubin_bytes;
    int registers, shared, spills; /* read from the cubin; -1 unknown */
    void *module, *function;       /* CUmodule, CUfunction; NULL for a target that is not here */
} mfi_module;
static inline mf_kernel_info mfi_module_info(const mfi_module *m)
{
    return (mf_kernel_info){m->name, m->source, m->cubin, m->cubin_bytes, m->registers, m->shared, m->spills};
}
/* Kernel `index` of a step that has this one. */
static inline mf_status mfi_only_kernel(const mfi_module *m, int index, mf_kernel_info *out)
{
    MF_REQUIRE(index == 0, MF_E_INVALID, "kernel %d was asked for; the step has 1", index);
    *out = mfi_module_info(m);
    return MF_OK;
}

/* Compile for an architecture with NVRTC, through the disk cache. Needs no device. Errors carry NVRTC's log.
 * contract: a product and a sum may become one operation; chains say no, as what they write apart is rounded apart. */
mf_status mfi_jit_compile(mfi_module **out, mf_context *context, const char *name, const char *source, bool contract);
mf_status mfi_jit_launch(const mfi_module *m, mf_context *context, int grid, int block, size_t shared, void *args,
                         size_t args_bytes, void *stream); /* one by-value argument struct */
/* The same, of a kernel that begins with mf::begin_kernel(): it may be started while those ahead of it end. */
mf_status mfi_jit_launch_early(const mfi_module *m, mf_context *context, int grid, int block, size_t shared, void *args,
                               size_t args_bytes, void *stream);
/* `options`: extra NVRTC options, NULL-terminated, may be NULL. */
mf_status mfi_jit_build(void **out, size_t *bytes, mf_code code, char **log, const char *arch, const char *name,
                        const char *source, const char *const *options);

/* Disk cache of blobs: $MATHFUSE_CACHE_DIR, else $XDG_CACHE_HOME/mathfuse, else ~/.cache/mathfuse. Atomic (temporary file,
 * fsync, rename), checksummed; a missing, damaged, full or read-only cache costs time, never correctness. */
/* MF_E_MISSING: not there */
mf_status mfi_cache_get(void **data, size_t *bytes, const char *kind, uint64_t key_hi, uint64_t key_lo);
void mfi_cache_put(const char *kind, uint64_t key_hi, uint64_t key_lo, const void *data, size_t bytes);

/* Device headers, embedded at build time: names as included ("mathfuse/device/elementwise.cuh"). */
extern const char *const mfi_embedded_names[];
extern const char *const mfi_embedded_texts[];
extern const int mfi_embedded_count;

#endif
