/* A transform whose result is read in part, as of its lowest terms: it then need not store the rest. */
#include "schedule.h"

/* Terms of an axis in memory: `all` of them, `step` elements apart; what else there is lies between or beyond them. */
typedef struct axis {
    int64_t all, step;
} axis;

/* How many of the first terms hold what a view covers; all where that is unknown. */
static int64_t reach(const mfi_view *v, int ndim, const int64_t *shape, const axis *a)
{
    const int64_t block = a->all * a->step;
    int64_t last = v->offset % block; /* the farthest place in a block */
    for (int d = 0; d < ndim; d++) {
        if (shape[d] <= 1 || v->strides[d] % block == 0)
            continue;
        if (v->strides[d] < 0)
            return a->all;
        last += (shape[d] - 1) * v->strides[d];
    }
    return mfi_min64(last / a->step + 1, a->all);
}

static int64_t matmul_reach(const mfi_problem *p, int slot, const axis *a)
{
    const mfi_matmul *mm = &p->u.matmul;
    int64_t shape[MF_MAX_DIMS], most = 0;
    int m = p->ndim - 2, n = p->ndim - 1;
    memcpy(shape, p->shape, sizeof shape);
    shape[m] = mm->m;
    shape[n] = mm->k;
    if (mm->a.slot == slot)
        most = reach(&mm->a, p->ndim, shape, a);
    shape[m] = mm->k;
    shape[n] = mm->n;
    if (mm->b.slot == slot)
        most = mfi_max64(most, reach(&mm->b, p->ndim, shape, a));
    return most;
}

static int64_t anchor_reach(const mfi_problem *p, int slot, const axis *a)
{
    if (p->anchor == MFI_MATMUL_PAIR)
        return mfi_max64(matmul_reach(p, slot, a), matmul_reach(p->head, slot, a));
    if (p->anchor == MFI_MATMUL)
        return matmul_reach(p, slot, a);
    if (p->anchor == MFI_FFT && p->u.fft.in.slot == slot) {
        int64_t shape[MF_MAX_DIMS];
        memcpy(shape, p->shape, sizeof shape);
        memcpy(shape + p->ndim - p->u.fft.naxes, p->u.fft.in_extent, (size_t)p->u.fft.naxes * sizeof *shape);
        return reach(&p->u.fft.in, p->ndim, shape, a);
    }
    for (int i = 0; p->anchor == MFI_FACTOR && i < MFI_FACTOR_INPUTS; i++)
        if (p->u.factor.in[i].view.slot == slot)
            return a->all;
    return p->anchor == MFI_SOLVE && (p->u.solve.a.slot == slot || p->u.solve.b.slot == slot) ? a->all : 0;
}

static int64_t step_reach(const mfi_problem *p, int slot, const axis *a)
{
    int64_t most = mfi_max64(anchor_reach(p, slot, a), p->anchor == MFI_FFT_PAIR ? step_reach(p->head, slot, a) : 0);
    for (int o = 0; o < p->chain.operands; o++) {
        const mfi_operand *operand = &p->chain.operand[o];
        int64_t shape[MF_MAX_DIMS];
        for (int d = 0; d < p->ndim; d++)
            shape[d] = operand->extent[d] >= 0 ? operand->extent[d] : p->shape[d];
        if (operand->view.slot == slot)
            most = mfi_max64(most, reach(&operand->view, p->ndim, shape, a));
    }
    return most;
}

/* The store's terms lie in blocks, with nothing of the same store's between them but whole other signals. */
static bool in_blocks(const mfi_view *v, const mfi_problem *p, const axis *a)
{
    int64_t between = 0;
    for (int d = 0; d < p->ndim - 1; d++) {
        if (p->shape[d] <= 1 || v->strides[d] % (a->all * a->step) == 0)
            continue;
        between += (p->shape[d] - 1) * v->strides[d];
        if (v->strides[d] < 0)
            return false;
    }
    return a->step > 0 && between < a->step && v->offset % (a->all * a->step) == 0;
}

int64_t mfi_terms_read(const mfi_schedule *s, int index)
{
    const mfi_problem *p = s->step[index];
    const mfi_view *store = mfi_only_store(p);
    axis a = {p->shape[p->ndim - 1], store ? store->strides[p->ndim - 1] : 0};
    int64_t most = 1;
    bool suits = (p->anchor == MFI_FFT || p->anchor == MFI_FFT_PAIR) && p->u.fft.naxes == 1 &&
                 p->u.fft.kind != MF_IRFFT; /* which stores pairs */
    if (!suits || a.all < 2 || !store || store->slot < s->inputs + s->outputs || !in_blocks(store, p, &a))
        return a.all;
    for (int i = 0; i < s->steps; i++)
        if (i != index)
            most = mfi_max64(most, step_reach(s->step[i], store->slot, &a));
    return most;
}
