/* cuSOLVER's and cuBLAS's routines as FACTOR needs them: how much memory they want, one matrix, a batch. */
#ifdef MFI_WITH_CUDA
#include "cusolver_factor_calls.h"

#include "cuda_api.h"

typedef const mfi_cufactor_call call;

#define SOLVER(lib, name, ...) mfi_check_solver((lib)->name(__VA_ARGS__), #name)

static bool wanted(const mfi_cufactor *s, int result)
{
    return s->spec.f->out[result].view.slot >= 0;
}

static bool wants_vectors(const mfi_cufactor *s)
{
    switch (s->spec.f->kind) {
    case MFI_SVD:
        return wanted(s, 2) || wanted(s, 3);
    case MFI_LEAST_SQUARES:
        return true;
    default:
        return wanted(s, 2);
    }
}

static cusolverEigMode_t mode(const mfi_cufactor *s)
{
    return wants_vectors(s) ? CUSOLVER_EIG_MODE_VECTOR : CUSOLVER_EIG_MODE_NOVECTOR;
}

/* gesvd: all columns, as many as there are singular values, or none. */
static signed char job(const mfi_cufactor *s)
{
    return !wants_vectors(s) ? 'N' : s->spec.f->flags & MF_FULL ? 'A' : 'S';
}

static bool forms_q(const mfi_cufactor *s)
{
    return s->spec.f->kind == MFI_QR && wanted(s, 0) && !(s->spec.f->flags & MF_RAW);
}

bool mfi_cufactor_uses_blas(const mfi_cufactor *s)
{
    return s->spec.f->kind == MFI_LEAST_SQUARES || s->spec.bytes[MFI_FR_POINTERS_A] != 0;
}

/* ---- sizes ---- */

static mf_status size_of_qr(mfi_cufactor *s, const mfi_solver_handles *h)
{
    const mfi_cufactor_spec *p = &s->spec;
    const mfi_solver_library *lib = s->lib;
    MF_TRY(SOLVER(lib, cusolverDnXgeqrf_bufferSize, h->dn, h->params, p->rows, p->cols, s->cuda_type, NULL, p->rows,
                  s->cuda_type, NULL, s->cuda_type, &s->device_bytes, &s->host_bytes));
    if (!forms_q(s))
        return MF_OK;
    MF_TRY(mfi_check_solver(
        lib->orgqr_size[s->type](h->dn, (int)p->rows, (int)p->u_cols, (int)p->k, NULL, (int)p->rows, NULL, &s->lwork),
        "orgqr_bufferSize"));
    size_t bytes = (size_t)s->lwork * mf_dtype_size(p->dtype);
    s->device_bytes = bytes > s->device_bytes ? bytes : s->device_bytes;
    return MF_OK;
}

static mf_status size_of_svd(mfi_cufactor *s, const mfi_solver_handles *h)
{
    const mfi_cufactor_spec *p = &s->spec;
    const mfi_solver_library *lib = s->lib;
    if (!p->jacobi)
        return SOLVER(lib, cusolverDnXgesvd_bufferSize, h->dn, h->params, job(s), job(s), p->rows, p->cols,
                      s->cuda_type, NULL, p->rows, s->cuda_real, NULL, s->cuda_type, NULL, p->rows, s->cuda_type, NULL,
                      p->cols, s->cuda_type, &s->device_bytes, &s->host_bytes);
    MF_TRY(SOLVER(lib, cusolverDnCreateGesvdjInfo, &s->jacobi));
    MF_TRY(mfi_check_solver(lib->gesvdj_size[s->type](h->dn, mode(s), (int)p->rows, (int)p->cols, NULL, (int)p->rows,
                                                      NULL, NULL, (int)p->rows, NULL, (int)p->cols, &s->lwork,
                                                      s->jacobi, (int)p->batch),
                            "gesvdjBatched_bufferSize"));
    s->device_bytes = (size_t)s->lwork * mf_dtype_size(p->dtype);
    return MF_OK;
}

static mf_status size_of_eigh(mfi_cufactor *s, const mfi_solver_handles *h)
{
    const mfi_cufactor_spec *p = &s->spec;
    const mfi_solver_library *lib = s->lib;
    if (!p->batched)
        return SOLVER(lib, cusolverDnXsyevd_bufferSize, h->dn, h->params, mode(s), CUBLAS_FILL_MODE_LOWER, p->rows,
                      s->cuda_type, NULL, p->rows, s->cuda_real, NULL, s->cuda_type, &s->device_bytes, &s->host_bytes);
    MF_REQUIRE(lib->syev_batched_size, MF_E_MISSING, "cuSOLVER has no cusolverDnXsyevBatched");
    return SOLVER(lib, syev_batched_size, h->dn, h->params, mode(s), CUBLAS_FILL_MODE_LOWER, p->rows, s->cuda_type,
                  NULL, p->rows, s->cuda_real, NULL, s->cuda_type, &s->device_bytes, &s->host_bytes, p->batch);
}

