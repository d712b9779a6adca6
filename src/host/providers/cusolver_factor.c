/* FACTOR on CUDA: what cuSOLVER and cuBLAS take, and the layout of workspace. */
#include "cusolver_factor.h"

#include <stdio.h>

enum { BATCHED_FROM = 4, BATCHED_UP_TO = 256, JACOBI_UP_TO = 32, LANES = 4 };
enum { VERSION_64_BIT_EIG = 11701 }; /* XsyevBatched and Xgeev came with it */

/* Kinds that solve through an LU factorisation of the whole matrix. */
static bool by_lu(const mfi_factor *f)
{
    return f->kind == MFI_LU || f->kind == MFI_LU_APPLY || f->kind == MFI_INVERSE || f->kind == MFI_SYMMETRIC_SOLVE ||
           f->kind == MFI_TRIDIAGONAL_SOLVE;
}

static bool by_svd(const mfi_factor *f)
{
    return f->kind == MFI_SVD || f->kind == MFI_LEAST_SQUARES;
}

int64_t mfi_cufactor_sides(const mfi_factor *f)
{
    return f->kind == MFI_INVERSE ? f->n : f->nrhs;
}

static void choose_calls(mfi_cufactor_spec *s, const mfi_caps *c)
{
    const mfi_factor *f = s->f;
    bool many = s->batch >= BATCHED_FROM;
    int64_t version = c->version[MFI_LIB_CUSOLVER];
    s->wide = by_svd(f) && f->m < f->n;
    s->rows = s->wide ? f->n : f->m;
    s->cols = s->wide ? f->m : f->n;
    s->k = mfi_min64(s->rows, s->cols);
    s->jacobi = by_svd(f) && many && s->rows <= JACOBI_UP_TO;
    s->batched = s->jacobi || (by_lu(f) && many && f->m == f->n && f->n <= BATCHED_UP_TO) ||
                 (f->kind == MFI_EIGH && many && version >= VERSION_64_BIT_EIG);
    s->lanes = s->batched || s->batch == 1 ? 1 : (int)mfi_min64(LANES, s->batch);
    bool full = f->flags & MF_FULL;
    s->u_cols = s->jacobi ? s->rows : full ? s->rows : s->k;
}

bool mfi_cufactor_describe(mfi_cufactor_spec *s, const mfi_problem *p, const mfi_caps *c, mfi_bid *bid)
{
    const mfi_factor *f = &p->u.factor;
    mf_dtype dtype = mfi_ctype_dtype(f->ctype);
    *s = (mfi_cufactor_spec){.f = f, .ndim = p->ndim, .batch = 1};
    s->dtype = f->kind == MFI_EIG ? mf_dtype_to_complex(dtype) : dtype;
    s->real = mf_dtype_to_real(dtype);
    s->ctype = mfi_compute_type(s->dtype);
    memcpy(s->shape, p->shape, (size_t)p->ndim * sizeof *s->shape);
    for (int i = 0; i < p->ndim; i++)
        s->batch *= p->shape[i];
    MF_REFUSE_UNLESS(p->ndim + 2 <= MF_MAX_DIMS, RANK, "%d batch axes", p->ndim);
    int64_t largest = mfi_max64(mfi_max64(f->m, f->n), mfi_max64(f->nrhs, s->batch));
    MF_REFUSE_UNLESS(largest <= INT32_MAX, SIZE, "%lldx%lld, nrhs=%lld, batch %lld", (long long)f->m, (long long)f->n,
                     (long long)f->nrhs, (long long)s->batch);
    s->empty = f->m == 0 || f->n == 0 || (f->in[1].view.slot >= 0 && f->nrhs == 0);
    choose_calls(s, c);
    mfi_cufactor_place(s, 0);
    return true;
}

