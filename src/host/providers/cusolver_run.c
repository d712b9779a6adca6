/* Calling cuSOLVER and cuBLAS between the passes; cusolver_library.c loads them. */
#include "cusolver.h"

#ifdef MFI_WITH_CUDA
#include "cuda_api.h"
#include "cusolver_library.h"
#include "fusion.h"

typedef struct state {
    mfi_anchor anchor; /* first, as in the state of a FACTOR step: by it the provider tells them apart */
    mfi_cusolver_spec spec;
    mfi_solver_library *lib;
    mf_context *context;
    mfi_pass *passes[MFI_SOLVE_PASSES];
    mfi_module *pointers; /* batched: makes the address arrays */
    size_t device_bytes, host_bytes;
    void *host;
    int type; /* f32, f64, c64, c128 */
    cudaDataType_t cuda_type;
    union {
        float f[2];
        double d[2];
    } one;
} state;

/* In front of the library's buffer: where Xgetrs may write its own info. */
enum { SPARE_BYTES = 256 };

/* ---- preparing ---- */

/* What the factorisations want: device and host bytes. */
static mf_status ask_sizes(state *s, const mfi_solver_handles *h)
{
    const mfi_cusolver_spec *p = &s->spec;
    const mfi_solver_library *lib = s->lib;
    int64_t n = p->solve->n;
    cudaDataType_t t = s->cuda_type;
    if (!p->batched && mfi_cusolver_definite(p))
        return mfi_check_solver(lib->cusolverDnXpotrf_bufferSize(h->dn, h->params, CUBLAS_FILL_MODE_LOWER, n, t, NULL,
                                                                 n, t, &s->device_bytes, &s->host_bytes),
                                "cusolverDnXpotrf_bufferSize");
    if (!p->batched && p->solve->solver == MFI_LU_SOLVE)
        return mfi_check_solver(
            lib->cusolverDnXgetrf_bufferSize(h->dn, h->params, n, n, t, NULL, n, t, &s->device_bytes, &s->host_bytes),
            "cusolverDnXgetrf_bufferSize");
    return MF_OK;
}

static mf_status prepare_sizes(state *s)
{
    const mfi_cusolver_spec *p = &s->spec;
    mfi_solver_handles *h;
    MF_TRY(mfi_solver_handles_get(&h, s->lib, NULL));
    mf_status status = ask_sizes(s, h);
    pthread_mutex_unlock(&h->busy);
    MF_TRY(status);
    if (s->host_bytes && !(s->host = mfi_alloc(s->host_bytes)))
        return MFI_NO_MEMORY(s->host_bytes);
    bool uses_blas = p->batched || p->solve->solver == MFI_TRSM;
    size_t most = uses_blas ? p->bytes[MFI_CUSOLVER_LIBRARY] : 0;
    for (int i = 0; i < MFI_SOLVE_PASSES; i++)
        most = mfi_pass_workspace(s->passes[i]) > most ? mfi_pass_workspace(s->passes[i]) : most;
    mfi_cusolver_place(&s->spec, SPARE_BYTES + (s->device_bytes > most ? s->device_bytes : most));
    return MF_OK;
}

static mf_status prepare_all(state *s, const mfi_caps *c, mfi_bid *bid)
{
    static const char source[] = "#include \"device/pointers.cuh\"\n"
                                 "extern \"C\" __global__ void __launch_bounds__(256) mf_pointer_array("
                                 "mf_pointers_args args)\n{\n    mf_pointers(args);\n}\n";
    mfi_problem map;
    for (int i = 0; i < MFI_SOLVE_PASSES; i++) {
        if (!mfi_cusolver_pass_needed(&s->spec, i))
            continue;
        mfi_cusolver_pass(&map, &s->spec, i);
        MF_TRY(mfi_pass_new(&s->passes[i], &map, c, s->context));
    }
    if (s->spec.batched)
        MF_TRY(mfi_jit_compile(&s->pointers, s->context, "mf_pointer_array", source, false));
    if (!c->present)
        return MF_OK;
    MF_TRY(mfi_solver_library_get(&s->lib, s->context));
    MF_TRY(mfi_context_make_current(s->context));
    MF_TRY(prepare_sizes(s));
    bid->workspace = mfi_cusolver_workspace(&s->spec);
    return MF_OK;
}

