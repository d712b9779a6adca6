/* A transform whose result is read in part, as of its lowest terms: it then need not store the rest. */
#include "schedule.h"

/* How many of the first columns, in memory of rows of `row` elements, hold what a view covers; `row` where unknown. */
static int64_t reach(const mfi_view *v, int ndim, const int64_t *shape, int64_t row)
{
    int64_t last = v->offset % row;
    for (int d = 0; d < ndim; d++) {
        if (shape[d] <= 1 || v->strides[d] % row == 0)
            continue;
        if (v->strides[d] < 0)
            return row;
        last += (shape[d] - 1) * v->strides[d];
    }
    return mfi_min64(last + 1, row);
}

static int64_t matmul_reach(const mfi_problem *p, int slot, int64_t row)
{
    const mfi_matmul *mm = &p->u.matmul;
    int64_t shape[MF_MAX_DIMS], most = 0;
    int m = p->ndim - 2, n = p->ndim - 1;
    memcpy(shape, p->shape, sizeof shape);
    shape[m] = mm->m;
    shape[n] = mm->k;
    if (mm->a.slot == slot)
        most = reach(&mm->a, p->ndim, shape, row);
    shape[m] = mm->k;
    shape[n] = mm->n;
    if (mm->b.slot == slot)
        most = mfi_max64(most, reach(&mm->b, p->ndim, shape, row));
    return most;
}

static int64_t anchor_reach(const mfi_problem *p, int slot, int64_t row)
{
    if (p->anchor == MFI_MATMUL)
        return matmul_reach(p, slot, row);
    if (p->anchor == MFI_FFT && p->u.fft.in.slot == slot) {
        int64_t shape[MF_MAX_DIMS];
        memcpy(shape, p->shape, sizeof shape);
        memcpy(shape + p->ndim - p->u.fft.naxes, p->u.fft.in_extent, (size_t)p->u.fft.naxes * sizeof *shape);
        return reach(&p->u.fft.in, p->ndim, shape, row);
    }
    return p->anchor == MFI_SOLVE && (p->u.solve.a.slot == slot || p->u.solve.b.slot == slot) ? row : 0;
}

static int64_t step_reach(const mfi_problem *p, int slot, int64_t row)
{
    int64_t most =
        mfi_max64(anchor_reach(p, slot, row), p->anchor == MFI_FFT_PAIR ? step_reach(p->head, slot, row) : 0);
    for (int o = 0; o < p->chain.operands; o++) {
        const mfi_operand *operand = &p->chain.operand[o];
        int64_t shape[MF_MAX_DIMS];
        for (int d = 0; d < p->ndim; d++)
            shape[d] = operand->extent[d] >= 0 ? operand->extent[d] : p->shape[d];
        if (operand->view.slot == slot)
            most = mfi_max64(most, reach(&operand->view, p->ndim, shape, row));
    }
    return most;
}

static bool in_rows(const mfi_view *v, const mfi_problem *p, int64_t row)
{
    for (int d = 0; d < p->ndim - 1; d++)
        if (p->shape[d] > 1 && v->strides[d] % row)
            return false;
    return v->strides[p->ndim - 1] == 1 && v->offset % row == 0;
}

int64_t mfi_terms_read(const mfi_schedule *s, int index)
{
    const mfi_problem *p = s->step[index];
    int64_t all = p->shape[p->ndim - 1], most = 1;
    const mfi_view *store = mfi_only_store(p);
    bool suits = (p->anchor == MFI_FFT || p->anchor == MFI_FFT_PAIR) && p->u.fft.naxes == 1 &&
                 p->u.fft.kind != MF_IRFFT; /* which stores pairs */
    if (!suits || all < 2 || !store || store->slot < s->inputs + s->outputs || !in_rows(store, p, all))
        return all;
    for (int i = 0; i < s->steps; i++)
        if (i != index)
            most = mfi_max64(most, step_reach(s->step[i], store->slot, all));
    return most;
}