static mf_status size_of_eig(mfi_cufactor *s, const mfi_solver_handles *h)
{
    const mfi_cufactor_spec *p = &s->spec;
    MF_REQUIRE(s->lib->geev_size, MF_E_MISSING, "cuSOLVER has no cusolverDnXgeev; it came with version 11.7.1");
    return SOLVER(s->lib, geev_size, h->dn, h->params, CUSOLVER_EIG_MODE_NOVECTOR, mode(s), p->rows, s->cuda_type, NULL,
                  p->rows, s->cuda_type, NULL, s->cuda_type, NULL, p->rows, s->cuda_type, NULL, p->rows, s->cuda_type,
                  &s->device_bytes, &s->host_bytes);
}

mf_status mfi_cufactor_ask_sizes(mfi_cufactor *s, const mfi_solver_handles *h)
{
    const mfi_cufactor_spec *p = &s->spec;
    if (p->empty)
        return MF_OK;
    switch (p->f->kind) {
    case MFI_QR:
        return size_of_qr(s, h);
    case MFI_SVD:
    case MFI_LEAST_SQUARES:
        return size_of_svd(s, h);
    case MFI_EIGH:
        return size_of_eigh(s, h);
    case MFI_EIG:
        return size_of_eig(s, h);
    case MFI_LU_APPLY:
        return MF_OK;
    default:
        return p->batched ? MF_OK
                          : SOLVER(s->lib, cusolverDnXgetrf_bufferSize, h->dn, h->params, p->rows, p->cols,
                                   s->cuda_type, NULL, p->rows, s->cuda_type, &s->device_bytes, &s->host_bytes);
    }
}

/* ---- one matrix ---- */

/* Where the item's part of a region is. */
static char *part(call *c, mfi_fregion which, int64_t item)
{
    const mfi_cufactor_spec *p = &c->s->spec;
    return mfi_cufactor_region(c->s, c->run, which) + (size_t)item * (p->bytes[which] / (size_t)p->batch);
}

static int *info(call *c, int64_t item)
{
    return (int *)(void *)part(c, MFI_FR_INFO, item);
}

static cublasOperation_t operation(const mfi_factor *f)
{
    return f->flags & MF_ADJOINT ? CUBLAS_OP_C : f->flags & MF_TRANS ? CUBLAS_OP_T : CUBLAS_OP_N;
}

static mf_status lu(call *c, int64_t item)
{
    const mfi_cufactor *s = c->s;
    const mfi_cufactor_spec *p = &s->spec;
    int64_t *pivots = (int64_t *)(void *)part(c, MFI_FR_PIVOTS, item);
    char *a = part(c, MFI_FR_A, item);
    if (p->f->kind != MFI_LU_APPLY)
        MF_TRY(SOLVER(s->lib, cusolverDnXgetrf, c->h->dn, c->h->params, p->rows, p->cols, s->cuda_type, a, p->rows,
                      pivots, s->cuda_type, c->buffer + MFI_CUFACTOR_SPARE, s->device_bytes, c->host, s->host_bytes,
                      info(c, item)));
    if (p->f->kind == MFI_LU)
        return MF_OK;
    return SOLVER(s->lib, cusolverDnXgetrs, c->h->dn, c->h->params, operation(p->f), p->rows, mfi_cufactor_sides(p->f),
                  s->cuda_type, a, p->rows, pivots, s->cuda_type, part(c, MFI_FR_B, item), p->rows,
                  (int *)(void *)c->buffer);
}

static mf_status qr(call *c, int64_t item)
{
    const mfi_cufactor *s = c->s;
    const mfi_cufactor_spec *p = &s->spec;
    char *a = part(c, MFI_FR_A, item), *q = part(c, MFI_FR_U, item), *tau = part(c, MFI_FR_TAU, item);
    MF_TRY(SOLVER(s->lib, cusolverDnXgeqrf, c->h->dn, c->h->params, p->rows, p->cols, s->cuda_type, a, p->rows,
                  s->cuda_type, tau, s->cuda_type, c->buffer + MFI_CUFACTOR_SPARE, s->device_bytes, c->host,
                  s->host_bytes, info(c, item)));
    if (!forms_q(s))
        return MF_OK;
    MF_TRY(mfi_cuda_copy_async(q, a, (size_t)(p->rows * p->k) * mf_dtype_size(p->dtype), c->h->stream));
    return mfi_check_solver(s->lib->orgqr[s->type](c->h->dn, (int)p->rows, (int)p->u_cols, (int)p->k, q, (int)p->rows,
                                                   tau, c->buffer + MFI_CUFACTOR_SPARE, s->lwork,
                                                   (int *)(void *)c->buffer),
                            "orgqr");
}

