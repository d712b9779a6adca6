/* SOLVE and FACTOR on CUDA: factorisations through cuSOLVER, triangular solves and batched LU through cuBLAS. What is taken, and
 * the layout of workspace; cusolver_pass.c builds the copies and checks around the calls, cusolver_run.c makes the
 * calls. */
#include "cusolver.h"

#include "cusolver_factor.h"

#include <stdio.h>

enum { BATCHED_FROM = 4, BATCHED_UP_TO = 256 }; /* matrices; rows */

/* cuBLAS's own workspace: one that streams do not share. */
#define BLAS_WORKSPACE ((size_t)8 << 20)

static const char *const names[MFI_SOLVER_COUNT][2] = {
    {"cusolverDnXpotrf", "cusolverDn potrfBatched"},
    {"cusolverDnXgetrf + Xgetrs", "cublas getrfBatched + getrsBatched"},
    {"cusolverDnXpotrs", "cublas trsmBatched x 2"},
    {"cublas trsm", "cublas trsmBatched"},
    {"cusolverDnXpotrf + Xpotrs", "cusolverDn potrfBatched + cublas trsmBatched x 2"},
};

bool mfi_cusolver_definite(const mfi_cusolver_spec *s)
{
    return s->solve->solver == MFI_CHOLESKY || s->solve->solver == MFI_POSV;
}

/* Of a real matrix the upper triangle, row by row, is a lower one to the libraries as it stands. */
bool mfi_cusolver_by_columns(const mfi_cusolver_spec *s, bool rhs)
{
    if (s->solve->solver == MFI_LU_SOLVE)
        return true;
    bool one_by_one = !s->batched && s->solve->solver != MFI_TRSM, real = s->solve->ctype <= MFI_F64;
    return one_by_one && (rhs || !real || !(s->solve->flags & MF_UPPER));
}

bool mfi_cusolver_describe(mfi_cusolver_spec *s, const mfi_problem *p, mfi_bid *bid)
{
    const mfi_solve *solve = &p->u.solve;
    *s = (mfi_cusolver_spec){.solve = solve, .ndim = p->ndim, .batch = 1, .dtype = mfi_ctype_dtype(solve->ctype)};
    memcpy(s->shape, p->shape, (size_t)p->ndim * sizeof *s->shape);
    for (int i = 0; i < p->ndim; i++)
        s->batch *= p->shape[i];
    MF_REFUSE_UNLESS(p->ndim + 2 <= MF_MAX_DIMS, RANK, "%d batch axes", p->ndim);
    MF_REFUSE_UNLESS(solve->n <= INT32_MAX && solve->nrhs <= INT32_MAX && s->batch <= INT32_MAX, SIZE,
                     "n=%lld nrhs=%lld batch %lld", (long long)solve->n, (long long)solve->nrhs, (long long)s->batch);
    s->batched = s->batch >= BATCHED_FROM && solve->n <= BATCHED_UP_TO;
    mfi_cusolver_place(s, BLAS_WORKSPACE);
    return true;
}

void mfi_cusolver_place(mfi_cusolver_spec *s, size_t library_bytes)
{
    size_t batch = (size_t)s->batch, n = (size_t)s->solve->n, nrhs = (size_t)s->solve->nrhs;
    size_t element = mf_dtype_size(s->dtype), at = 0;
    bool lu = s->solve->solver == MFI_LU_SOLVE, rhs = s->solve->solver != MFI_CHOLESKY;
    size_t *bytes = s->bytes;
    bytes[MFI_CUSOLVER_A] = batch * n * n * element;
    bytes[MFI_CUSOLVER_B] = rhs ? batch * n * nrhs * element : 0;
    bytes[MFI_CUSOLVER_INFO] = bytes[MFI_CUSOLVER_FAILED] = batch * sizeof(int32_t);
    bytes[MFI_CUSOLVER_PIVOTS] = lu ? batch * n * (s->batched ? sizeof(int32_t) : sizeof(int64_t)) : 0;
    bytes[MFI_CUSOLVER_POINTERS_A] = s->batched ? batch * sizeof(void *) : 0;
    bytes[MFI_CUSOLVER_POINTERS_B] = s->batched && rhs ? batch * sizeof(void *) : 0;
    bytes[MFI_CUSOLVER_LIBRARY] = library_bytes;
    for (int i = 0; i < MFI_CUSOLVER_REGIONS; i++) {
        s->offset[i] = at;
        at += mfi_align_up(bytes[i], 256);
    }
}

size_t mfi_cusolver_workspace(const mfi_cusolver_spec *s)
{
    return s->offset[MFI_CUSOLVER_LIBRARY] + mfi_align_up(s->bytes[MFI_CUSOLVER_LIBRARY], 256);
}

