/* SOLVE through LAPACK's Fortran symbols. Matrices go through column-major scratch, one item of the batch per thread.
 * Small batched systems are left to loops that take several matrices at once: solve_lanes.c, ref_solve.c. */
#include "loader.h"
#include "lapack.h"
#include "ref.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>

enum { THREADED_ORDER = 256 }; /* from that order on the library's own threads share a matrix */

/* LAPACK takes everything by address; lengths of character arguments come last. */
typedef void potrf_function(const char *uplo, const int *n, void *a, const int *lda, int *info, size_t);
typedef void gesv_function(const int *n, const int *nrhs, void *a, const int *lda, int *pivots, void *b, const int *ldb,
                           int *info);
typedef void posv_function(const char *uplo, const int *n, const int *nrhs, void *a, const int *lda, void *b,
                           const int *ldb, int *info, size_t);
typedef void potrs_function(const char *uplo, const int *n, const int *nrhs, const void *a, const int *lda, void *b,
                            const int *ldb, int *info, size_t);
typedef void trtrs_function(const char *uplo, const char *trans, const char *diag, const int *n, const int *nrhs,
                            const void *a, const int *lda, void *b, const int *ldb, int *info, size_t, size_t, size_t);
typedef union lapack_function { /* C has no cast from the loader's void * to a function */
    void *symbol;
    potrf_function *potrf;
    gesv_function *gesv;
    posv_function *posv;
    potrs_function *potrs;
    trtrs_function *trtrs;
} lapack_function;

typedef struct lapack_state {
    const mfi_problem *p;
    lapack_function routine;
    mfi_solve_views views;
    int threads;
    int64_t items;
    void *loops; /* the reference's state, for matrices with NaN */
} lapack_state;

static const char letter[MFI_CTYPE_COUNT] = {[MFI_F32] = 's', [MFI_F64] = 'd', [MFI_C64] = 'c', [MFI_C128] = 'z'};
static const char *const routines[MFI_SOLVER_COUNT] = {[MFI_CHOLESKY] = "potrf",
                                                       [MFI_LU_SOLVE] = "gesv",
                                                       [MFI_CHO_SOLVE] = "potrs",
                                                       [MFI_TRSM] = "trtrs",
                                                       [MFI_POSV] = "posv"};

/* ---- moving matrices ---- */

static bool complex_type(mfi_ctype type)
{
    return type == MFI_C64 || type == MFI_C128;
}

/* Column j of the scratch is dst + j * rows. Columns i0(j) to i1(j) of a triangle only. `part`: 0 all, 1 lower, 2
 * upper; `diagonal`: whether it belongs to a triangle. */
#define COPY_IN(T, w)                                                                                                  \
    for (int64_t j = 0; j < cols; j++)                                                                                 \
        for (int64_t i = part == 1 ? j + !diagonal : 0; i < (part == 2 ? mfi_min64(j + diagonal, rows) : rows); i++)   \
            for (int c = 0; c < (w); c++)                                                                              \
                ((T *)dst)[(j * rows + i) * (w) + c] = ((const T *)src)[(i * rs + j * cs) * (w) + c];

static void copy_in(void *dst, const void *src, int64_t rows, int64_t cols, int64_t rs, int64_t cs, int part,
                    bool diagonal, mfi_ctype type)
{
    switch (type) {
    case MFI_F32:
        COPY_IN(float, 1)
        break;
    case MFI_F64:
        COPY_IN(double, 1)
        break;
    case MFI_C64:
        COPY_IN(float, 2)
        break;
    default:
        COPY_IN(double, 2)
    }
}