mf_status mfi_cusolver_prepare(void **out, const mfi_problem *p, const mfi_caps *c, mf_context *context, mfi_bid *bid)
{
    static const cudaDataType_t types[4] = {CUDA_R_32F, CUDA_R_64F, CUDA_C_32F, CUDA_C_64F};
    state *s = mfi_calloc(1, sizeof *s);
    *out = NULL;
    if (!s)
        return MFI_NO_MEMORY(sizeof *s);
    s->anchor = MFI_SOLVE;
    s->context = context;
    s->type = (int)p->u.solve.ctype - (int)MFI_F32;
    s->cuda_type = types[s->type];
    if (s->type == 0 || s->type == 2)
        s->one.f[0] = 1;
    else
        s->one.d[0] = 1;
    mf_status status = MF_OK;
    if (!mfi_cusolver_describe(&s->spec, p, bid))
        status = mfi_fail(MF_E_UNSUPPORTED, "cuSOLVER: %s", bid->detail);
    if (status == MF_OK)
        status = prepare_all(s, c, bid);
    if (status != MF_OK) {
        mfi_cusolver_destroy(s);
        return status;
    }
    *out = s;
    return MF_OK;
}

/* ---- running ---- */

static char *region(const state *s, const mfi_run *run, mfi_cusolver_region which)
{
    return (char *)run->workspace + s->spec.offset[which];
}

/* What every matrix of a batch needs: its address, and where the library's buffer lies. */
typedef struct call {
    const state *s;
    const mfi_run *run;
    mfi_solver_handles *h;
    int n, nrhs;
    size_t element;
    char *a, *b, *buffer;
    int *info;
} call;

static mf_status cholesky(const call *c, cublasFillMode_t side)
{
    const state *s = c->s;
    const mfi_solver_library *lib = s->lib;
    if (s->spec.batched)
        return mfi_check_solver(lib->potrf_batched[s->type](c->h->dn, side, c->n,
                                                            region(s, c->run, MFI_CUSOLVER_POINTERS_A), c->n, c->info,
                                                            (int)s->spec.batch),
                                "potrfBatched");
    for (int64_t i = 0; i < s->spec.batch; i++)
        MF_TRY(mfi_check_solver(lib->cusolverDnXpotrf(c->h->dn, c->h->params, side, c->n, s->cuda_type,
                                                      c->a + (size_t)i * (size_t)c->n * (size_t)c->n * c->element, c->n,
                                                      s->cuda_type, c->buffer + SPARE_BYTES, s->device_bytes, s->host,
                                                      s->host_bytes, c->info + i),
                                "cusolverDnXpotrf"));
    return MF_OK;
}

static mf_status lu_solve(const call *c)
{
    const state *s = c->s;
    const mfi_solver_library *lib = s->lib;
    int ignored = 0;
    if (s->spec.batched) {
        int *pivots = (int *)region(s, c->run, MFI_CUSOLVER_PIVOTS);
        void *a = region(s, c->run, MFI_CUSOLVER_POINTERS_A), *b = region(s, c->run, MFI_CUSOLVER_POINTERS_B);
        MF_TRY(
            mfi_check_blas(lib->getrf_batched[s->type](c->h->blas, c->n, a, c->n, pivots, c->info, (int)s->spec.batch),
                           "getrfBatched"));
        return mfi_check_blas(lib->getrs_batched[s->type](c->h->blas, CUBLAS_OP_N, c->n, c->nrhs, a, c->n, pivots, b,
                                                          c->n, &ignored, (int)s->spec.batch),
                              "getrsBatched");
    }
    for (int64_t i = 0; i < s->spec.batch; i++) {
        int64_t *pivots = (int64_t *)region(s, c->run, MFI_CUSOLVER_PIVOTS) + i * c->n;
        char *a = c->a + (size_t)i * (size_t)c->n * (size_t)c->n * c->element;
        char *b = c->b + (size_t)i * (size_t)c->n * (size_t)c->nrhs * c->element;
        MF_TRY(mfi_check_solver(lib->cusolverDnXgetrf(c->h->dn, c->h->params, c->n, c->n, s->cuda_type, a, c->n, pivots,
                                                      s->cuda_type, c->buffer + SPARE_BYTES, s->device_bytes, s->host,
                                                      s->host_bytes, c->info + i),
                                "cusolverDnXgetrf"));
        MF_TRY(mfi_check_solver(lib->cusolverDnXgetrs(c->h->dn, c->h->params, CUBLAS_OP_N, c->n, c->nrhs, s->cuda_type,
                                                      a, c->n, pivots, s->cuda_type, b, c->n, (int *)c->buffer),
                                "cusolverDnXgetrs"));
    }
    return MF_OK;
}

