/* Two transforms of one axis, one of the other's result, as one step: a filter between them then costs no memory traffic. */
#include "schedule.h"

static int uses(const mfi_problem *p, int slot)
{
    int found = 0;
    for (int o = 0; o < p->chain.operands; o++)
        found += p->chain.operand[o].view.slot == slot;
    if (p->anchor == MFI_MATMUL)
        found += (p->u.matmul.a.slot == slot) + (p->u.matmul.b.slot == slot);
    else if (p->anchor == MFI_FFT)
        found += p->u.fft.in.slot == slot;
    else if (p->anchor == MFI_FFT_PAIR)
        found += uses(p->head, slot);
    else if (p->anchor == MFI_SOLVE)
        found += (p->u.solve.a.slot == slot) + (p->u.solve.b.slot == slot) + (p->u.solve.x.slot == slot) +
                 (p->u.solve.info.slot == slot);
    return found;
}

static const mfi_view *only_store(const mfi_problem *p)
{
    const mfi_view *store = NULL;
    for (int i = 0; i < p->chain.count; i++)
        if (p->chain.instr[i].kind == MFI_STORE) {
            if (store)
                return NULL;
            store = &p->chain.operand[p->chain.instr[i].operand].view;
        }
    return store;
}

static bool kinds_match(const mfi_fft *first, const mfi_fft *second)
{
    bool real = first->kind == MF_RFFT && second->kind == MF_IRFFT;
    bool complex =
        (first->kind == MF_FFT || first->kind == MF_IFFT) && (second->kind == MF_FFT || second->kind == MF_IFFT);
    return first->naxes == 1 && second->naxes == 1 && (real || complex) && first->n[0] == second->n[0] &&
           first->f64 == second->f64 && second->in_extent[0] == second->in_shape[0];
}

static void split_strides(mfi_view *v, int d, int64_t inner)
{
    memmove(v->strides + d + 1, v->strides + d, sizeof *v->strides * (size_t)(MF_MAX_DIMS - 1 - d));
    v->strides[d] *= inner;
}

/* Dim d of the problem as two, the second of length `inner`. */
static bool split_dim(mfi_problem *p, int d, int64_t inner)
{
    if (p->ndim == MF_MAX_DIMS)
        return false;
    for (int o = 0; o < p->chain.operands; o++) {
        mfi_operand *operand = &p->chain.operand[o];
        if (operand->extent[d] >= 0)
            return false;
        split_strides(&operand->view, d, inner);
        memmove(operand->extent + d + 1, operand->extent + d, sizeof *operand->extent * (size_t)(MF_MAX_DIMS - 1 - d));
        operand->extent[d] = -1;
    }
    for (int i = 0; i < p->chain.count; i++) {
        if (p->chain.instr[i].kind == MFI_INDEX && p->chain.instr[i].axis == d)
            return false;
        p->chain.instr[i].axis =
            (uint8_t)(p->chain.instr[i].axis + (p->chain.instr[i].kind == MFI_INDEX && p->chain.instr[i].axis > d));
    }
    split_strides(&p->u.fft.in, d, inner);
    memmove(p->shape + d + 1, p->shape + d, sizeof *p->shape * (size_t)(MF_MAX_DIMS - 1 - d));
    p->shape[d] /= inner;
    p->shape[d + 1] = inner;
    p->ndim++;
    return true;
}

/* Give both the same batch dims, by splitting what one has merged and the other not. */
static bool same_dims(mfi_problem *a, mfi_problem *b)
{
    int i = a->ndim - 2, j = b->ndim - 2;
    while (i >= 0 && j >= 0) {
        int64_t x = a->shape[i], y = b->shape[j];
        if (x > y && x % y == 0) {
            if (!split_dim(a, i, y))
                return false;
            i++;
        } else if (y > x && y % x == 0) {
            if (!split_dim(b, j, x))
                return false;
            j++;
        } else if (x != y) {
            return false;
        }
        i--;
        j--;
    }
    return i < 0 && j < 0;
}

static bool passes_on(const mfi_problem *first, const mfi_problem *second)
{
    const mfi_view *out = only_store(first), *in = &second->u.fft.in;
    int last = first->ndim - 1;
    if (out->offset != in->offset || first->shape[last] != second->u.fft.in_shape[0])
        return false;
    for (int d = 0; d <= last; d++) {
        int64_t extent = d == last ? first->shape[last] : second->shape[d];
        if (extent != 1 && (extent != first->shape[d] || out->strides[d] != in->strides[d]))
            return false;
    }
    return true;
}

static bool candidates(const mfi_schedule *s, int index)
{
    const mfi_problem *first = s->step[index], *second = s->step[index + 1];
    if (first->anchor != MFI_FFT || second->anchor != MFI_FFT || !kinds_match(&first->u.fft, &second->u.fft))
        return false;
    const mfi_view *store = only_store(first);
    int slot = second->u.fft.in.slot, others = 0;
    if (!store || store->slot != slot || slot < s->inputs + s->outputs ||
        store->dtype != (first->u.fft.f64 ? MF_C128 : MF_C64))
        return false;
    for (int i = 0; i < s->steps; i++)
        others += uses(s->step[i], slot);
    return others == 2;
}

mf_status mfi_pair(mfi_problem **out, const mfi_schedule *s, int index)
{
    *out = NULL;
    if (index + 1 >= s->steps || !candidates(s, index))
        return MF_OK;
    mfi_problem *pair = mfi_alloc(sizeof *pair), *head = mfi_alloc(sizeof *head);
    if (!pair || !head) {
        mf_free(pair);
        mf_free(head);
        return MFI_NO_MEMORY(sizeof *pair);
    }
    *head = *s->step[index];
    *pair = *s->step[index + 1];
    if (!same_dims(head, pair) || !passes_on(head, pair)) {
        mf_free(head);
        mf_free(pair);
        return MF_OK;
    }
    pair->anchor = MFI_FFT_PAIR;
    pair->head = head;
    *out = pair;
    return MF_OK;
}

void mfi_schedule_join(mfi_schedule *s, int index, mfi_problem *pair)
{
    mfi_problem_free(s->step[index]);
    mfi_problem_free(s->step[index + 1]);
    s->step[index] = pair;
    s->steps--;
    memmove(s->step + index + 1, s->step + index + 2, (size_t)(s->steps - index - 1) * sizeof *s->step);
}

mf_status mfi_schedule_part(mfi_schedule *s, int index)
{
    mfi_problem *second = s->step[index], *first = second->head;
    second->head = NULL;
    second->anchor = MFI_FFT;
    return mfi_schedule_insert(s, index, first);
}
