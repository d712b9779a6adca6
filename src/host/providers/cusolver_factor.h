/* A FACTOR step for cuSOLVER and cuBLAS. Shared by the cusolver_factor*.c files only; needs no CUDA header.
 *
 * Matrices are copied to workspace column by column, as the libraries want them; a matrix that holds NaN or infinity is
 * copied as zero, so that every routine ends. Where a routine wants tall matrices, a wide one is copied as its adjoint. */
#ifndef MFI_CUSOLVER_FACTOR_H
#define MFI_CUSOLVER_FACTOR_H

#include "cuda_pass.h"

typedef enum mfi_fregion {
    MFI_FR_A,        /* the matrix, then what the routine makes of it */
    MFI_FR_B,        /* right-hand sides, or the inverse */
    MFI_FR_C,        /* least squares: U^H b, scaled */
    MFI_FR_X,        /* least squares: the solution */
    MFI_FR_U,        /* left singular vectors, Q, eigenvectors */
    MFI_FR_V,        /* right singular vectors: V^H, from gesvdjBatched V */
    MFI_FR_S,        /* singular values or eigenvalues */
    MFI_FR_TAU,      /* QR */
    MFI_FR_PIVOTS,   /* int64 (one by one) or int32 (batched), from 1 */
    MFI_FR_INFO,     /* int32 per matrix, as the library leaves it */
    MFI_FR_FAILED,   /* int32 per matrix: -1 where it holds NaN or infinity */
    MFI_FR_FAILED_B, /* the same of right-hand sides */
    MFI_FR_FINAL,    /* int32 per matrix: info as it is reported */
    MFI_FR_POINTERS_A,
    MFI_FR_POINTERS_B,
    MFI_FR_LIBRARY, /* the library's own, one for each lane */
    MFI_FR_REGIONS
} mfi_fregion;

/* Steps around the library calls; NULL where not needed. */
enum {
    MFI_FP_CHECK,
    MFI_FP_CHECK_B,
    MFI_FP_COPY_A,
    MFI_FP_COPY_B,
    MFI_FP_PIVOTS,
    MFI_FP_DIAGONAL,
    MFI_FP_SCALE, /* between the calls of least squares */
    MFI_FP_FINAL,
    MFI_FP_OUT0,
    MFI_FP_OUT2,
    MFI_FP_OUT3,
    MFI_FACTOR_PASSES
};
enum { MFI_FACTOR_PASS_SLOTS = 5 };

typedef struct mfi_cufactor_spec {
    const mfi_factor *f;
    int ndim;
    int64_t shape[MF_MAX_DIMS]; /* batch dims */
    int64_t batch;
    mf_dtype dtype, real; /* of the workspace: complex for EIG */
    mfi_ctype ctype;
    bool empty;            /* results are identities and zeros */
    bool batched;          /* one call for the batch, else one call a matrix */
    bool wide;             /* the workspace holds the adjoint */
    bool jacobi;           /* gesvdjBatched: all of U, and V instead of V^H */
    int lanes;             /* streams that calls are spread over */
    int64_t rows, cols, k; /* of the workspace's matrix; k = min(rows, cols) */
    int64_t u_cols;        /* columns of U or Q in the workspace */
    size_t offset[MFI_FR_REGIONS], bytes[MFI_FR_REGIONS];
} mfi_cufactor_spec;

bool mfi_cufactor_describe(mfi_cufactor_spec *out, const mfi_problem *p, const mfi_caps *c, mfi_bid *bid);
void mfi_cufactor_place(mfi_cufactor_spec *s, size_t library_bytes); /* offsets of the regions */
size_t mfi_cufactor_workspace(const mfi_cufactor_spec *s);
bool mfi_cufactor_query(const mfi_problem *p, const mfi_caps *c, mfi_bid *bid);

/* cusolver_factor_pass.c: build pass `which`, if needed, into *map, and the addresses it runs on. */
bool mfi_cufactor_pass_needed(const mfi_cufactor_spec *s, int which);
void mfi_cufactor_pass(mfi_problem *map, const mfi_cufactor_spec *s, int which);
void mfi_cufactor_pass_slots(void *slots[MFI_FACTOR_PASS_SLOTS], const mfi_cufactor_spec *s, int which,
                             const mfi_run *run);
/* Whether the workspace holds right-hand sides, and with how many columns. */
int64_t mfi_cufactor_sides(const mfi_factor *f);

/* cusolver_factor_run.c */
mf_status mfi_cufactor_prepare(void **state, const mfi_problem *p, const mfi_caps *c, mf_context *context,
                               mfi_bid *bid);
mf_status mfi_cufactor_run(void *state, const mfi_run *run);
void mfi_cufactor_destroy(void *state);
mf_status mfi_cufactor_kernel(void *state, int index, mf_kernel_info *out);

#endif