/* With the factor, one by one: B is column-major. */
static mf_status with_factor(const call *c, cublasFillMode_t side)
{
    const state *s = c->s;
    for (int64_t i = 0; i < s->spec.batch; i++)
        MF_TRY(mfi_check_solver(s->lib->cusolverDnXpotrs(c->h->dn, c->h->params, side, c->n, c->nrhs, s->cuda_type,
                                                         c->a + (size_t)i * (size_t)c->n * (size_t)c->n * c->element,
                                                         c->n, s->cuda_type,
                                                         c->b + (size_t)i * (size_t)c->n * (size_t)c->nrhs * c->element,
                                                         c->n, (int *)c->buffer),
                                "cusolverDnXpotrs"));
    return MF_OK;
}

/* B <- B op(A)^-1 with B of nrhs rows: op(A) X = B of the row-major matrices. */
static mf_status triangular(const call *c, cublasFillMode_t side, cublasOperation_t op, bool unit)
{
    const state *s = c->s;
    const mfi_solver_library *lib = s->lib;
    cublasDiagType_t diagonal = unit ? CUBLAS_DIAG_UNIT : CUBLAS_DIAG_NON_UNIT;
    if (s->spec.batched)
        return mfi_check_blas(lib->trsm_batched[s->type](c->h->blas, CUBLAS_SIDE_RIGHT, side, op, diagonal, c->nrhs,
                                                         c->n, &s->one, region(s, c->run, MFI_CUSOLVER_POINTERS_A),
                                                         c->n, region(s, c->run, MFI_CUSOLVER_POINTERS_B), c->nrhs,
                                                         (int)s->spec.batch),
                              "trsmBatched");
    /* One vector lies the same both ways, and from the left it takes a seventh of the time. */
    bool vector = c->nrhs == 1 && !(op == CUBLAS_OP_C && s->type >= 2);
    for (int64_t i = 0; i < s->spec.batch && vector; i++)
        MF_TRY(mfi_check_blas(lib->trsm[s->type](c->h->blas, CUBLAS_SIDE_LEFT, side,
                                                 op == CUBLAS_OP_N ? CUBLAS_OP_T : CUBLAS_OP_N, diagonal, c->n, 1,
                                                 &s->one, c->a + (size_t)i * (size_t)c->n * (size_t)c->n * c->element,
                                                 c->n, c->b + (size_t)i * (size_t)c->n * c->element, c->n),
                              "trsm"));
    for (int64_t i = 0; i < s->spec.batch && !vector; i++)
        MF_TRY(
            mfi_check_blas(lib->trsm[s->type](c->h->blas, CUBLAS_SIDE_RIGHT, side, op, diagonal, c->nrhs, c->n, &s->one,
                                              c->a + (size_t)i * (size_t)c->n * (size_t)c->n * c->element, c->n,
                                              c->b + (size_t)i * (size_t)c->n * (size_t)c->nrhs * c->element, c->nrhs),
                           "trsm"));
    return MF_OK;
}

/* L L^H X = B, or U^H U X = B. */
static mf_status substitute(const call *c, cublasFillMode_t side)
{
    bool upper = c->s->spec.solve->flags & MF_UPPER;
    if (!c->s->spec.batched)
        return with_factor(c, side);
    MF_TRY(triangular(c, side, upper ? CUBLAS_OP_C : CUBLAS_OP_N, false));
    return triangular(c, side, upper ? CUBLAS_OP_N : CUBLAS_OP_C, false);
}

static mf_status solve(const call *c)
{
    const mfi_solve *p = c->s->spec.solve;
    /* The libraries see row-major copies as transposes: a lower triangle is an upper one to them. */
    bool upper = p->flags & MF_UPPER, turned = !mfi_cusolver_by_columns(&c->s->spec, false);
    cublasFillMode_t side = upper != turned ? CUBLAS_FILL_MODE_UPPER : CUBLAS_FILL_MODE_LOWER;
    switch (p->solver) {
    case MFI_CHOLESKY:
        return cholesky(c, side);
    case MFI_LU_SOLVE:
        return lu_solve(c);
    case MFI_CHO_SOLVE:
        return substitute(c, side);
    case MFI_POSV:
        MF_TRY(cholesky(c, side));
        return substitute(c, side);
    default:
        return triangular(c, side,
                          p->flags & MF_ADJOINT ? CUBLAS_OP_C
                          : p->flags & MF_TRANS ? CUBLAS_OP_T
                                                : CUBLAS_OP_N,
                          p->flags & MF_UNIT);
    }
}

