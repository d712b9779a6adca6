/* LAPACK's Fortran routines as FACTOR needs them. Everything goes by address; lengths of characters come last. */
#include "lapack.h"

typedef void getrf_function(const int *m, const int *n, void *a, const int *lda, int *pivots, int *info);
typedef void getri_function(const int *n, void *a, const int *lda, const int *pivots, void *work, const int *lwork,
                            int *info);
typedef void getrs_function(const char *trans, const int *n, const int *nrhs, const void *a, const int *lda,
                            const int *pivots, void *b, const int *ldb, int *info, size_t);
typedef void sysv_function(const char *uplo, const int *n, const int *nrhs, void *a, const int *lda, int *pivots,
                           void *b, const int *ldb, void *work, const int *lwork, int *info, size_t);
typedef void gtsv_function(const int *n, const int *nrhs, void *below, void *main, void *above, void *b, const int *ldb,
                           int *info);
typedef void geqrf_function(const int *m, const int *n, void *a, const int *lda, void *tau, void *work,
                            const int *lwork, int *info);
typedef void orgqr_function(const int *m, const int *n, const int *k, void *a, const int *lda, const void *tau,
                            void *work, const int *lwork, int *info);
typedef void syevd_function(const char *jobz, const char *uplo, const int *n, void *a, const int *lda, void *w,
                            void *work, const int *lwork, int *iwork, const int *liwork, int *info, size_t, size_t);
typedef void heevd_function(const char *jobz, const char *uplo, const int *n, void *a, const int *lda, void *w,
                            void *work, const int *lwork, void *rwork, const int *lrwork, int *iwork, const int *liwork,
                            int *info, size_t, size_t);
typedef void gesdd_function(const char *jobz, const int *m, const int *n, void *a, const int *lda, void *s, void *u,
                            const int *ldu, void *vt, const int *ldvt, void *work, const int *lwork, int *iwork,
                            int *info, size_t);
typedef void gesdd_complex_function(const char *jobz, const int *m, const int *n, void *a, const int *lda, void *s,
                                    void *u, const int *ldu, void *vt, const int *ldvt, void *work, const int *lwork,
                                    void *rwork, int *iwork, int *info, size_t);
typedef void gelsd_function(const int *m, const int *n, const int *nrhs, void *a, const int *lda, void *b,
                            const int *ldb, void *s, const void *rcond, int *rank, void *work, const int *lwork,
                            int *iwork, int *info);
typedef void gelsd_complex_function(const int *m, const int *n, const int *nrhs, void *a, const int *lda, void *b,
                                    const int *ldb, void *s, const void *rcond, int *rank, void *work, const int *lwork,
                                    void *rwork, int *iwork, int *info);
typedef void geev_function(const char *left, const char *right, const int *n, void *a, const int *lda, void *re,
                           void *im, void *vl, const int *ldvl, void *vr, const int *ldvr, void *work, const int *lwork,
                           int *info, size_t, size_t);
typedef void geev_complex_function(const char *left, const char *right, const int *n, void *a, const int *lda, void *w,
                                   void *vl, const int *ldvl, void *vr, const int *ldvr, void *work, const int *lwork,
                                   void *rwork, int *info, size_t, size_t);
typedef union routine { /* C has no cast from void * to a function */
    void *symbol;
    getrf_function *getrf;
    getri_function *getri;
    getrs_function *getrs;
    sysv_function *sysv;
    gtsv_function *gtsv;
    geqrf_function *geqrf;
    orgqr_function *orgqr;
    syevd_function *syevd;
    heevd_function *heevd;
    gesdd_function *gesdd;
    gesdd_complex_function *gesdd_complex;
    gelsd_function *gelsd;
    gelsd_complex_function *gelsd_complex;
    geev_function *geev;
    geev_complex_function *geev_complex;
} routine;

static bool is_complex(const mfi_factor *f)
{
    return f->ctype == MFI_C64 || f->ctype == MFI_C128;
}

static bool is_double(const mfi_factor *f)
{
    return f->ctype == MFI_F64 || f->ctype == MFI_C128;
}

