/* FACTOR steps of the reference provider: each item in complex f64, whatever its dtype. */
#include "ref_factor.h"
#include "ref.h"

#include <float.h>

typedef struct ref_factor {
    const mfi_problem *p;
    int threads;
    mfi_factor_views views;
    size_t bytes;
} ref_factor;

/* Memory of a thread; sizes in elements are set by layout(). */
typedef struct ref_memory {
    mfi_z *a, *b, *x, *u, *v, *w;
    double *s;
    int32_t *pivots;
    void *out; /* a result in its own dtype */
} ref_memory;

static size_t layout(const mfi_factor *f, char *base, ref_memory *out)
{
    size_t m = (size_t)f->m, n = (size_t)f->n, most = m > n ? m : n, square = most * most, at = 0;
    size_t side = f->kind == MFI_INVERSE ? square : most * (size_t)f->nrhs;
    const size_t counts[] = {m * n, side, side, square, square, most + square + 1};
    mfi_z **const parts[] = {&out->a, &out->b, &out->x, &out->u, &out->v, &out->w};
    for (size_t i = 0; i < MFI_COUNT(parts); i++) {
        *parts[i] = (mfi_z *)(void *)(base + at);
        at += counts[i] * sizeof(mfi_z);
    }
    out->s = (double *)(void *)(base + at);
    at += most * sizeof(double);
    out->out = base + at;
    at += (square > side ? square : side) * sizeof(mfi_z);
    out->pivots = (int32_t *)(void *)(base + at);
    return at + (most + 1) * sizeof(int32_t);
}

typedef struct item_call {
    const ref_factor *r;
    const mfi_factor *f;
    void *const *slots;
    int64_t item;
    ref_memory w;
} item_call;

/* ---- results ---- */

static void put(const item_call *c, int index, const mfi_z *src, int64_t ld)
{
    const mfi_factor_operand *o = &c->f->out[index];
    if (o->view.slot < 0)
        return;
    for (int64_t j = 0; j < o->cols; j++)
        for (int64_t i = 0; i < o->rows; i++) {
            mfi_z z = src[i + j * ld];
            int64_t at = i + j * o->rows;
            switch (o->view.dtype) {
            case MF_F32:
                ((float *)c->w.out)[at] = (float)creal(z);
                break;
            case MF_F64:
                ((double *)c->w.out)[at] = creal(z);
                break;
            case MF_C64:
                ((float *)c->w.out)[2 * at] = (float)creal(z);
                ((float *)c->w.out)[2 * at + 1] = (float)cimag(z);
                break;
            default:
                ((mfi_z *)c->w.out)[at] = z;
            }
        }
    mfi_factor_put(c->f, &c->r->views, c->slots, c->item, index, c->w.out, o->rows);
}

static void put_real(const item_call *c, int index, const double *values, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        c->w.w[i] = values[i];
    put(c, index, c->w.w, count);
}

static void put_int(const item_call *c, int index, int32_t value)
{
    mfi_factor_put(c->f, &c->r->views, c->slots, c->item, index, &value, 1);
}

/* ---- one item ---- */

static int64_t lu(const item_call *c)
{
    int sign;
    int64_t info = mfi_z_lu(c->f->m, c->f->n, c->w.a, c->w.pivots, &sign);
    put(c, 0, c->w.a, c->f->m);
    mfi_factor_put(c->f, &c->r->views, c->slots, c->item, 2, c->w.pivots, mfi_min64(c->f->m, c->f->n));
    put_int(c, 3, sign);
    return info;
}

/* op(A) X = B where b holds B, or A^-1. */
static int64_t solve(const item_call *c, int64_t nrhs)
{
    int sign;
    int64_t n = c->f->n, info = mfi_z_lu(n, n, c->w.a, c->w.pivots, &sign);
    if (!info)
        info = mfi_z_lu_apply(n, nrhs, c->w.a, c->w.pivots, c->w.b, 0);
    if (!info)
        put(c, 0, c->w.b, n);
    return info;
}

static int64_t inverse(const item_call *c)
{
    int64_t n = c->f->n;
    for (int64_t i = 0; i < n * n; i++)
        c->w.b[i] = i % (n + 1) == 0;
    return solve(c, n);
}

