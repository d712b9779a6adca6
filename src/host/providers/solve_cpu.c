/* SOLVE steps on the CPU: see solve_cpu.h. */
#include "solve_cpu.h"

static mfi_solve_view locate(const mfi_view *view, const mfi_problem *p, bool matrix)
{
    mfi_solve_view v = {.view = *view};
    if (view->slot < 0)
        return v;
    v.batch = mfi_batch_of(view, p->ndim, p->shape);
    v.rs = matrix ? view->strides[p->ndim] : 0;
    v.cs = matrix ? view->strides[p->ndim + 1] : 0;
    return v;
}

void mfi_solve_views_init(mfi_solve_views *views, const mfi_problem *p)
{
    const mfi_solve *s = &p->u.solve;
    views->a = locate(&s->a, p, true);
    views->b = locate(&s->b, p, true);
    views->x = locate(&s->x, p, true);
    views->info = locate(&s->info, p, false);
}

static mfi_view matrix(const mfi_solve_view *v, int64_t item)
{
    mfi_view m = {.slot = v->view.slot, .dtype = v->view.dtype, .strides = {v->rs, v->cs}};
    m.alignment = (int32_t)mf_dtype_size(m.dtype);
    m.offset = v->view.offset + mfi_batch_offset(&v->batch, item);
    return m;
}

void *mfi_solve_read(const mfi_solve_view *v, void *const *slots, int64_t item, int64_t rows, int64_t cols,
                     mfi_ctype type, void *pack, int64_t *rs, int64_t *cs)
{
    if (v->view.dtype == mfi_ctype_dtype(type)) {
        *rs = v->rs;
        *cs = v->cs;
        return mfi_at(&v->view, slots, mfi_batch_offset(&v->batch, item));
    }
    mfi_view m = matrix(v, item);
    mfi_pack(pack, type, &m, slots, 2, (int64_t[]){rows, cols}, NULL);
    *rs = cols;
    *cs = 1;
    return pack;
}

void *mfi_solve_result(const mfi_solve_view *v, void *const *slots, int64_t item, int64_t cols, mfi_ctype type,
                       void *pack, int64_t *rs, int64_t *cs)
{
    bool own = v->view.dtype == mfi_ctype_dtype(type);
    *rs = own ? v->rs : cols;
    *cs = own ? v->cs : 1;
    return own ? mfi_at(&v->view, slots, mfi_batch_offset(&v->batch, item)) : pack;
}

void mfi_solve_written(const mfi_solve_view *v, void *const *slots, int64_t item, int64_t rows, int64_t cols,
                       mfi_ctype type, const void *pack)
{
    if (v->view.dtype == mfi_ctype_dtype(type))
        return;
    mfi_view m = matrix(v, item);
    mfi_unpack(&m, slots, 2, (int64_t[]){rows, cols}, pack, type);
}

bool mfi_solve_is_small(const mfi_problem *p)
{
    return p->u.solve.n <= MFI_SMALL_ORDER && p->u.solve.nrhs <= MFI_FEW_SIDES && mfi_problem_points(p) >= 2;
}

void mfi_solve_write_info(const mfi_solve_view *v, void *const *slots, int64_t item, int64_t info)
{
    if (v->view.slot < 0)
        return;
    void *at = mfi_at(&v->view, slots, mfi_batch_offset(&v->batch, item));
    if (v->view.dtype == MF_I64)
        *(int64_t *)at = info;
    else
        *(int32_t *)at = (int32_t)info;
}