const char *mfi_lapack_routine(const mfi_factor *f, int index)
{
    const bool complex = is_complex(f);
    const char *const table[MFI_FACTOR_COUNT][MFI_LAPACK_ROUTINES] = {
        [MFI_LU] = {"getrf"},
        [MFI_LU_APPLY] = {"getrs"},
        [MFI_INVERSE] = {"getrf", "getri"},
        [MFI_SYMMETRIC_SOLVE] = {complex && !(f->flags & MF_SYMMETRIC) ? "hesv" : "sysv"},
        [MFI_TRIDIAGONAL_SOLVE] = {"gtsv"},
        [MFI_QR] = {"geqrf", complex ? "ungqr" : "orgqr"},
        [MFI_EIGH] = {complex ? "heevd" : "syevd"},
        [MFI_SVD] = {"gesdd"},
        [MFI_LEAST_SQUARES] = {"gelsd"},
        [MFI_EIG] = {"geev"},
    };
    return table[f->kind][index];
}

/* ---- calls; the same ones ask for sizes, with lwork -1 ---- */

typedef struct call {
    const mfi_lapack_factor *s;
    const mfi_factor *f;
    mfi_lapack_memory w;
    int m, n, k, nrhs, lwork, lrwork, liwork, info, rank;
} call;

static routine get(const call *c, int index)
{
    return (routine){.symbol = c->s->routine[index]};
}

static int columns_of_q(const mfi_factor *f)
{
    return (int)(f->flags & MF_FULL ? f->m : mfi_min64(f->m, f->n));
}

static void geqrf(call *c)
{
    get(c, 0).geqrf(&c->m, &c->n, c->w.a, &c->m, c->w.s, c->w.work, &c->lwork, &c->info);
}

static void orgqr(call *c)
{
    int columns = columns_of_q(c->f);
    get(c, 1).orgqr(&c->m, &columns, &c->k, c->w.u, &c->m, c->w.s, c->w.work, &c->lwork, &c->info);
}

static void getri(call *c)
{
    get(c, 1).getri(&c->n, c->w.a, &c->n, c->w.pivots, c->w.work, &c->lwork, &c->info);
}

static void sysv(call *c)
{
    get(c, 0).sysv(c->f->flags & MF_UPPER ? "U" : "L", &c->n, &c->nrhs, c->w.a, &c->n, c->w.pivots, c->w.b, &c->n,
                   c->w.work, &c->lwork, &c->info, 1);
}

static void eigh(call *c)
{
    const char *job = mfi_factor_wants(c->f, 2) ? "V" : "N", *part = c->f->flags & MF_UPPER ? "U" : "L";
    if (is_complex(c->f))
        get(c, 0).heevd(job, part, &c->n, c->w.a, &c->n, c->w.s, c->w.work, &c->lwork, c->w.rwork, &c->lrwork,
                        c->w.iwork, &c->liwork, &c->info, 1, 1);
    else
        get(c, 0).syevd(job, part, &c->n, c->w.a, &c->n, c->w.s, c->w.work, &c->lwork, c->w.iwork, &c->liwork, &c->info,
                        1, 1);
}

static int rows_of_vh(const mfi_factor *f)
{
    return (int)(f->flags & MF_FULL ? f->n : mfi_min64(f->m, f->n));
}

static void svd(call *c)
{
    bool vectors = mfi_factor_wants(c->f, 2) || mfi_factor_wants(c->f, 3);
    const char *job = !vectors ? "N" : c->f->flags & MF_FULL ? "A" : "S";
    int ldvt = rows_of_vh(c->f);
    if (is_complex(c->f))
        get(c, 0).gesdd_complex(job, &c->m, &c->n, c->w.a, &c->m, c->w.s, c->w.u, &c->m, c->w.v, &ldvt, c->w.work,
                                &c->lwork, c->w.rwork, c->w.iwork, &c->info, 1);
    else
        get(c, 0).gesdd(job, &c->m, &c->n, c->w.a, &c->m, c->w.s, c->w.u, &c->m, c->w.v, &ldvt, c->w.work, &c->lwork,
                        c->w.iwork, &c->info, 1);
}

