/* FACTOR through LAPACK: memory, moving operands, what LAPACK does not check. The calls are in lapack_calls.c. */
#include "lapack.h"

#include <limits.h>
#include <stdio.h>

static const char letter[MFI_CTYPE_COUNT] = {[MFI_F32] = 's', [MFI_F64] = 'd', [MFI_C64] = 'c', [MFI_C128] = 'z'};

static int64_t rows_of_b(const mfi_factor *f)
{
    return f->kind == MFI_LEAST_SQUARES ? mfi_max64(f->m, f->n) : f->n;
}

/* Addresses of the parts in `base`; the bytes they take. */
static size_t layout(const mfi_lapack_factor *s, char *base, mfi_lapack_memory *out)
{
    const mfi_factor *f = &s->p->u.factor;
    size_t m = (size_t)f->m, n = (size_t)f->n, most = m > n ? m : n, k = m < n ? m : n, at = 0;
    size_t size = mfi_ctype_size(f->ctype), full = f->flags & MF_FULL ? most : k;
    size_t u = f->kind == MFI_SVD || f->kind == MFI_QR ? m * (f->flags & MF_FULL ? m : k) : 0;
    size_t v = f->kind == MFI_SVD ? full * n : 0;
    if (f->kind == MFI_EIG) { /* vectors, and from real ones complex ones */
        v = n * n;
        u = 2 * n * n;
    }
    struct {
        char **to;
        size_t bytes;
    } parts[] = {{&out->a, m * n * size},
                 {&out->b, (size_t)(rows_of_b(f) * f->nrhs) * size},
                 {&out->u, u * size},
                 {&out->v, v * size},
                 {&out->work, (size_t)s->lwork * size},
                 {&out->s, 4 * most * sizeof(double)},
                 {&out->rwork, (size_t)s->lrwork * sizeof(double)},
                 {(char **)&out->pivots, (most + 1) * sizeof(int)},
                 {(char **)&out->iwork, (size_t)s->liwork * sizeof(int)}};
    for (size_t i = 0; i < MFI_COUNT(parts); i++) {
        *parts[i].to = base + at;
        at += mfi_align_up(parts[i].bytes, 64);
    }
    return at;
}

/* Only the three diagonals, one after the other in w.work: below, main, above. */
static void get_diagonals(const mfi_lapack_item *c)
{
    const mfi_factor *f = c->f;
    const mfi_solve_view *v = &c->s->views.in[0];
    size_t size = mfi_ctype_size(f->ctype);
    for (int k = -1; k <= 1; k++) {
        int64_t count = f->n - (k != 0);
        mfi_view diagonal = {.slot = v->view.slot, .dtype = v->view.dtype, .strides = {v->rs + v->cs}};
        diagonal.alignment = (int32_t)mf_dtype_size(diagonal.dtype);
        diagonal.offset = v->view.offset + mfi_batch_offset(&v->batch, c->item) + (k < 0 ? v->rs : k > 0 ? v->cs : 0);
        mfi_pack(c->w.work + (size_t)((k + 1) * f->n) * size, f->ctype, &diagonal, c->slots, 1, &count, NULL);
    }
}

static bool get_operands(const mfi_lapack_item *c)
{
    const mfi_factor *f = c->f;
    const mfi_factor_views *views = &c->s->views;
    int side = f->kind == MFI_LU_APPLY ? 2 : 1;
    bool finite;
    if (f->kind == MFI_TRIDIAGONAL_SOLVE) {
        memset(c->w.work, 0, (size_t)(3 * f->n) * mfi_ctype_size(f->ctype));
        get_diagonals(c);
        finite = mfi_factor_finite(f, c->w.work, f->n, 3, f->ctype);
    } else {
        mfi_factor_get(f, views, c->slots, c->item, 0, c->w.a, f->m, f->ctype);
        finite = mfi_factor_finite(f, c->w.a, f->m, f->n, f->ctype);
    }
    if (!f->nrhs || !finite)
        return finite;
    int64_t rows = rows_of_b(f);
    mfi_factor_get(f, views, c->slots, c->item, side, c->w.b, rows, f->ctype);
    for (int64_t j = 0; f->kind == MFI_LEAST_SQUARES && j < f->nrhs; j++)
        finite &= mfi_factor_finite(f, c->w.b + (size_t)(j * rows) * mfi_ctype_size(f->ctype), f->m, 1, f->ctype);
    return finite;
}

