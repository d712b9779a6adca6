/* Providers: whoever can run a step. plan.c knows this header only. */
#ifndef MFI_PROVIDER_H
#define MFI_PROVIDER_H

#include "chain.h"

typedef enum mfi_reason {
#define MF_REASON(ENUM, text) MFI_R_##ENUM,
#include "mathfuse/def/reason.def"
#undef MF_REASON
    MFI_REASON_COUNT
} mfi_reason;
const char *mfi_reason_name(mfi_reason reason);
const char *mfi_reason_text(mfi_reason reason);

/* Libraries that are looked for at run time (loader.c). */
typedef enum mfi_library {
    MFI_LIB_BLAS,
    MFI_LIB_LAPACK,
    MFI_LIB_FFTW,
    MFI_LIB_FFTWF,
    MFI_LIB_CUDA,
    MFI_LIB_NVRTC,
    MFI_LIB_CUBLASLT,
    MFI_LIB_CUBLAS,
    MFI_LIB_CUFFT,
    MFI_LIB_CUSOLVER,
    MFI_LIB_NVJITLINK,
    MFI_LIB_SQLITE, /* no provider's: the tuning database's */
    MFI_LIB_COUNT
} mfi_library;

/* What a target can do. A query depends on this and the problem only. */
typedef struct mfi_caps {
    bool cuda;                    /* the target is a GPU */
    bool present;                 /* and it is here: steps can run */
    int sm;                       /* 90 for sm_90a */
    char arch[16];                /* "sm_90a", "cpu" */
    int multiprocessors, threads; /* GPU; CPU */
    size_t shared_bytes;          /* per block, opt-in maximum */
    size_t l2_bytes;
    double bytes_per_us, flops_per_us, tensor_flops_per_us; /* estimates for bids */
    double launch_us;
    bool library[MFI_LIB_COUNT];
    int64_t version[MFI_LIB_COUNT]; /* as the library says; for a target that is not here, the version we plan for */
} mfi_caps;

enum { MFI_IDENTITY_BYTES = 96 };

typedef struct mfi_bid {
    double cost_us;
    int64_t bytes; /* memory traffic */
    size_t workspace;
    int launches;
    char kernel[96]; /* what will run, "cublasLtMatmul GELU_BIAS" */
    /* Set before prepare: which of the provider's ways to run the step is wanted; 0: its own pick. Set by prepare: what
     * that way is, by the same words as long as it is the same. No '/' or ';' in it. */
    int variant;
    char identity[MFI_IDENTITY_BYTES];
    mfi_reason reason; /* refusal */
    char detail[160];
} mfi_bid;

#define MF_REFUSE_UNLESS(condition, REASON, ...)                                                                       \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            return mfi_refuse(bid, MFI_R_##REASON, __VA_ARGS__);                                                       \
    } while (0)
bool mfi_refuse(mfi_bid *bid, mfi_reason reason, const char *format, ...) MFI_PRINTF(3, 4); /* returns false */

/* Roofline bid: bytes over bandwidth or flops over rate, whichever is larger, plus launches. */
void mfi_bid_roofline(mfi_bid *bid, const mfi_problem *p, const mfi_caps *c, double efficiency, int launches);
int64_t mfi_problem_bytes(const mfi_problem *p); /* inputs once, outputs once */
double mfi_problem_flops(const mfi_problem *p);

/* One run of a step. `slots[i]` is the address of element 0 of slot i; views add their offset. */
typedef struct mfi_run {
    void *const *slots;
    void *workspace; /* 256-byte aligned, of the bid's size */
    void *stream;    /* CUstream */
    mf_context *context;
} mfi_run;

/* Where a view begins, as a word of a kernel's arguments; 0 for one that is absent. */
static inline uint64_t mfi_run_address(const mfi_run *r, const mfi_view *view)
{
    if (view->slot < 0)
        return 0;
    return (uint64_t)(uintptr_t)r->slots[view->slot] + (uint64_t)(view->offset * (int64_t)mf_dtype_size(view->dtype));
}

/* One launch of a step as device code: a namespace's contents with a function run_tile(p, tile, shared). */
typedef struct mfi_device_code {
    const char *skeleton; /* the header under src/device that it needs, "map" */
    char *text;           /* freed with mf_free */
    int threads;
    int64_t tiles;
} mfi_device_code;

/* What device code works on, as C++ expressions of addresses. */
typedef struct mfi_device_memory {
    const char *const *slots;
    const char *workspace;
    const char *kept; /* memory that is the step's alone */
} mfi_device_memory;

typedef struct mfi_device_functions {
    /* Launch `index`. threads: of the block, 0: as the kernel has. */
    mf_status (*code)(void *state, int index, int threads, const mfi_device_memory *memory, mfi_device_code *out);
    /* Where it differs from the step: launches, and bytes kept from one run to the next. NULL: it does not. */
    void (*needs)(void *state, int *launches, size_t *kept);
} mfi_device_functions;

typedef struct mfi_provider {
    const char *name;
    /* Pure: can this step run there, and what would it cost? false: refused, with the reason in bid. */
    bool (*query)(const mfi_problem *p, const mfi_caps *c, mfi_bid *bid);
    /* Get ready (descriptors, heuristics, compilation). p stays valid and unchanged until destroy. May update bid.
     * Called for targets that are not here too: compile what can be compiled, do nothing else. */
    mf_status (*prepare)(void **state, const mfi_problem *p, const mfi_caps *c, mf_context *context, mfi_bid *bid);
    /* Submit. Re-entrant. No allocation, no sync on a GPU. */
    mf_status (*run)(void *state, const mfi_run *run);
    void (*destroy)(void *state);
    /* Generated kernels of this step, or NULL. index from 0; MF_E_INVALID past the end. */
    mf_status (*kernel)(void *state, int index, mf_kernel_info *out);
    const mfi_device_functions *device; /* the same kernels as device code, or NULL */
    /* Pure: how many ways to run the step there are to measure, at most; NULL: one. prepare fails with MF_E_INVALID past the
     * last of them, and with anything else for one that does not suit the step. */
    int (*variants)(const mfi_problem *p, const mfi_caps *c);
} mfi_provider;

/* provider_list.c: best first for ties, ref last. */
extern const mfi_provider *const mfi_providers[];
extern const int mfi_provider_count;

/* ---- contexts, seen by providers (context.c) ---- */
const mfi_caps *mfi_context_caps(const mf_context *context);
void mfi_context_retain(mf_context *context);
/* One object per (context, owner), made on first use, freed with the context; thread-safe. For handles and module caches.
 * The first call's make/free are kept; make may fail. */
mf_status mfi_context_object(mf_context *context, const void *owner, mf_status (*make)(void **out, mf_context *context),
                             void (*drop)(void *object), void **out);
mf_status mfi_context_make_current(mf_context *context); /* cuCtxSetCurrent; no-op on the CPU */

#endif