static void gelsd(call *c)
{
    int ldb = c->m > c->n ? c->m : c->n;
    float single = (float)c->f->rcond;
    const void *rcond = is_double(c->f) ? (const void *)&c->f->rcond : &single;
    if (is_complex(c->f))
        get(c, 0).gelsd_complex(&c->m, &c->n, &c->nrhs, c->w.a, &c->m, c->w.b, &ldb, c->w.s, rcond, &c->rank, c->w.work,
                                &c->lwork, c->w.rwork, c->w.iwork, &c->info);
    else
        get(c, 0).gelsd(&c->m, &c->n, &c->nrhs, c->w.a, &c->m, c->w.b, &ldb, c->w.s, rcond, &c->rank, c->w.work,
                        &c->lwork, c->w.iwork, &c->info);
}

/* Eigenvalues: real and imaginary parts in s, one after the other, or complex in s. */
static void geev(call *c)
{
    const char *job = mfi_factor_wants(c->f, 2) ? "V" : "N";
    size_t half = (size_t)c->n * (is_double(c->f) ? sizeof(double) : sizeof(float));
    if (is_complex(c->f))
        get(c, 0).geev_complex("N", job, &c->n, c->w.a, &c->n, c->w.s, NULL, &c->n, c->w.v, &c->n, c->w.work, &c->lwork,
                               c->w.rwork, &c->info, 1, 1);
    else
        get(c, 0).geev("N", job, &c->n, c->w.a, &c->n, c->w.s, c->w.s + half, NULL, &c->n, c->w.v, &c->n, c->w.work,
                       &c->lwork, &c->info, 1, 1);
}

/* ---- sizes ---- */

static double first_of(const mfi_factor *f, const void *data)
{
    return is_double(f) ? *(const double *)data : (double)*(const float *)data;
}

static void (*const queries[MFI_FACTOR_COUNT][2])(call *) = {
    [MFI_INVERSE] = {getri}, [MFI_SYMMETRIC_SOLVE] = {sysv}, [MFI_QR] = {geqrf, orgqr}, [MFI_EIGH] = {eigh},
    [MFI_SVD] = {svd},       [MFI_LEAST_SQUARES] = {gelsd},  [MFI_EIG] = {geev},
};

static call call_of(const mfi_lapack_factor *s)
{
    const mfi_factor *f = &s->p->u.factor;
    return (call){.s = s,
                  .f = f,
                  .m = (int)f->m,
                  .n = (int)f->n,
                  .k = (int)mfi_min64(f->m, f->n),
                  .nrhs = (int)f->nrhs,
                  .lwork = -1,
                  .lrwork = -1,
                  .liwork = -1};
}

void mfi_lapack_sizes(mfi_lapack_factor *s)
{
    double work[2] = {0}, rwork[2] = {0};
    int iwork[2] = {0};
    const mfi_factor *f = &s->p->u.factor;
    int64_t k = mfi_min64(f->m, f->n), most = mfi_max64(f->m, f->n);
    s->lwork = f->kind == MFI_TRIDIAGONAL_SOLVE ? 3 * (int)f->n : 1;
    s->lrwork = s->liwork = 1;
    for (int i = 0; i < 2 && queries[f->kind][i]; i++) {
        call c = call_of(s);
        c.w.work = (char *)work;
        c.w.rwork = (char *)rwork;
        c.w.s = (char *)rwork; /* written by none of the queries */
        c.w.iwork = iwork;
        queries[f->kind][i](&c);
        /* rounded down when it was stored as a float */
        int wanted = (int)(first_of(f, work) * (is_double(f) ? 1 : 1.0000003)) + 1;
        s->lwork = wanted > s->lwork ? wanted : s->lwork;
    }
    if (f->kind == MFI_EIGH || f->kind == MFI_LEAST_SQUARES) {
        s->lrwork = (int)first_of(f, rwork) + 1;
        s->liwork = iwork[0] + 1;
    } else if (f->kind == MFI_SVD) { /* gesdd's documentation */
        s->liwork = (int)(8 * k);
        s->lrwork = is_complex(f) ? (int)mfi_min64(INT32_MAX, k * (5 * k + 7) + 2 * most * k + 2 * k * k + k) : 1;
    } else if (f->kind == MFI_EIG) {
        s->lrwork = (int)(2 * f->n);
    }
}