/* The way back: outside a triangle zeros; all NaN where the solver failed. */
#define COPY_OUT(T, w)                                                                                                 \
    for (int64_t j = 0; j < cols; j++)                                                                                 \
        for (int64_t i = 0; i < rows; i++)                                                                             \
            for (int c = 0; c < (w); c++) {                                                                            \
                bool outside = (part == 1 && i < j) || (part == 2 && i > j);                                           \
                T value = failed ? (T)NAN : ((const T *)src)[(j * rows + i) * (w) + c];                                \
                ((T *)dst)[(i * rs + j * cs) * (w) + c] = outside ? 0 : value;                                         \
            }

static void copy_out(void *dst, const void *src, int64_t rows, int64_t cols, int64_t rs, int64_t cs, int part,
                     bool failed, mfi_ctype type)
{
    switch (type) {
    case MFI_F32:
        COPY_OUT(float, 1)
        break;
    case MFI_F64:
        COPY_OUT(double, 1)
        break;
    case MFI_C64:
        COPY_OUT(float, 2)
        break;
    default:
        COPY_OUT(double, 2)
    }
}

static double real_at(const void *data, int64_t i, mfi_ctype type)
{
    return type == MFI_F32 || type == MFI_C64 ? ((const float *)data)[i] : ((const double *)data)[i];
}

static bool has_nan(const void *data, int64_t count, mfi_ctype type)
{
    for (int64_t i = 0; i < count * (complex_type(type) ? 2 : 1); i++) {
        double value = real_at(data, i, type);
        if (value != value)
            return true;
    }
    return false;
}

/* ---- one matrix ---- */

/* Libraries compare with d <= 0, which NaN passes: look at the diagonal of the factor. */
static int check_factor(const void *a, int64_t n, int info, mfi_ctype type)
{
    int64_t width = complex_type(type) ? 2 : 1, end = info ? info - 1 : n;
    for (int64_t k = 0; k < end; k++)
        if (!(real_at(a, k * (n + 1) * width, type) > 0))
            return (int)k + 1;
    return info;
}

/* The first exact zero on a triangular matrix' diagonal. */
static int check_diagonal(const void *a, int64_t n, mfi_ctype type)
{
    int64_t width = complex_type(type) ? 2 : 1;
    for (int64_t k = 0; k < n; k++)
        if (real_at(a, k * (n + 1) * width, type) == 0 &&
            (width == 1 || real_at(a, k * (n + 1) * width + 1, type) == 0))
            return (int)k + 1;
    return 0;
}

static int call(const lapack_state *s, void *a, void *b, int *pivots)
{
    const mfi_solve *f = &s->p->u.solve;
    const char *uplo = f->flags & MF_UPPER ? "U" : "L";
    const char *trans = f->flags & MF_ADJOINT ? "C" : f->flags & MF_TRANS ? "T" : "N";
    int n = (int)f->n, nrhs = (int)f->nrhs, ld = n > 0 ? n : 1, info = 0;
    switch (f->solver) {
    case MFI_CHOLESKY:
        s->routine.potrf(uplo, &n, a, &ld, &info, 1);
        return check_factor(a, n, info, f->ctype);
    case MFI_LU_SOLVE:
        s->routine.gesv(&n, &nrhs, a, &ld, pivots, b, &ld, &info);
        return info;
    case MFI_POSV:
        s->routine.posv(uplo, &n, &nrhs, a, &ld, b, &ld, &info, 1);
        return check_factor(a, n, info, f->ctype);
    case MFI_CHO_SOLVE:
        info = check_diagonal(a, n, f->ctype);
        if (!info)
            s->routine.potrs(uplo, &n, &nrhs, a, &ld, b, &ld, &info, 1);
        return info;
    default:
        info = f->flags & MF_UNIT ? 0 : check_diagonal(a, n, f->ctype);
        if (!info)
            s->routine.trtrs(uplo, trans, f->flags & MF_UNIT ? "U" : "N", &n, &nrhs, a, &ld, b, &ld, &info, 1, 1, 1);
        return info;
    }
}

typedef struct lapack_buffers {
    char *a, *b, *pack;
    int *pivots;
} lapack_buffers;