/* Products that overflow inside Xgetrf; fixed in CUDA 13.4 Update 1, whose number is not known. */
static bool known_bugs(const mfi_cusolver_spec *s, mfi_bid *bid)
{
    MF_REFUSE_UNLESS(s->solve->solver != MFI_LU_SOLVE || s->solve->n * s->solve->n <= INT32_MAX, KNOWN_BUG,
                     "Xgetrf overflows its pivot index for n=%lld", (long long)s->solve->n);
    return true;
}

/* Library calls (each of which launches several kernels) and the passes around them. */
static int launches(const mfi_cusolver_spec *s)
{
    int calls = s->batched ? 1 : (int)s->batch,
        pointers = (s->bytes[MFI_CUSOLVER_POINTERS_A] != 0) + (s->bytes[MFI_CUSOLVER_POINTERS_B] != 0);
    bool one = s->solve->solver == MFI_CHOLESKY || s->solve->solver == MFI_TRSM ||
               (s->solve->solver == MFI_CHO_SOLVE && !s->batched);
    calls *= one ? 1 : s->solve->solver == MFI_POSV && s->batched ? 3 : 2;
    for (int i = 0; i < MFI_SOLVE_PASSES; i++)
        calls += mfi_cusolver_pass_needed(s, i);
    return calls + pointers;
}

static bool query(const mfi_problem *p, const mfi_caps *c, mfi_bid *bid)
{
    mfi_cusolver_spec s;
    if (p->anchor == MFI_FACTOR)
        return mfi_cufactor_query(p, c, bid);
    MF_REFUSE_UNLESS(p->anchor == MFI_SOLVE, NOT_ANCHOR, "it solves");
    MF_REFUSE_UNLESS(c->cuda, WRONG_TARGET, "the target is %s", c->arch);
#ifndef MFI_WITH_CUDA
    return mfi_refuse(bid, MFI_R_NOT_BUILT, "built without CUDA's headers");
#endif
    const mfi_solve *solve = &p->u.solve;
    MF_REFUSE_UNLESS(c->library[MFI_LIB_CUBLAS], NOT_FOUND, "cuBLAS");
    MF_REFUSE_UNLESS(c->library[MFI_LIB_NVRTC], NOT_FOUND, "NVRTC, for the copies around the calls");
    MF_REFUSE_UNLESS(solve->ctype == MFI_F32 || solve->ctype == MFI_F64 || solve->ctype >= MFI_C64, DTYPE, "%s",
                     mfi_ctype_name(solve->ctype));
    MF_REFUSE_UNLESS(mfi_problem_points(p) > 0 && solve->n > 0 && (solve->solver == MFI_CHOLESKY || solve->nrhs > 0),
                     EMPTY, "no matrix or no right-hand side");
    if (!mfi_cusolver_describe(&s, p, bid) || !known_bugs(&s, bid))
        return false;
    bool solver = solve->solver != MFI_TRSM && !(solve->solver == MFI_CHO_SOLVE && s.batched);
    MF_REFUSE_UNLESS(!solver || c->library[MFI_LIB_CUSOLVER], NOT_FOUND, "cuSOLVER");
    mfi_bid_roofline(bid, p, c, s.batched ? 0.05 : 0.3, launches(&s));
    bid->workspace = mfi_cusolver_workspace(&s);
    snprintf(bid->kernel, sizeof bid->kernel, "%s, copies", names[solve->solver][s.batched]);
    return true;
}

/* The anchor comes first in the states of both kinds of step. */
static bool is_factor(const void *state)
{
    return state && *(const mfi_anchor *)state == MFI_FACTOR;
}

static mf_status prepare(void **state, const mfi_problem *p, const mfi_caps *c, mf_context *context, mfi_bid *bid)
{
    return p->anchor == MFI_FACTOR ? mfi_cufactor_prepare(state, p, c, context, bid)
                                   : mfi_cusolver_prepare(state, p, c, context, bid);
}

static mf_status run(void *state, const mfi_run *r)
{
    return is_factor(state) ? mfi_cufactor_run(state, r) : mfi_cusolver_run(state, r);
}

static void destroy(void *state)
{
    if (is_factor(state))
        mfi_cufactor_destroy(state);
    else
        mfi_cusolver_destroy(state);
}

static mf_status kernel(void *state, int index, mf_kernel_info *out)
{
    return is_factor(state) ? mfi_cufactor_kernel(state, index, out) : mfi_cusolver_kernel(state, index, out);
}

const mfi_provider mfi_provider_cusolver = {"cusolver", query, prepare, run, destroy, kernel, NULL, NULL};
