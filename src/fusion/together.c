/* Steps over the items of one batch as one step, which does them one after the other for a few items at a time: what they hand on then
 * stays in the kernel. */
#include "schedule.h"

enum { MOST_SIDE = 128, MOST_OWN_BYTES = 64 << 10, MOST_POINTS = 1 << 16 };

static bool indexes_batch(const mfi_chain *c)
{
    for (int i = 0; i < c->count; i++)
        if (c->instr[i].kind == MFI_INDEX && c->instr[i].axis == 0)
            return true;
    return false;
}

static bool extends_batch(const mfi_chain *c)
{
    for (int o = 0; o < c->operands; o++)
        if (c->operand[o].extent[0] >= 0)
            return true;
    return false;
}

static bool small_product(const mfi_problem *p, int64_t batch)
{
    const mfi_matmul *mm = &p->u.matmul;
    int64_t rows = p->ndim == 2 ? mm->m / batch : mm->m; /* one right factor for all: the batch is in the rows */
    return p->ndim >= 2 && (p->ndim == 2 || p->shape[0] == batch) && !p->chain.phases && !p->nreduce &&
           rows <= MOST_SIDE && mm->n <= MOST_SIDE && mm->k <= MOST_SIDE;
}

bool mfi_together_suits(const mfi_problem *p, int64_t batch)
{
    if (batch < 1 || p->head || p->ndim < 1 || p->shape[0] % batch || p->shape[0] == 0 ||
        mfi_problem_points(p) / batch > MOST_POINTS || indexes_batch(&p->chain) || extends_batch(&p->chain))
        return false;
    if (p->anchor == MFI_SOLVE)
        return p->ndim == 1 && p->shape[0] == batch && p->u.solve.n <= MOST_SIDE;
    if (p->anchor == MFI_MATMUL)
        return small_product(p, batch);
    return p->anchor == MFI_MAP && p->ndim - p->nreduce >= 1 && (p->shape[0] == batch || p->ndim < MF_MAX_DIMS);
}

/* Strides of the first dim as those of the batch, and of what is left of it. */
static void split_strides(int64_t *strides, int64_t inner)
{
    memmove(strides + 1, strides, sizeof *strides * (MF_MAX_DIMS - 1));
    strides[0] = inner * strides[1];
}

/* The first dim, a map's or a product's rows, as the batch and what is left of it. */
static void split_batch(mfi_problem *p, int64_t batch)
{
    int64_t inner = p->shape[0] / batch;
    split_strides(p->shape, 1);
    p->shape[0] = batch;
    p->shape[1] = inner;
    p->ndim++;
    for (int o = 0; o < p->chain.operands; o++) {
        mfi_operand *operand = &p->chain.operand[o];
        split_strides(operand->view.strides, inner);
        split_strides(operand->extent, 1);
        operand->extent[0] = -1;
    }
    for (int i = 0; i < p->chain.count; i++)
        p->chain.instr[i].axis += p->chain.instr[i].kind == MFI_INDEX;
    if (p->anchor == MFI_MATMUL) {
        p->u.matmul.m = inner;
        split_strides(p->u.matmul.a.strides, inner);
        split_strides(p->u.matmul.b.strides, 0);
    }
}

static int32_t alignment_at_most(int32_t alignment, int64_t bytes)
{
    while (alignment > 1 && bytes % alignment)
        alignment /= 2;
    return alignment;
}

mf_status mfi_together_items(mfi_problem **out, const mfi_problem *p, int part, int64_t items)
{
    const mfi_together *t = &p->u.together;
    mfi_view *view[MFI_MOST_VIEWS];
    mfi_problem *own = mfi_problem_copy(t->part[part]);
    *out = own;
    if (!own)
        return MFI_NO_MEMORY(sizeof *own);
    if (own->shape[0] != p->shape[0])
        split_batch(own, p->shape[0]);
    own->shape[0] = items;
    for (int k = mfi_problem_views(own, view) - 1; k >= 0; k--) {
        mfi_view *v = view[k];
        int64_t size = (int64_t)mf_dtype_size(v->dtype);
        if (v->slot >= 0) /* from any item on; own slots begin where elements may */
            v->alignment = mfi_together_own(t, v->slot) >= 0 ? alignment_at_most((int32_t)(size > 8 ? 8 : size), size)
                                                             : alignment_at_most(v->alignment, v->strides[0] * size);
    }
    return MF_OK;
}

/* ---- what stays inside ---- */

