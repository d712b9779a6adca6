/* A prepared FACTOR step on CUDA, and the library calls of it. Shared by cusolver_factor_run.c and cusolver_factor_calls.c. */
#ifndef MFI_CUSOLVER_FACTOR_CALLS_H
#define MFI_CUSOLVER_FACTOR_CALLS_H

#include "cusolver_factor.h"
#include "cusolver_library.h"

/* In front of a lane's buffer: where calls that report nothing new write their info. */
enum { MFI_CUFACTOR_SPARE = 256 };
/* cuBLAS's own workspace: one that streams do not share. */
#define MFI_CUFACTOR_BLAS ((size_t)8 << 20)

typedef struct mfi_cufactor {
    mfi_anchor anchor; /* first, as in the state of a SOLVE step: by it the provider tells them apart */
    mfi_cufactor_spec spec;
    mfi_solver_library *lib;
    mf_context *context;
    mfi_pass *passes[MFI_FACTOR_PASSES];
    struct mfi_module *pointers;                 /* batched LU: makes the address arrays */
    size_t device_bytes, host_bytes, lane_bytes; /* of one lane */
    char *host;
    gesvdjInfo_t jacobi;
    int type; /* f32, f64, c64, c128 */
    int lwork;
    cudaDataType_t cuda_type, cuda_real;
} mfi_cufactor;

typedef struct mfi_cufactor_call {
    mfi_cufactor *s;
    const mfi_run *run;
    mfi_solver_handles *h;
    char *buffer, *host; /* of the lane */
} mfi_cufactor_call;

static inline char *mfi_cufactor_region(const mfi_cufactor *s, const mfi_run *run, mfi_fregion which)
{
    return (char *)run->workspace + s->spec.offset[which];
}

bool mfi_cufactor_uses_blas(const mfi_cufactor *s);
/* device_bytes and host_bytes of one lane. */
mf_status mfi_cufactor_ask_sizes(mfi_cufactor *s, const mfi_solver_handles *h);
mf_status mfi_cufactor_call_one(const mfi_cufactor_call *c, int64_t item);
mf_status mfi_cufactor_call_batch(const mfi_cufactor_call *c);
/* Least squares: C = U^H B, then X = V C. */
mf_status mfi_cufactor_project(mfi_cufactor *s, const mfi_run *run);
mf_status mfi_cufactor_combine(mfi_cufactor *s, const mfi_run *run);

#endif