static mf_status svd(call *c, int64_t item)
{
    const mfi_cufactor *s = c->s;
    const mfi_cufactor_spec *p = &s->spec;
    return SOLVER(s->lib, cusolverDnXgesvd, c->h->dn, c->h->params, job(s), job(s), p->rows, p->cols, s->cuda_type,
                  part(c, MFI_FR_A, item), p->rows, s->cuda_real, part(c, MFI_FR_S, item), s->cuda_type,
                  part(c, MFI_FR_U, item), p->rows, s->cuda_type, part(c, MFI_FR_V, item), p->cols, s->cuda_type,
                  c->buffer + MFI_CUFACTOR_SPARE, s->device_bytes, c->host, s->host_bytes, info(c, item));
}

static mf_status eigh(call *c, int64_t item)
{
    const mfi_cufactor *s = c->s;
    const mfi_cufactor_spec *p = &s->spec;
    return SOLVER(s->lib, cusolverDnXsyevd, c->h->dn, c->h->params, mode(s), CUBLAS_FILL_MODE_LOWER, p->rows,
                  s->cuda_type, part(c, MFI_FR_A, item), p->rows, s->cuda_real, part(c, MFI_FR_S, item), s->cuda_type,
                  c->buffer + MFI_CUFACTOR_SPARE, s->device_bytes, c->host, s->host_bytes, info(c, item));
}

/* Before CUDA 13.0 Update 1 host threads raced in it, whatever their handles. */
static mf_status eig(call *c, int64_t item)
{
    static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
    const mfi_cufactor *s = c->s;
    const mfi_cufactor_spec *p = &s->spec;
    char *vectors = part(c, MFI_FR_U, item);
    pthread_mutex_lock(&one_at_a_time);
    mf_status status = SOLVER(s->lib, geev, c->h->dn, c->h->params, CUSOLVER_EIG_MODE_NOVECTOR, mode(s), p->rows,
                              s->cuda_type, part(c, MFI_FR_A, item), p->rows, s->cuda_type, part(c, MFI_FR_S, item),
                              s->cuda_type, NULL, p->rows, s->cuda_type, vectors, p->rows, s->cuda_type,
                              c->buffer + MFI_CUFACTOR_SPARE, s->device_bytes, c->host, s->host_bytes, info(c, item));
    pthread_mutex_unlock(&one_at_a_time);
    return status;
}

mf_status mfi_cufactor_call_one(call *c, int64_t item)
{
    switch (c->s->spec.f->kind) {
    case MFI_QR:
        return qr(c, item);
    case MFI_SVD:
    case MFI_LEAST_SQUARES:
        return svd(c, item);
    case MFI_EIGH:
        return eigh(c, item);
    case MFI_EIG:
        return eig(c, item);
    default:
        return lu(c, item);
    }
}

/* ---- a batch ---- */

static mf_status lu_batch(call *c)
{
    const mfi_cufactor *s = c->s;
    const mfi_cufactor_spec *p = &s->spec;
    const mfi_factor_kind kind = p->f->kind;
    int n = (int)p->rows, batch = (int)p->batch, ignored = 0;
    int *pivots = (int *)(void *)part(c, MFI_FR_PIVOTS, 0);
    void *a = part(c, MFI_FR_POINTERS_A, 0), *b = part(c, MFI_FR_POINTERS_B, 0);
    if (kind != MFI_LU_APPLY)
        MF_TRY(mfi_check_blas(s->lib->getrf_batched[s->type](c->h->blas, n, a, n, pivots, info(c, 0), batch),
                              "getrfBatched"));
    if (kind == MFI_LU)
        return MF_OK;
    if (kind == MFI_INVERSE) /* its info, of zeros on the diagonal, is getrf's */
        return mfi_check_blas(s->lib->getri_batched[s->type](c->h->blas, n, a, n, pivots, b, n, info(c, 0), batch),
                              "getriBatched");
    return mfi_check_blas(s->lib->getrs_batched[s->type](c->h->blas, operation(p->f), n, (int)p->f->nrhs, a, n, pivots,
                                                         b, n, &ignored, batch),
                          "getrsBatched");
}