static int64_t apply(const item_call *c)
{
    mfi_factor_get(c->f, &c->r->views, c->slots, c->item, 1, c->w.pivots, c->f->n, MFI_I32);
    int64_t info = mfi_z_lu_apply(c->f->n, c->f->nrhs, c->w.a, c->w.pivots, c->w.b, c->f->flags);
    if (!info)
        put(c, 0, c->w.b, c->f->n);
    return info;
}

static int64_t qr(const item_call *c)
{
    const mfi_factor *f = c->f;
    int64_t m = f->m, n = f->n, k = mfi_min64(m, n), columns = f->flags & MF_FULL ? m : k;
    double scale = mfi_z_scale(c->w.a, m * n);
    mfi_z_qr(m, n, c->w.a, c->w.w);
    bool raw = f->flags & MF_RAW;
    if (raw)
        put(c, 2, c->w.w, k);
    else if (mfi_factor_wants(f, 0))
        mfi_z_qr_form(m, columns, k, c->w.a, c->w.w, c->w.u);
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < m; i++)
            if (i <= j)
                c->w.a[i + j * m] *= scale;
            else if (!raw)
                c->w.a[i + j * m] = 0;
    put(c, 0, raw ? c->w.a : c->w.u, m);
    if (!raw)
        put(c, 2, c->w.a, m);
    return 0;
}

static int64_t eigh(const item_call *c)
{
    int64_t n = c->f->n, info = mfi_z_eigh(n, c->w.a, c->w.s, c->w.v);
    if (!info) {
        put_real(c, 0, c->w.s, n);
        put(c, 2, c->w.v, n);
    }
    return info;
}

/* A = u diag(s) v^H of the matrix or, if it is wide, of its adjoint; u has `rows` rows, v as many as columns. */
static int64_t decompose(const item_call *c, bool wide, int64_t rows, int64_t k)
{
    const mfi_factor *f = c->f;
    for (int64_t j = 0; j < k; j++)
        for (int64_t i = 0; i < rows; i++)
            c->w.u[i + j * rows] = wide ? conj(c->w.a[j + i * f->m]) : c->w.a[i + j * f->m];
    return mfi_z_svd(rows, k, c->w.u, c->w.s, c->w.v);
}

static int64_t svd(const item_call *c)
{
    const mfi_factor *f = c->f;
    bool wide = f->m < f->n;
    int64_t rows = mfi_max64(f->m, f->n), k = mfi_min64(f->m, f->n), count = f->flags & MF_FULL ? rows : k;
    int64_t info = decompose(c, wide, rows, k);
    if (info)
        return info;
    put_real(c, 0, c->w.s, k);
    if (count > k)
        mfi_z_complete(rows, k, count, c->w.u);
    /* the right vectors are rows of V^H */
    mfi_z *right = wide ? c->w.u : c->w.v, *adjoint = c->w.w;
    int64_t columns = wide ? count : k;
    for (int64_t j = 0; j < columns; j++)
        for (int64_t i = 0; i < f->n; i++)
            adjoint[j + i * columns] = conj(right[i + j * f->n]);
    put(c, 2, wide ? c->w.v : c->w.u, f->m);
    put(c, 3, adjoint, columns);
    return 0;
}

static int64_t least_squares(const item_call *c)
{
    const mfi_factor *f = c->f;
    bool wide = f->m < f->n;
    int64_t rows = mfi_max64(f->m, f->n), k = mfi_min64(f->m, f->n);
    int64_t info = decompose(c, wide, rows, k);
    double epsilon = f->ctype == MFI_F32 || f->ctype == MFI_C64 ? (double)FLT_EPSILON : DBL_EPSILON;
    double cut = k ? (f->rcond < 0 ? epsilon : f->rcond) * c->w.s[0] : 0;
    const mfi_z *u = wide ? c->w.v : c->w.u, *v = wide ? c->w.u : c->w.v;
    mfi_z *solution = c->w.x;
    int32_t rank = 0;
    if (info)
        return info;
    for (int64_t i = 0; i < k; i++)
        rank += c->w.s[i] > cut;
    for (int64_t j = 0; j < f->nrhs; j++) {
        const mfi_z *b = c->w.b + j * f->m;
        mfi_z *x = solution + j * f->n;
        memset(x, 0, (size_t)f->n * sizeof *x);
        for (int64_t r = 0; r < rank; r++) {
            mfi_z along = 0;
            for (int64_t i = 0; i < f->m; i++)
                along += conj(u[i + r * f->m]) * b[i];
            along /= c->w.s[r];
            for (int64_t i = 0; i < f->n; i++)
                x[i] += along * v[i + r * f->n];
        }
    }
    put(c, 0, solution, f->n);
    put_int(c, 2, rank);
    put_real(c, 3, c->w.s, k);
    return 0;
}

