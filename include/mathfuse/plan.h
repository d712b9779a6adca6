/* A plan: how a graph runs on a context's device. */
#ifndef MATHFUSE_PLAN_H
#define MATHFUSE_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include "mathfuse/context.h"
#include "mathfuse/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mf_plan mf_plan;

enum {
    MF_PLAN_MATCH_UNFUSED = 1, /* round every intermediate to its dtype, as separate calls would */
    MF_PLAN_NO_FUSION = 2,     /* one step per operation */
};

/* Where a plan takes what tuning found. */
typedef enum mf_tune_policy {
    MF_TUNE_DEFAULT, /* the environment's MATHFUSE_TUNE ("off", "cached", "measure" or "require"), else MF_TUNE_CACHED */
    MF_TUNE_OFF,     /* estimates only */
    MF_TUNE_CACHED,  /* the database's record, if there is one; nothing is measured */
    MF_TUNE_MEASURE, /* the same; where there is none, tune at once (mf_plan_tune with its defaults) */
    MF_TUNE_REQUIRE, /* a record, or MF_E_STATE */
} mf_tune_policy;

typedef struct mf_plan_options {
    size_t size;           /* sizeof(mf_plan_options), set by the INIT macro */
    int flags;             /* MF_PLAN_* */
    const char *providers; /* NULL: all. "ref,blas": only these. "-cublaslt": all but these */
    /* examples of what will be bound: strides and alignment are planned for; NULL: contiguous */
    const mf_tensor *bindings;
    int binding_count; /* inputs, or inputs + outputs */
    mf_tune_policy tune;
} mf_plan_options;

#define MF_PLAN_OPTIONS_INIT                                                                                           \
    {                                                                                                                  \
        sizeof(mf_plan_options), 0, NULL, NULL, 0, MF_TUNE_DEFAULT                                                     \
    }

/* Choose how `graph` will run on `context`; runs nothing.
 * Requires: the graph has an output. It is copied: the caller may free it at once.
 * Owns: caller frees *out with mf_plan_free. Keeps the context alive.
 * Async: may compile kernels (a second, once; then cached on disk). Not under stream capture.
 * Errors: the graph's latched error; MF_E_UNSUPPORTED if every provider refused, with their reasons. */
MF_API mf_status mf_plan_new(mf_plan **out, mf_context *context, const mf_graph *graph, const mf_plan_options *options);

/* The same, shared: an equal graph with equal options gives the same plan from the context's cache. */
MF_API mf_status mf_plan_cached(mf_plan **out, mf_context *context, const mf_graph *graph,
                                const mf_plan_options *options);
MF_API void mf_plan_free(mf_plan *plan);

/* Run: `tensors` are the inputs, then the outputs. stream is a CUstream; NULL is the default stream, ignored on the CPU.
 * Threads: re-entrant; any threads and streams at once.
 * Async: on a GPU returns after submission. On the CPU returns when done.
 * Capture: safe after one run on that stream, or if the plan needs no workspace.
 * Tensors whose strides or alignment differ from those planned for are re-planned for, once, and then cached.
 * Errors: MF_E_SHAPE, MF_E_TYPE, MF_E_DEVICE name the argument; MF_E_ALIAS if an output overlaps an input. Nothing has run then. */
MF_API mf_status mf_plan_run(mf_plan *plan, const mf_tensor *tensors, int count, void *stream);

/* What will run, and why: steps, providers, launches, bytes, workspace, every refusal. json 0: text.
 * Owns: caller frees *out with mf_free. */
MF_API mf_status mf_plan_explain(char **out, const mf_plan *plan, int json);

/* Scratch memory of one run, in bytes, and kernel launches (GPU) or calls (CPU) of one run. */
MF_API size_t mf_plan_workspace(const mf_plan *plan);
/* About how many bytes a plan keeps between runs, of the device's memory if it is for a GPU: the scratch of one stream, and
 * the tables of transforms. Whoever keeps plans of ever new shapes has to let some go; mf_plan_cached does. */
MF_API size_t mf_plan_memory(const mf_plan *plan);
MF_API int mf_plan_launches(const mf_plan *plan);

/* Where the time goes: every step and the whole plan on random data that is rotated through more than the last cache, for
 * about `seconds` (0: one). JSON:
 *   {"target", "us", "host_us", "bytes", "copy_gb_s", "percent", "steps": [{"problem", "provider", "kernel", "us", "bytes",
 *    "flops", "gb_s", "gflop_s", "bound_us", "bound", "percent"}]}
 * us: medians. host_us: of submitting the whole plan. bound_us: what moving the bytes at the speed of a copy measured
 * here, or the arithmetic at the device's rate by its data sheet, takes at least; bound: "memory" or "arithmetic".
 * percent: bound_us of us.
 * Owns: caller frees *out with mf_free. Errors: MF_E_STATE for a target that is not here, or under stream capture. */
MF_API mf_status mf_plan_profile(char **out, mf_plan *plan, double seconds);

/* Generated kernels. Strings and bytes belong to the plan. registers, shared, spills are -1 where unknown. */
typedef struct mf_kernel_info {
    const char *name;
    const char *source;
    const void *cubin;
    size_t cubin_bytes;
    int registers, shared, spills; /* per thread; static bytes per block; bytes of local memory per thread */
} mf_kernel_info;
MF_API int mf_plan_kernels(const mf_plan *plan);
MF_API mf_status mf_plan_kernel(const mf_plan *plan, int index, mf_kernel_info *out);

/* The plan as device functions, to call from a kernel of one's own: a CUDA header (nvcc, NVRTC, mf_kernel_new, emulate.h)
 * over the headers of mathfuse/device. In namespace `name` it has
 *   struct args                        the arrays: inputs, outputs, workspace, as typed pointers
 *   workspace_bytes, steps
 *   step1, step2, …                    namespaces, one a launch of the plan, each with
 *     block_size, shared_bytes, tiles  threads of a block, bytes of shared memory (16-byte aligned), tiles of the work
 *     barriers                         false: threads beyond block_size need not be there, and others need not call
 *     run_tile(args, tile, shared)     does tile number `tile`; all block_size threads call; leaves `shared` free
 * and the names of step1 directly, if it is the only one. Each tile of a step may run in any block, at any time; a step
 * starts when all tiles of the one before are done (a barrier over the grid, or another launch). Arrays are laid out and
 * aligned as planned for.
 * threads: block_size of every step, so that a kernel can mix plans: a power of two from 32 to 1024; 0: as each does best.
 * Where the plan calls a library, which a kernel cannot, generated kernels take its place, and the header says so.
 * Owns: caller frees *out with mf_free.
 * Errors: MF_E_UNSUPPORTED with the reasons where no generated kernel can, or can have such blocks. */
MF_API mf_status mf_plan_device_header(char **out, const mf_plan *plan, const char *name, int threads);

#ifdef __cplusplus
}
#endif
#endif
