/* A transform with the step that makes its input, a map or another transform of the same axis, as one step: what passes
 * between them then costs no memory traffic. */
#include "schedule.h"

int mfi_slot_uses(const mfi_problem *p, int slot)
{
    int found = p->anchor == MFI_FFT_PAIR ? mfi_slot_uses(p->head, slot) : 0;
    for (int i = 0; p->anchor == MFI_TOGETHER && i < p->u.together.parts; i++)
        found += mfi_slot_uses(p->u.together.part[i], slot);
    for (int o = 0; o < p->chain.operands; o++)
        found += p->chain.operand[o].view.slot == slot;
    if (p->anchor == MFI_MATMUL || p->anchor == MFI_MATMUL_PAIR)
        found += (p->u.matmul.a.slot == slot) + (p->u.matmul.b.slot == slot);
    if (p->anchor == MFI_MATMUL_PAIR)
        found += p->head->u.matmul.b.slot == slot;
    else if (p->anchor == MFI_FFT)
        found += p->u.fft.in.slot == slot;
    else if (p->anchor == MFI_SOLVE)
        found += (p->u.solve.a.slot == slot) + (p->u.solve.b.slot == slot) + (p->u.solve.x.slot == slot) +
                 (p->u.solve.info.slot == slot);
    for (int i = 0; p->anchor == MFI_FACTOR && i < MFI_FACTOR_INPUTS + MFI_FACTOR_RESULTS; i++) {
        const mfi_factor *f = &p->u.factor;
        found += (i < MFI_FACTOR_INPUTS ? f->in[i] : f->out[i - MFI_FACTOR_INPUTS]).view.slot == slot;
    }
    return found;
}

int mfi_schedule_uses(const mfi_schedule *s, int slot)
{
    int uses = 0;
    for (int i = 0; i < s->steps; i++)
        uses += mfi_slot_uses(s->step[i], slot);
    return uses;
}

bool mfi_is_private(const mfi_schedule *s, int slot)
{
    return slot >= s->inputs + s->outputs && mfi_schedule_uses(s, slot) == 2;
}

const mfi_view *mfi_only_store(const mfi_problem *p)
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

static bool suits(const mfi_problem *first, const mfi_problem *second)
{
    if (second->anchor != MFI_FFT || second->u.fft.naxes != 1)
        return false;
    if (first->anchor == MFI_MAP)
        return first->nreduce == 0;
    return (first->anchor == MFI_FFT || first->anchor == MFI_FFT_PAIR) && kinds_match(&first->u.fft, &second->u.fft);
}

/* What passes from one to the other has its compute type in memory too: no rounding is left out. */
static bool exact(mf_dtype dtype, bool f64)
{
    return f64 ? dtype == MF_C128 || dtype == MF_F64 : dtype == MF_C64 || dtype == MF_F32;
}

static void split_strides(mfi_view *v, int d, int64_t inner)
{
    memmove(v->strides + d + 1, v->strides + d, sizeof *v->strides * (size_t)(MF_MAX_DIMS - 1 - d));
    v->strides[d] *= inner;
}

static bool can_split_dim(const mfi_problem *p, int d)
{
    if (p->ndim == MF_MAX_DIMS || (p->head && !can_split_dim(p->head, d)))
        return false;
    for (int o = 0; o < p->chain.operands; o++)
        if (p->chain.operand[o].extent[d] >= 0)
            return false;
    for (int i = 0; i < p->chain.count; i++)
        if (p->chain.instr[i].kind == MFI_INDEX && p->chain.instr[i].axis == d)
            return false;
    return true;
}

/* Dim d of the problem, and of what makes its input, as two, the second of length `inner`. */
static void split_dim(mfi_problem *p, int d, int64_t inner)
{
    for (int o = 0; o < p->chain.operands; o++) {
        mfi_operand *operand = &p->chain.operand[o];
        split_strides(&operand->view, d, inner);
        memmove(operand->extent + d + 1, operand->extent + d, sizeof *operand->extent * (size_t)(MF_MAX_DIMS - 1 - d));
        operand->extent[d] = -1;
    }
    for (int i = 0; i < p->chain.count; i++)
        if (p->chain.instr[i].kind == MFI_INDEX && p->chain.instr[i].axis > d)
            p->chain.instr[i].axis++;
    if (p->anchor != MFI_MAP)
        split_strides(&p->u.fft.in, d, inner);
    memmove(p->shape + d + 1, p->shape + d, sizeof *p->shape * (size_t)(MF_MAX_DIMS - 1 - d));
    p->shape[d] /= inner;
    p->shape[d + 1] = inner;
    p->ndim++;
    if (p->head)
        split_dim(p->head, d, inner);
}

/* Give both the same dims, up to those along the axis, by splitting what one has merged and the other not. `x`: the
 * elements of `first` along the axis, which a map may have merged with the rest. */
static bool same_dims(mfi_problem *first, mfi_problem *second, int64_t x)
{
    int i = first->ndim - 1, j = second->ndim - 1;
    int64_t y = x;
    for (;;) {
        int64_t have = first->shape[i];
        if (have > y && have % y == 0) {
            if (!can_split_dim(first, i))
                return false;
            split_dim(first, i++, y);
        } else if (y > have && y % have == 0 && j < second->ndim - 1) {
            if (!can_split_dim(second, j))
                return false;
            split_dim(second, j++, have);
        } else if (have != y) {
            return false;
        }
        if (--i < 0 || --j < 0)
            return i < 0 && j <= 0;
        y = second->shape[j];
    }
}

static bool passes_on(const mfi_problem *first, const mfi_problem *second)
{
    const mfi_view *out = mfi_only_store(first), *in = &second->u.fft.in;
    int last = first->ndim - 1;
    if (out->offset != in->offset || first->ndim != second->ndim)
        return false;
    for (int d = 0; d <= last; d++) {
        int64_t extent = d == last ? second->u.fft.in_extent[0] : second->shape[d];
        if (extent != 1 && (extent != first->shape[d] || out->strides[d] != in->strides[d]))
            return false;
    }
    return true;
}

static bool candidates(const mfi_schedule *s, int index)
{
    const mfi_problem *first = s->step[index], *second = s->step[index + 1];
    if (!suits(first, second))
        return false;
    const mfi_view *store = mfi_only_store(first);
    int slot = second->u.fft.in.slot;
    return store && store->slot == slot && exact(store->dtype, second->u.fft.f64) && mfi_is_private(s, slot);
}

mf_status mfi_pair(mfi_problem **out, const mfi_schedule *s, int index)
{
    *out = NULL;
    if (index + 1 >= s->steps || !candidates(s, index))
        return MF_OK;
    mfi_problem *head = mfi_problem_copy(s->step[index]), *pair = mfi_problem_copy(s->step[index + 1]);
    if (!pair || !head) {
        mfi_problem_free(pair);
        mfi_problem_free(head);
        return MFI_NO_MEMORY(sizeof *pair);
    }
    if (!same_dims(head, pair, pair->u.fft.in_extent[0]) || !passes_on(head, pair)) {
        mfi_problem_free(head);
        mfi_problem_free(pair);
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