/* Elements of a region for one matrix, in the workspace's dtype. */
static size_t elements(const mfi_cufactor_spec *s, mfi_fregion region)
{
    const mfi_factor *f = s->f;
    const size_t rows = (size_t)s->rows, cols = (size_t)s->cols, k = (size_t)s->k,
                 sides = (size_t)mfi_cufactor_sides(f);
    const bool vectors = f->kind == MFI_SVD ? f->out[2].view.slot >= 0 || f->out[3].view.slot >= 0
                                            : f->kind == MFI_LEAST_SQUARES || f->kind == MFI_QR;
    switch (region) {
    case MFI_FR_A:
        return rows * cols;
    case MFI_FR_B:
        return (size_t)f->m * sides;
    case MFI_FR_C:
        return f->kind == MFI_LEAST_SQUARES ? k * sides : 0;
    case MFI_FR_X:
        return f->kind == MFI_LEAST_SQUARES ? (size_t)f->n * sides : 0;
    case MFI_FR_U:
        return f->kind == MFI_EIG ? rows * cols : vectors || s->jacobi ? rows * (size_t)s->u_cols : 0;
    case MFI_FR_V:
        return by_svd(f) && (vectors || s->jacobi) ? cols * cols : 0;
    case MFI_FR_TAU:
        return f->kind == MFI_QR ? k : 0;
    default:
        return 0;
    }
}

void mfi_cufactor_place(mfi_cufactor_spec *s, size_t library_bytes)
{
    const mfi_factor *f = s->f;
    size_t batch = (size_t)s->batch, at = 0, pivot = s->batched ? sizeof(int32_t) : sizeof(int64_t);
    size_t *bytes = s->bytes;
    for (int i = 0; i < MFI_FR_REGIONS; i++)
        bytes[i] = batch * elements(s, (mfi_fregion)i) * mf_dtype_size(s->dtype);
    if (by_svd(f) || f->kind == MFI_EIGH)
        bytes[MFI_FR_S] = batch * (size_t)s->k * mf_dtype_size(s->real);
    if (f->kind == MFI_EIG)
        bytes[MFI_FR_S] = batch * (size_t)s->k * mf_dtype_size(s->dtype);
    bytes[MFI_FR_PIVOTS] = by_lu(f) ? batch * (size_t)s->k * pivot : 0;
    bytes[MFI_FR_INFO] = bytes[MFI_FR_FAILED] = bytes[MFI_FR_FINAL] = batch * sizeof(int32_t);
    bytes[MFI_FR_FAILED_B] = f->kind == MFI_LEAST_SQUARES ? batch * sizeof(int32_t) : 0;
    bytes[MFI_FR_POINTERS_A] = by_lu(f) && s->batched ? batch * sizeof(void *) : 0;
    bytes[MFI_FR_POINTERS_B] = by_lu(f) && s->batched && mfi_cufactor_sides(f) ? batch * sizeof(void *) : 0;
    bytes[MFI_FR_LIBRARY] = library_bytes;
    for (int i = 0; i < MFI_FR_REGIONS; i++) {
        s->offset[i] = at;
        at += mfi_align_up(bytes[i], 256);
    }
}

size_t mfi_cufactor_workspace(const mfi_cufactor_spec *s)
{
    return s->offset[MFI_FR_LIBRARY] + mfi_align_up(s->bytes[MFI_FR_LIBRARY], 256);
}

static const char *routine(const mfi_cufactor_spec *s)
{
    static const char *const names[MFI_FACTOR_COUNT][2] = {
        [MFI_LU] = {"cusolverDnXgetrf", "cublas getrfBatched"},
        [MFI_LU_APPLY] = {"cusolverDnXgetrs", "cublas getrsBatched"},
        [MFI_INVERSE] = {"cusolverDnXgetrf + Xgetrs", "cublas getrfBatched + getriBatched"},
        [MFI_SYMMETRIC_SOLVE] = {"cusolverDnXgetrf + Xgetrs", "cublas getrfBatched + getrsBatched"},
        [MFI_TRIDIAGONAL_SOLVE] = {"cusolverDnXgetrf + Xgetrs", "cublas getrfBatched + getrsBatched"},
        [MFI_QR] = {"cusolverDnXgeqrf + orgqr"},
        [MFI_EIGH] = {"cusolverDnXsyevd", "cusolverDnXsyevBatched"},
        [MFI_SVD] = {"cusolverDnXgesvd", "cusolverDn gesvdjBatched"},
        [MFI_LEAST_SQUARES] = {"cusolverDnXgesvd + cublas gemm x 2", "cusolverDn gesvdjBatched + cublas gemm x 2"},
        [MFI_EIG] = {"cusolverDnXgeev"},
    };
    return names[s->f->kind][s->batched];
}