/* ---- one item ---- */

static void put(const mfi_lapack_item *c, int index, const void *src, int64_t ld)
{
    mfi_factor_put(c->f, &c->s->views, c->slots, c->item, index, src, ld);
}

/* Pivots counted from 0, and their permutation's sign. */
static int32_t finish_pivots(int *pivots, int64_t count)
{
    int32_t sign = 1;
    for (int64_t i = 0; i < count; i++) {
        pivots[i]--;
        sign = pivots[i] == i ? sign : -sign;
    }
    return sign;
}

/* The position of an exact zero on the diagonal of an n x n matrix, from 1; 0: none. */
static int zero_on_diagonal(const mfi_factor *f, const char *a)
{
    size_t size = mfi_ctype_size(f->ctype), real = is_double(f) ? sizeof(double) : sizeof(float);
    for (int64_t k = 0; k < f->n; k++) {
        const char *d = a + (size_t)(k * (f->n + 1)) * size;
        if (first_of(f, d) == 0 && (!is_complex(f) || first_of(f, d + real) == 0))
            return (int)k + 1;
    }
    return 0;
}

static int lu(const mfi_lapack_item *i, call *c)
{
    get(c, 0).getrf(&c->m, &c->n, c->w.a, &c->m, c->w.pivots, &c->info);
    int32_t sign = finish_pivots(c->w.pivots, c->k);
    put(i, 0, c->w.a, c->m);
    put(i, 2, c->w.pivots, c->k);
    put(i, 3, &sign, 1);
    return c->info;
}

static int lu_apply(const mfi_lapack_item *i, call *c)
{
    int flags = c->f->flags, zero = zero_on_diagonal(c->f, c->w.a);
    mfi_factor_get(c->f, &c->s->views, i->slots, i->item, 1, c->w.pivots, c->n, MFI_I32);
    for (int k = 0; k < c->n; k++) {
        c->w.pivots[k]++;
        if (c->w.pivots[k] < 1 || c->w.pivots[k] > c->n)
            return -2;
    }
    if (!zero)
        get(c, 0).getrs(flags & MF_ADJOINT ? "C"
                        : flags & MF_TRANS ? "T"
                                           : "N",
                        &c->n, &c->nrhs, c->w.a, &c->n, c->w.pivots, c->w.b, &c->n, &c->info, 1);
    put(i, 0, c->w.b, c->n);
    return zero ? zero : c->info;
}

static int inverse(call *c)
{
    get(c, 0).getrf(&c->n, &c->n, c->w.a, &c->n, c->w.pivots, &c->info);
    if (!c->info)
        getri(c);
    return c->info;
}

static void zero_below(const mfi_factor *f, char *r)
{
    size_t size = mfi_ctype_size(f->ctype);
    for (int64_t j = 0; j < f->n && j + 1 < f->m; j++)
        memset(r + (size_t)(j * f->m + j + 1) * size, 0, (size_t)(f->m - j - 1) * size);
}

static int qr(const mfi_lapack_item *i, call *c)
{
    const mfi_factor *f = c->f;
    geqrf(c);
    if (f->flags & MF_RAW) {
        put(i, 0, c->w.a, c->m);
        put(i, 2, c->w.s, c->k);
        return c->info;
    }
    if (mfi_factor_wants(f, 0)) {
        memcpy(c->w.u, c->w.a, (size_t)c->m * (size_t)c->k * mfi_ctype_size(f->ctype));
        orgqr(c);
        put(i, 0, c->w.u, c->m);
    }
    if (mfi_factor_wants(f, 2)) {
        zero_below(f, c->w.a);
        put(i, 2, c->w.a, c->m);
    }
    return c->info;
}