static int64_t buffer_bytes(const mfi_buffer *b)
{
    int64_t bytes = (int64_t)mf_dtype_size(b->dtype);
    for (int d = 0; d < b->ndim; d++)
        bytes *= b->shape[d];
    return bytes;
}

/* Every item's elements of the slot lie together, and the items one after the other. */
static mf_status lies_by_items(bool *lies, const mfi_problem *p, int slot, int64_t bytes)
{
    *lies = true;
    for (int i = 0; i < p->u.together.parts && *lies; i++) {
        mfi_view *view[MFI_MOST_VIEWS];
        mfi_problem *part;
        MF_TRY(mfi_together_items(&part, p, i, 1));
        for (int k = mfi_problem_views(part, view) - 1; k >= 0; k--)
            if (view[k]->slot == slot)
                *lies &= view[k]->strides[0] * (int64_t)mf_dtype_size(view[k]->dtype) == bytes &&
                         view[k]->offset * (int64_t)mf_dtype_size(view[k]->dtype) < bytes;
        mfi_problem_free(part);
    }
    return MF_OK;
}

static mf_status find_own(mfi_problem *p, const mfi_schedule *s)
{
    mfi_together *t = &p->u.together;
    int64_t all = 0, batch = mfi_max64(p->shape[0], 1);
    for (int slot = 0; slot < s->buffers; slot++)
        t->bytes += mfi_slot_uses(p, slot) ? buffer_bytes(&s->buffer[slot]) : 0;
    for (int slot = s->inputs + s->outputs; slot < s->buffers && t->owns < MFI_TOGETHER_OWN; slot++) {
        int64_t bytes = buffer_bytes(&s->buffer[slot]) / batch;
        int uses = mfi_slot_uses(p, slot);
        bool lies = uses > 0 && uses == mfi_schedule_uses(s, slot) && all + bytes <= MOST_OWN_BYTES;
        if (lies)
            MF_TRY(lies_by_items(&lies, p, slot, bytes));
        if (!lies)
            continue;
        t->own[t->owns].slot = (int16_t)slot;
        t->own[t->owns++].bytes = bytes;
        t->bytes -= buffer_bytes(&s->buffer[slot]);
        all += bytes;
    }
    return MF_OK;
}

/* ---- in the schedule ---- */

mf_status mfi_together_of(mfi_problem **out, const mfi_schedule *s, int first, int count)
{
    int64_t batch = 0;
    *out = NULL;
    for (int i = first; i < first + count; i++)
        if (s->step[i]->anchor == MFI_SOLVE)
            batch = mfi_problem_points(s->step[i]);
    if (batch < 2 || count > MFI_TOGETHER_PARTS)
        return MF_OK;
    for (int i = first; i < first + count; i++)
        if (!mfi_together_suits(s->step[i], batch))
            return MF_OK;
    mfi_problem *p = mfi_calloc(1, sizeof *p);
    if (!p)
        return MFI_NO_MEMORY(sizeof *p);
    p->anchor = MFI_TOGETHER;
    p->ndim = 1;
    p->shape[0] = batch;
    mf_status status = MF_OK;
    for (int i = 0; i < count && status == MF_OK; i++) {
        mfi_problem *part = p->u.together.part[i] = mfi_problem_copy(s->step[first + i]);
        status = part ? MF_OK : MFI_NO_MEMORY(sizeof *part);
        p->u.together.parts += part != NULL;
    }
    if (status == MF_OK)
        status = find_own(p, s);
    if (status == MF_OK)
        *out = p;
    else
        mfi_problem_free(p);
    return status;
}

void mfi_schedule_join_together(mfi_schedule *s, int first, int count, mfi_problem *together)
{
    for (int i = first; i < first + count; i++)
        mfi_problem_free(s->step[i]);
    s->step[first] = together;
    s->steps -= count - 1;
    memmove(s->step + first + 1, s->step + first + count, (size_t)(s->steps - first - 1) * sizeof *s->step);
}

mf_status mfi_schedule_part_together(mfi_schedule *s, int index)
{
    mfi_problem *p = s->step[index];
    mfi_together *t = &p->u.together;
    s->step[index] = t->part[0];
    t->part[0] = NULL;
    for (int i = 1; i < t->parts; i++) {
        mfi_problem *part = t->part[i];
        t->part[i] = NULL;
        mf_status status = mfi_schedule_insert(s, index + i, part);
        if (status != MF_OK) {
            mfi_problem_free(p);
            return status;
        }
    }
    mfi_problem_free(p);
    return MF_OK;
}