static mf_status factor_item(const void *context, void *const *slots, int64_t item, char *memory)
{
    const mfi_lapack_factor *s = context;
    const mfi_factor *f = &s->p->u.factor;
    mfi_lapack_item c = {.s = s, .f = f, .slots = slots, .item = item};
    layout(s, memory, &c.w);
    int32_t info = get_operands(&c) ? mfi_lapack_call(&c) : -1;
    if (info && !(f->kind == MFI_LU && info > 0))
        mfi_factor_put_failed(f, &s->views, slots, item);
    mfi_factor_put(f, &s->views, slots, item, MFI_INFO, &info, 1);
    return MF_OK;
}

/* ---- the provider's part ---- */

/* What a small LU or inverse costs besides its arithmetic: calls, copies, loops too short for the library's kernels. */
static double small_us(const mfi_factor *f)
{
    static const double call_us = 0.4, element_us = 0.008;
    double each = f->kind == MFI_LU ? 1 : f->kind == MFI_INVERSE ? 2 : 0;
    return f->n <= MFI_SMALL_ORDER ? each * (call_us + element_us * (double)(f->m * f->n)) : 0;
}

bool mfi_lapack_factor_query(const mfi_problem *p, const mfi_caps *c, mfi_bid *bid)
{
    const mfi_factor *f = &p->u.factor;
    MF_REFUSE_UNLESS(f->m < INT_MAX && f->n < INT_MAX && f->nrhs < INT_MAX, SIZE,
                     "%lld x %lld, nrhs=%lld, below 2^31 - 1", (long long)f->m, (long long)f->n, (long long)f->nrhs);
    bool sided = f->in[1].view.slot >= 0;
    MF_REFUSE_UNLESS(f->m && f->n && (f->nrhs || !sided), EMPTY, "a matrix without elements");
    mfi_bid_roofline(bid, p, c, 0.3, 1);
    bid->cost_us += small_us(f) * (double)mfi_problem_points(p) / c->threads;
    snprintf(bid->kernel, sizeof bid->kernel, "%c%s", letter[f->ctype], mfi_lapack_routine(f, 0));
    return true;
}

mf_status mfi_lapack_factor_prepare(void **state, const mfi_problem *p, const mfi_caps *c)
{
    mfi_lapack_factor *s = mfi_calloc(1, sizeof *s);
    mfi_lapack_memory unused;
    mf_status status = MF_OK;
    *state = NULL;
    if (!s)
        return MFI_NO_MEMORY(sizeof *s);
    s->p = p;
    s->threads = c->threads;
    mfi_factor_views_init(&s->views, p);
    for (int i = 0; i < MFI_LAPACK_ROUTINES && status == MF_OK; i++)
        if (mfi_lapack_routine(&p->u.factor, i))
            status = mfi_lapack_symbol(&s->routine[i], c, p->u.factor.ctype, mfi_lapack_routine(&p->u.factor, i));
    if (status != MF_OK) {
        mf_free(s);
        return status;
    }
    mfi_lapack_sizes(s);
    s->bytes = layout(s, (char *)&unused, &unused); /* the addresses are not used */
    *state = s;
    return MF_OK;
}

mf_status mfi_lapack_factor_run(void *state, const mfi_run *run)
{
    const mfi_lapack_factor *s = state;
    return mfi_factor_run(s->p, factor_item, s, run->slots, s->bytes, s->threads, "LAPACK");
}

void mfi_lapack_factor_destroy(void *state)
{
    mf_free(state);
}