mf_status mfi_cufactor_call_batch(call *c)
{
    const mfi_cufactor *s = c->s;
    const mfi_cufactor_spec *p = &s->spec;
    char *buffer = c->buffer + MFI_CUFACTOR_SPARE;
    int rows = (int)p->rows, cols = (int)p->cols;
    if (p->f->kind == MFI_EIGH)
        return SOLVER(s->lib, syev_batched, c->h->dn, c->h->params, mode(s), CUBLAS_FILL_MODE_LOWER, p->rows,
                      s->cuda_type, part(c, MFI_FR_A, 0), p->rows, s->cuda_real, part(c, MFI_FR_S, 0), s->cuda_type,
                      buffer, s->device_bytes, c->host, s->host_bytes, info(c, 0), p->batch);
    if (p->jacobi)
        return mfi_check_solver(s->lib->gesvdj[s->type](c->h->dn, mode(s), rows, cols, part(c, MFI_FR_A, 0), rows,
                                                        part(c, MFI_FR_S, 0), part(c, MFI_FR_U, 0), rows,
                                                        part(c, MFI_FR_V, 0), cols, buffer, s->lwork, info(c, 0),
                                                        s->jacobi, (int)p->batch),
                                "gesvdjBatched");
    return lu_batch(c);
}

/* ---- least squares ---- */

typedef struct product {
    mfi_fregion a, b, out;
    cublasOperation_t op;
    int64_t m, n, k, lda, ldb, ldc, a_size, b_size, c_size;
} product;

static mf_status multiply(mfi_cufactor *s, const mfi_run *run, const product *p)
{
    union {
        float f[2];
        double d[2];
    } one = {{0}}, zero = {{0}};
    const bool f64 = s->spec.real == MF_F64;
    mfi_solver_handles *h;
    if (f64)
        one.d[0] = 1;
    else
        one.f[0] = 1;
    MF_TRY(mfi_solver_handles_get(&h, s->lib, run->stream));
    char *workspace = mfi_cufactor_region(s, run, MFI_FR_LIBRARY) + MFI_CUFACTOR_SPARE;
    mf_status status =
        mfi_check_blas(s->lib->cublasSetWorkspace(h->blas, workspace, MFI_CUFACTOR_BLAS), "cublasSetWorkspace");
    if (status == MF_OK)
        status = mfi_check_blas(
            s->lib->cublasGemmStridedBatchedEx(
                h->blas, p->op, CUBLAS_OP_N, (int)p->m, (int)p->n, (int)p->k, &one, mfi_cufactor_region(s, run, p->a),
                s->cuda_type, (int)p->lda, p->a_size, mfi_cufactor_region(s, run, p->b), s->cuda_type, (int)p->ldb,
                p->b_size, &zero, mfi_cufactor_region(s, run, p->out), s->cuda_type, (int)p->ldc, p->c_size,
                (int)s->spec.batch, f64 ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
            "cublasGemmStridedBatchedEx");
    pthread_mutex_unlock(&h->busy);
    return status;
}

/* The workspace's W = U S V^H is A, or A^H: then A's left vectors are V and its right ones U. */
static product factor_times(const mfi_cufactor *s, bool left)
{
    const mfi_cufactor_spec *p = &s->spec;
    bool u = left != p->wide;
    int64_t ld = u ? p->rows : p->cols;
    return (product){.a = u ? MFI_FR_U : MFI_FR_V,
                     .lda = ld,
                     .a_size = u ? p->rows * p->u_cols : p->cols * p->cols,
                     .n = p->f->nrhs,
                     /* U and Jacobi's V lie there as they are, gesvd's V as V^H */
                     .op = (u || p->jacobi) == left ? CUBLAS_OP_C : CUBLAS_OP_N};
}

mf_status mfi_cufactor_project(mfi_cufactor *s, const mfi_run *run)
{
    const mfi_cufactor_spec *p = &s->spec;
    product x = factor_times(s, true);
    x.b = MFI_FR_B;
    x.out = MFI_FR_C;
    x.m = x.ldc = p->k;
    x.k = x.ldb = p->f->m;
    x.b_size = p->f->m * x.n;
    x.c_size = p->k * x.n;
    return multiply(s, run, &x);
}

mf_status mfi_cufactor_combine(mfi_cufactor *s, const mfi_run *run)
{
    const mfi_cufactor_spec *p = &s->spec;
    product x = factor_times(s, false);
    x.b = MFI_FR_C;
    x.out = MFI_FR_X;
    x.m = x.ldc = p->f->n;
    x.k = x.ldb = p->k;
    x.b_size = p->k * x.n;
    x.c_size = p->f->n * x.n;
    return multiply(s, run, &x);
}
#endif