/* geev gives a conjugate pair's vectors as real and imaginary part; both are made, in w.u. */
#define COMPLEX_VECTORS(T)                                                                                             \
    {                                                                                                                  \
        const T *re = (const T *)(void *)c->w.s, *im = re + n, *v = (const T *)(void *)c->w.v;                         \
        T *w = (T *)(void *)c->w.work, *z = (T *)(void *)c->w.u;                                                       \
        for (int64_t j = 0; j < n; j++) {                                                                              \
            w[2 * j] = re[j];                                                                                          \
            w[2 * j + 1] = im[j];                                                                                      \
        }                                                                                                              \
        for (int64_t j = 0; vectors && j < n; j++) {                                                                   \
            int64_t first = im[j] < 0 ? j - 1 : j;                                                                     \
            T sign = im[j] < 0 ? -1 : im[j] > 0 ? 1 : 0;                                                               \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                z[2 * (i + j * n)] = v[i + first * n];                                                                 \
                z[2 * (i + j * n) + 1] = sign != 0 ? sign * v[i + (first + 1) * n] : 0;                                \
            }                                                                                                          \
        }                                                                                                              \
    }

static int eig(const mfi_lapack_item *i, call *c)
{
    int64_t n = c->n;
    bool vectors = mfi_factor_wants(c->f, 2);
    geev(c);
    if (c->info || is_complex(c->f)) {
        put(i, 0, c->w.s, n);
        put(i, 2, c->w.v, n);
        return c->info;
    }
    if (is_double(c->f))
        COMPLEX_VECTORS(double)
    else
        COMPLEX_VECTORS(float)
    put(i, 0, c->w.work, n);
    put(i, 2, c->w.u, n);
    return 0;
}

static int least_squares(const mfi_lapack_item *i, call *c)
{
    gelsd(c);
    if (!c->info) {
        put(i, 0, c->w.b, mfi_max64(c->m, c->n));
        put(i, 2, &c->rank, 1);
        put(i, 3, c->w.s, c->k);
    }
    return c->info;
}

/* Kinds whose results lie where LAPACK puts them. */
static int plain(const mfi_lapack_item *i, call *c)
{
    const mfi_factor *f = c->f;
    char *result = f->kind == MFI_INVERSE ? c->w.a : f->kind == MFI_EIGH || f->kind == MFI_SVD ? c->w.s : c->w.b;
    size_t column = (size_t)c->n * mfi_ctype_size(f->ctype);
    if (f->kind == MFI_INVERSE)
        inverse(c);
    else if (f->kind == MFI_SYMMETRIC_SOLVE)
        sysv(c);
    else if (f->kind == MFI_EIGH)
        eigh(c);
    else if (f->kind == MFI_SVD)
        svd(c);
    else
        get(c, 0).gtsv(&c->n, &c->nrhs, c->w.work, c->w.work + column, c->w.work + 2 * column, c->w.b, &c->n, &c->info);
    if (c->info)
        return c->info;
    put(i, 0, result, f->kind == MFI_SVD ? c->k : c->n);
    if (f->kind == MFI_EIGH)
        put(i, 2, c->w.a, c->n);
    if (f->kind == MFI_SVD) {
        put(i, 2, c->w.u, c->m);
        put(i, 3, c->w.v, rows_of_vh(f));
    }
    return 0;
}

int mfi_lapack_call(const mfi_lapack_item *i)
{
    call c = call_of(i->s);
    c.w = i->w;
    c.lwork = i->s->lwork;
    c.lrwork = i->s->lrwork;
    c.liwork = i->s->liwork;
    switch (i->f->kind) {
    case MFI_LU:
        return lu(i, &c);
    case MFI_LU_APPLY:
        return lu_apply(i, &c);
    case MFI_QR:
        return qr(i, &c);
    case MFI_EIG:
        return eig(i, &c);
    case MFI_LEAST_SQUARES:
        return least_squares(i, &c);
    default:
        return plain(i, &c);
    }
}