static int64_t eig(const item_call *c)
{
    int64_t n = c->f->n;
    bool wanted = mfi_factor_wants(c->f, 2);
    int64_t info = mfi_z_eig(n, c->w.a, c->w.u, wanted ? c->w.v : NULL, c->w.w);
    if (!info) {
        put(c, 0, c->w.u, n);
        if (wanted)
            put(c, 2, c->w.v, n);
    }
    return info;
}

/* ---- reading ---- */

/* The whole matrix from what the kind reads of it. */
static void complete(const mfi_factor *f, mfi_z *a)
{
    int64_t n = f->n;
    bool upper = f->flags & MF_UPPER, adjoint = !(f->flags & MF_SYMMETRIC);
    if (f->kind == MFI_TRIDIAGONAL_SOLVE)
        for (int64_t i = 0; i < n * n; i++)
            if (i % n > i / n + 1 || i % n + 1 < i / n)
                a[i] = 0;
    if (f->kind != MFI_EIGH && f->kind != MFI_SYMMETRIC_SOLVE)
        return;
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < n; i++) {
            bool mine = upper ? i < j : i > j;
            mfi_z other = a[j + i * n];
            if (i == j && adjoint)
                a[i + j * n] = creal(a[i + j * n]);
            else if (i != j && !mine)
                a[i + j * n] = adjoint ? conj(other) : other;
        }
}

static int64_t call(const item_call *c)
{
    switch (c->f->kind) {
    case MFI_LU:
        return lu(c);
    case MFI_LU_APPLY:
        return apply(c);
    case MFI_INVERSE:
        return inverse(c);
    case MFI_QR:
        return qr(c);
    case MFI_EIGH:
        return eigh(c);
    case MFI_SVD:
        return svd(c);
    case MFI_LEAST_SQUARES:
        return least_squares(c);
    case MFI_EIG:
        return eig(c);
    default:
        return solve(c, c->f->nrhs);
    }
}

static mf_status factor_item(const void *context, void *const *slots, int64_t item, char *memory)
{
    const ref_factor *r = context;
    const mfi_factor *f = &r->p->u.factor;
    item_call c = {.r = r, .f = f, .slots = slots, .item = item};
    layout(f, memory, &c.w);
    mfi_factor_get(f, &r->views, slots, item, 0, c.w.a, f->m, MFI_C128);
    int side = f->kind == MFI_LU_APPLY ? 2 : 1;
    bool sided = f->in[side].view.slot >= 0;
    if (sided)
        mfi_factor_get(f, &r->views, slots, item, side, c.w.b, f->m, MFI_C128);
    complete(f, c.w.a);
    bool finite = mfi_factor_finite(f, c.w.a, f->m, f->n, MFI_C128);
    if (finite && f->kind == MFI_LEAST_SQUARES)
        finite = mfi_factor_finite(f, c.w.b, f->m, f->nrhs, MFI_C128);
    int64_t info = finite ? call(&c) : -1;
    if (info && !(f->kind == MFI_LU && info > 0))
        mfi_factor_put_failed(f, &r->views, slots, item);
    put_int(&c, MFI_INFO, (int32_t)info);
    return MF_OK;
}

/* ---- steps ---- */

mf_status mfi_ref_factor_new(void **state, const mfi_problem *p, int threads)
{
    ref_memory unused;
    ref_factor *r = mfi_calloc(1, sizeof *r);
    *state = r;
    if (!r)
        return MFI_NO_MEMORY(sizeof *r);
    r->p = p;
    r->threads = threads;
    r->bytes = layout(&p->u.factor, (char *)&unused, &unused); /* the addresses are not used */
    mfi_factor_views_init(&r->views, p);
    return MF_OK;
}

mf_status mfi_ref_factor_run(void *state, const mfi_run *run)
{
    const ref_factor *r = state;
    return mfi_factor_run(r->p, factor_item, r, run->slots, r->bytes, r->threads, mfi_factor_name(r->p->u.factor.kind));
}

void mfi_ref_factor_free(void *state)
{
    mf_free(state);
}
