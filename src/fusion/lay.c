/* How a temporary lies in memory: along the axis of the transform that reads it, where its one writer can store it so. */
#include "schedule.h"

/* A temporary of `rows` times `row` elements, transposed: element r * row + c becomes c * rows + r. */
typedef struct transposition {
    int64_t rows, row;
} transposition;

/* Gives the view's strides after it; false: it reaches from one row into the next. */
static bool transpose(mfi_view *v, int ndim, const int64_t *shape, transposition t)
{
    int64_t place = 0, row = 0; /* the last ones */
    for (int d = 0; d < ndim; d++) {
        int64_t step = v->strides[d];
        bool along = step % t.row == 0;
        if (shape[d] <= 1)
            continue;
        if (step < 0)
            return false;
        v->strides[d] = along ? step / t.row : step * t.rows;
        place += along ? 0 : (shape[d] - 1) * step;
        row += along ? (shape[d] - 1) * v->strides[d] : 0;
    }
    return v->offset == 0 && place < t.row && row < t.rows;
}

static mfi_view *store_of(mfi_problem *p, int slot)
{
    for (int i = 0; i < p->chain.count; i++) {
        const mfi_instr *in = &p->chain.instr[i];
        if (in->kind == MFI_STORE && p->chain.operand[in->operand].view.slot == slot)
            return &p->chain.operand[in->operand].view;
    }
    return NULL;
}

bool mfi_lay_along(mfi_laid *out, const mfi_schedule *s, int reader)
{
    mfi_problem *p = s->step[reader];
    int axis = p->ndim - 1;
    int64_t all = 1, shape[MF_MAX_DIMS];
    *out = (mfi_laid){.writer = -1};
    if (p->anchor != MFI_FFT || p->u.fft.naxes != 1 || p->u.fft.in.strides[axis] <= 1 ||
        !mfi_is_private(s, p->u.fft.in.slot))
        return false;
    const mfi_buffer *b = &s->buffer[p->u.fft.in.slot];
    for (int d = 0; d < b->ndim; d++)
        all *= b->shape[d];
    transposition t = {all / p->u.fft.in.strides[axis], p->u.fft.in.strides[axis]};
    memcpy(shape, p->shape, sizeof shape);
    shape[axis] = p->u.fft.in_extent[0];
    for (int i = 0; i < s->steps; i++)
        if (s->step[i]->anchor == MFI_MATMUL && store_of(s->step[i], p->u.fft.in.slot))
            out->writer = i;
    if (out->writer < 0 || all % t.row)
        return false;
    mfi_problem *w = s->step[out->writer];
    out->read = &p->u.fft.in;
    out->stored = store_of(w, p->u.fft.in.slot);
    out->other[0] = *out->read;
    out->other[1] = *out->stored;
    return !w->chain.phases && transpose(&out->other[0], p->ndim, shape, t) &&
           transpose(&out->other[1], w->ndim, w->shape, t);
}

void mfi_lay(mfi_laid *l)
{
    mfi_view now[2] = {*l->read, *l->stored};
    *l->read = l->other[0];
    *l->stored = l->other[1];
    memcpy(l->other, now, sizeof now);
}