/* Eigenvalues as measured on an H200 for n of 4 to 64, in batches of 1 to 50000: steps wait for each other, and few matrices run
 * together. 1000 singular value decompositions, n of 8 to 32, took 1.4 to 3 times as long. */
static double values_us(const mfi_cufactor_spec *s)
{
    const double n = (double)s->k, times = by_svd(s->f) ? 1.4 : 1, f32_us = 0.00054, f64_us = 0.0009;
    const double step_us = 4.5, begin_us = 45, complex = s->ctype >= MFI_C64 ? 1.3 : 1;
    return times *
           (begin_us + step_us * n + (double)s->batch * n * n * complex * (s->real == MF_F64 ? f64_us : f32_us));
}

static int launches(const mfi_cufactor_spec *s)
{
    int calls = s->empty ? 0 : s->batched ? 1 : (int)s->batch;
    bool two = s->f->kind == MFI_QR || (by_lu(s->f) && s->f->kind != MFI_LU && s->f->kind != MFI_LU_APPLY);
    calls = calls * (two ? 2 : 1) + (s->f->kind == MFI_LEAST_SQUARES ? 2 : 0);
    calls += (s->bytes[MFI_FR_POINTERS_A] != 0) + (s->bytes[MFI_FR_POINTERS_B] != 0);
    for (int i = 0; i < MFI_FACTOR_PASSES; i++)
        calls += mfi_cufactor_pass_needed(s, i);
    return calls;
}

bool mfi_cufactor_query(const mfi_problem *p, const mfi_caps *c, mfi_bid *bid)
{
    const mfi_factor *f = &p->u.factor;
    mfi_cufactor_spec s;
    MF_REFUSE_UNLESS(c->cuda, WRONG_TARGET, "the target is %s", c->arch);
#ifndef MFI_WITH_CUDA
    return mfi_refuse(bid, MFI_R_NOT_BUILT, "built without CUDA's headers");
#endif
    MF_REFUSE_UNLESS(c->library[MFI_LIB_CUSOLVER], NOT_FOUND, "cuSOLVER");
    MF_REFUSE_UNLESS(c->library[MFI_LIB_CUBLAS], NOT_FOUND, "cuBLAS");
    MF_REFUSE_UNLESS(c->library[MFI_LIB_NVRTC], NOT_FOUND, "NVRTC, for the copies around the calls");
    MF_REFUSE_UNLESS(mfi_problem_points(p) > 0, EMPTY, "no matrix");
    MF_REFUSE_UNLESS(f->kind != MFI_EIG || c->version[MFI_LIB_CUSOLVER] >= VERSION_64_BIT_EIG, NOT_FOUND,
                     "Xgeev, which came with cuSOLVER 11.7.1");
    if (!mfi_cufactor_describe(&s, p, c, bid))
        return false;
    MF_REFUSE_UNLESS(!by_lu(f) || f->kind == MFI_LU_APPLY || s.k * f->m <= INT32_MAX, KNOWN_BUG,
                     "Xgetrf overflows its pivot index for %lldx%lld", (long long)f->m, (long long)f->n);
    mfi_bid_roofline(bid, p, c, s.batched ? 0.05 : 0.3, launches(&s));
    if (f->kind == MFI_EIGH || f->kind == MFI_SVD)
        bid->cost_us = bid->cost_us > values_us(&s) ? bid->cost_us : values_us(&s);
    bid->workspace = mfi_cufactor_workspace(&s);
    snprintf(bid->kernel, sizeof bid->kernel, "%s", s.empty ? "no elements: identities and zeros" : routine(&s));
    if (!s.empty)
        strncat(bid->kernel, ", copies", sizeof bid->kernel - strlen(bid->kernel) - 1);
    return true;
}