static void write_result(const lapack_state *s, void *const *slots, int64_t item, const lapack_buffers *w, int info)
{
    const mfi_solve *f = &s->p->u.solve;
    bool factor = f->solver == MFI_CHOLESKY;
    int64_t cols = factor ? f->n : f->nrhs, rs, cs;
    int part = !factor ? 0 : f->flags & MF_UPPER ? 2 : 1;
    mfi_solve_write_info(&s->views.info, slots, item, info);
    if (f->x.slot < 0)
        return;
    void *to = mfi_solve_result(&s->views.x, slots, item, cols, f->ctype, w->pack, &rs, &cs);
    copy_out(to, factor ? w->a : w->b, f->n, cols, rs, cs, part, info != 0, f->ctype);
    mfi_solve_written(&s->views.x, slots, item, f->n, cols, f->ctype, w->pack);
}

static mf_status solve_item(const lapack_state *s, void *const *slots, int64_t item, const lapack_buffers *w)
{
    const mfi_solve *f = &s->p->u.solve;
    int64_t rs, cs;
    int part = f->solver == MFI_LU_SOLVE ? 0 : f->flags & MF_UPPER ? 2 : 1;
    bool unit = f->solver == MFI_TRSM && (f->flags & MF_UNIT);
    void *from = mfi_solve_read(&s->views.a, slots, item, f->n, f->n, f->ctype, w->pack, &rs, &cs);
    copy_in(w->a, from, f->n, f->n, rs, cs, part, !unit, f->ctype);
    if (f->solver != MFI_CHOLESKY) {
        /* kernels differ in what they do with NaN (skipped pivots, skipped zeros); the reference's loops do not */
        if (has_nan(w->a, f->n * f->n, f->ctype))
            return mfi_ref_solve_item(s->loops, slots, item);
        from = mfi_solve_read(&s->views.b, slots, item, f->n, f->nrhs, f->ctype, w->pack, &rs, &cs);
        copy_in(w->b, from, f->n, f->nrhs, rs, cs, 0, true, f->ctype);
    }
    int info = f->n ? call(s, w->a, w->b, w->pivots) : 0;
    write_result(s, slots, item, w, info);
    return MF_OK;
}

typedef struct lapack_job {
    const lapack_state *s;
    void *const *slots;
    mfi_first_error *error;
} lapack_job;

static void solve_piece(void *context, int64_t begin, int64_t end)
{
    const lapack_job *job = context;
    const mfi_solve *f = &job->s->p->u.solve;
    size_t size = mfi_ctype_size(f->ctype), cols = (size_t)mfi_max64(f->nrhs, 1), n = (size_t)f->n;
    size_t a_bytes = mfi_align_up(n * n * size, 64), b_bytes = mfi_align_up(n * cols * size, 64);
    size_t pack_bytes = a_bytes > b_bytes ? a_bytes : b_bytes;
    char *memory = mfi_alloc_aligned(a_bytes + b_bytes + pack_bytes + n * sizeof(int));
    if (!memory) {
        mfi_note(job->error, MF_E_MEMORY);
        return;
    }
    memset(memory, 0, a_bytes); /* what lies outside a triangle is not read, but looked at for NaN */
    lapack_buffers w = {memory, memory + a_bytes, memory + a_bytes + b_bytes,
                        (int *)(void *)(memory + a_bytes + b_bytes + pack_bytes)};
    for (int64_t item = begin; item < end; item++)
        mfi_note(job->error, solve_item(job->s, job->slots, item, &w));
    mfi_free_aligned(memory);
}

static mf_status run(void *state, const mfi_run *run)
{
    const lapack_state *s = state;
    mfi_first_error error = {MF_OK};
    if (s->p->anchor == MFI_FACTOR)
        return mfi_lapack_factor_run(state, run);
    lapack_job job = {s, run->slots, &error};
    if (!s->items)
        return MF_OK;
    if (s->p->u.solve.n >= THREADED_ORDER || s->items == 1)
        solve_piece(&job, 0, s->items);
    else
        mfi_parallel_for(s->items, 1, s->threads, solve_piece, &job);
    return mfi_noted(&error, "LAPACK");
}