static mf_status fill_pointers(const state *s, const mfi_run *run, mfi_cusolver_region into, mfi_cusolver_region of)
{
    struct {
        void *out, *base;
        long long step, count;
    } args = {region(s, run, into), region(s, run, of), (long long)(s->spec.bytes[of] / (size_t)s->spec.batch),
              s->spec.batch};
    if (!s->spec.bytes[into])
        return MF_OK;
    return mfi_jit_launch(s->pointers, s->context, (int)mfi_ceil_div(s->spec.batch, 256), 256, 0, &args, sizeof args,
                          run->stream);
}

static mf_status call_library(state *s, const mfi_run *run)
{
    const mfi_cusolver_spec *p = &s->spec;
    char *buffer = region(s, run, MFI_CUSOLVER_LIBRARY);
    mfi_solver_handles *h;
    MF_TRY(mfi_solver_handles_get(&h, s->lib, run->stream));
    call c = {.s = s,
              .run = run,
              .h = h,
              .n = (int)p->solve->n,
              .nrhs = (int)p->solve->nrhs,
              .element = mf_dtype_size(p->dtype),
              .a = region(s, run, MFI_CUSOLVER_A),
              .b = region(s, run, MFI_CUSOLVER_B),
              .buffer = buffer,
              .info = (int *)region(s, run, MFI_CUSOLVER_INFO)};
    mf_status status = MF_OK;
    if (p->bytes[MFI_CUSOLVER_LIBRARY] > SPARE_BYTES)
        status = mfi_check_blas(
            s->lib->cublasSetWorkspace(h->blas, buffer + SPARE_BYTES, p->bytes[MFI_CUSOLVER_LIBRARY] - SPARE_BYTES),
            "cublasSetWorkspace");
    if (status == MF_OK)
        status = solve(&c);
    pthread_mutex_unlock(&h->busy);
    return status;
}

static mf_status run_pass(const state *s, int which, const mfi_run *run)
{
    void *slots[4];
    if (!s->passes[which])
        return MF_OK;
    mfi_cusolver_pass_slots(slots, &s->spec, which, run);
    return mfi_pass_run(s->passes[which], slots, region(s, run, MFI_CUSOLVER_LIBRARY), run);
}

mf_status mfi_cusolver_run(void *state_, const mfi_run *run)
{
    state *s = state_;
    MF_REQUIRE(!mfi_cuda_capturing(run->stream), MF_E_STATE,
               "cuSOLVER and its handles cannot be used while the stream is being captured; run this plan outside the "
               "graph");
    for (int i = MFI_PASS_COPY_A; i <= MFI_PASS_CHECK_INPUT; i++)
        MF_TRY(run_pass(s, i, run));
    MF_TRY(fill_pointers(s, run, MFI_CUSOLVER_POINTERS_A, MFI_CUSOLVER_A));
    MF_TRY(fill_pointers(s, run, MFI_CUSOLVER_POINTERS_B, MFI_CUSOLVER_B));
    MF_TRY(call_library(s, run));
    for (int i = MFI_PASS_CHECK_FACTOR; i < MFI_SOLVE_PASSES; i++)
        MF_TRY(run_pass(s, i, run));
    return MF_OK;
}

void mfi_cusolver_destroy(void *state_)
{
    state *s = state_;
    if (!s)
        return;
    for (int i = 0; i < MFI_SOLVE_PASSES; i++)
        mfi_pass_free(s->passes[i]);
    mf_free(s->host);
    mf_free(s);
}

mf_status mfi_cusolver_kernel(void *state_, int index, mf_kernel_info *out)
{
    const state *s = state_;
    if (!s->pointers || index > 0)
        return mfi_pass_kernel(s->passes, MFI_SOLVE_PASSES, index - (s->pointers ? 1 : 0), out);
    const mfi_module *m = s->pointers;
    *out = mfi_module_info(m);
    return MF_OK;
}
#else

mf_status mfi_cusolver_prepare(void **out, const mfi_problem *p, const mfi_caps *c, mf_context *context, mfi_bid *bid)
{
    (void)p, (void)c, (void)context, (void)bid;
    *out = NULL;
    return mfi_fail(MF_E_UNSUPPORTED, "this build has no cuSOLVER");
}

mf_status mfi_cusolver_run(void *state, const mfi_run *run)
{
    (void)state, (void)run;
    return mfi_fail(MF_E_UNSUPPORTED, "this build has no cuSOLVER");
}

void mfi_cusolver_destroy(void *state)
{
    (void)state;
}

mf_status mfi_cusolver_kernel(void *state, int index, mf_kernel_info *out)
{
    (void)state, (void)index, (void)out;
    return mfi_fail(MF_E_UNSUPPORTED, "this build has no cuSOLVER");
}
#endif
