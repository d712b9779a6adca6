/* A dense solver step for cuSOLVER and cuBLAS. Shared by the cusolver*.c files only; needs no CUDA header.
 *
 * Matrices are copied to workspace. Row-major copies are transposes to the column-major libraries: triangles change
 * sides, A X = B becomes X^T A^T = B^T. Copies are column-major for LU, because pivots, and with them `info`, belong to
 * rows, and for Cholesky one by one, where the library is faster on a lower triangle. */
#ifndef MFI_CUSOLVER_H
#define MFI_CUSOLVER_H

#include "cuda_pass.h"

typedef enum mfi_cusolver_region {
    MFI_CUSOLVER_A,      /* copy of a, then its factor */
    MFI_CUSOLVER_B,      /* copy of b, then the solution */
    MFI_CUSOLVER_INFO,   /* int32 per matrix, as the library leaves it */
    MFI_CUSOLVER_FAILED, /* int32 per matrix: nonzero where x must be NaN */
    MFI_CUSOLVER_PIVOTS, /* int64 (one by one) or int32 (batched) */
    MFI_CUSOLVER_POINTERS_A,
    MFI_CUSOLVER_POINTERS_B,
    MFI_CUSOLVER_LIBRARY, /* the library's own */
    MFI_CUSOLVER_REGIONS
} mfi_cusolver_region;

typedef struct mfi_cusolver_spec {
    const mfi_solve *solve;
    int ndim;
    int64_t shape[MF_MAX_DIMS]; /* batch dims, then n, then n or nrhs as needed */
    int64_t batch;
    mf_dtype dtype;
    bool batched; /* pointer-array calls, else one call a matrix */
    size_t offset[MFI_CUSOLVER_REGIONS], bytes[MFI_CUSOLVER_REGIONS];
} mfi_cusolver_spec;

/* Passes around the library calls; NULL where not needed. */
enum {
    MFI_PASS_COPY_A,
    MFI_PASS_COPY_B,
    MFI_PASS_CHECK_INPUT,
    MFI_PASS_CHECK_FACTOR,
    MFI_PASS_RESULT,
    MFI_PASS_INFO,
    MFI_SOLVE_PASSES
};

bool mfi_cusolver_definite(const mfi_cusolver_spec *s);             /* it factors by Cholesky */
bool mfi_cusolver_by_columns(const mfi_cusolver_spec *s, bool rhs); /* the copy of A, or of B, is column-major */
bool mfi_cusolver_describe(mfi_cusolver_spec *out, const mfi_problem *p, mfi_bid *bid);
void mfi_cusolver_place(mfi_cusolver_spec *s, size_t library_bytes); /* offsets of the regions */
size_t mfi_cusolver_workspace(const mfi_cusolver_spec *s);

/* cusolver_pass.c: build pass `which`, if needed, into *map, and the addresses it runs on. */
bool mfi_cusolver_pass_needed(const mfi_cusolver_spec *s, int which);
void mfi_cusolver_pass(mfi_problem *map, const mfi_cusolver_spec *s, int which);
void mfi_cusolver_pass_slots(void *slots[4], const mfi_cusolver_spec *s, int which, const mfi_run *run);

/* cusolver_run.c */
mf_status mfi_cusolver_prepare(void **state, const mfi_problem *p, const mfi_caps *c, mf_context *context,
                               mfi_bid *bid);
mf_status mfi_cusolver_run(void *state, const mfi_run *run);
void mfi_cusolver_destroy(void *state);
mf_status mfi_cusolver_kernel(void *state, int index, mf_kernel_info *out);

#endif