/* ---- the provider ---- */

mf_status mfi_lapack_symbol(void **out, const mfi_caps *c, mfi_ctype type, const char *routine)
{
    char name[16];
    snprintf(name, sizeof name, "%c%s_", letter[type], routine);
    /* OpenBLAS and MKL come with LAPACK inside, and faster than a separate one */
    *out = c->library[MFI_LIB_BLAS] ? mfi_library_symbol(MFI_LIB_BLAS, name) : NULL;
    if (!*out)
        *out = mfi_library_symbol(MFI_LIB_LAPACK, name);
    return *out ? MF_OK : mfi_fail(MF_E_LIBRARY, "the LAPACK library has no %s", name);
}

static bool query(const mfi_problem *p, const mfi_caps *c, mfi_bid *bid)
{
    const mfi_solve *f = &p->u.solve;
    MF_REFUSE_UNLESS(!c->cuda, WRONG_TARGET, "LAPACK runs on the CPU, the target is %s", c->arch);
    MF_REFUSE_UNLESS(p->anchor == MFI_SOLVE || p->anchor == MFI_FACTOR, NOT_ANCHOR, "only dense solvers");
    MF_REFUSE_UNLESS(c->library[MFI_LIB_LAPACK] || c->library[MFI_LIB_BLAS], NOT_FOUND, "no LAPACK; see mathfuse info");
    if (p->anchor == MFI_FACTOR)
        return mfi_lapack_factor_query(p, c, bid);
    MF_REFUSE_UNLESS(f->n < INT_MAX && f->nrhs < INT_MAX, SIZE, "n=%lld nrhs=%lld, below 2^31 - 1", (long long)f->n,
                     (long long)f->nrhs);
    MF_REFUSE_UNLESS(!mfi_solve_is_small(p), SIZE,
                     "n=%lld nrhs=%lld: batches up to order %d with up to %d sides are faster several at a time",
                     (long long)f->n, (long long)f->nrhs, MFI_SMALL_ORDER, MFI_FEW_SIDES);
    mfi_bid_roofline(bid, p, c, 0.4, 1);
    snprintf(bid->kernel, sizeof bid->kernel, "%c%s", letter[f->ctype], routines[f->solver]);
    return true;
}

static void destroy(void *state)
{
    lapack_state *s = state;
    if (s && s->p->anchor == MFI_FACTOR) {
        mfi_lapack_factor_destroy(state);
        return;
    }
    if (s)
        mfi_ref_solve_free(s->loops);
    mf_free(s);
}

static mf_status prepare(void **state, const mfi_problem *p, const mfi_caps *c, mf_context *context, mfi_bid *bid)
{
    (void)context;
    (void)bid;
    if (p->anchor == MFI_FACTOR)
        return mfi_lapack_factor_prepare(state, p, c);
    lapack_state *s = mfi_calloc(1, sizeof *s);
    *state = NULL;
    if (!s)
        return MFI_NO_MEMORY(sizeof *s);
    s->p = p;
    s->threads = c->threads;
    s->items = mfi_problem_points(p);
    mfi_solve_views_init(&s->views, p);
    mf_status status = mfi_lapack_symbol(&s->routine.symbol, c, p->u.solve.ctype, routines[p->u.solve.solver]);
    if (status == MF_OK)
        status = mfi_ref_solve_new(&s->loops, p, 1);
    if (status != MF_OK) {
        destroy(s);
        return status;
    }
    *state = s;
    return MF_OK;
}

const mfi_provider mfi_provider_lapack = {"lapack", query, prepare, run, destroy, NULL, NULL, NULL};
