/* Where a plan's temporaries lie, and which outputs may lie over an input. */
#include "plan_internal.h"
#include "schedule.h"

#include <string.h>

static void touch(mfi_schedule *s, const mfi_view *view, int step)
{
    if (view->slot < s->inputs + s->outputs)
        return;
    mfi_buffer *b = &s->buffer[view->slot];
    b->first = b->first < 0 ? step : b->first;
    b->last = step;
}

/* What is read for a transform's input; the head's store never reaches memory. */
static void touch_head(mfi_schedule *s, const mfi_problem *head, int step)
{
    if (head->anchor == MFI_FFT)
        touch(s, &head->u.fft.in, step);
    else if (head->anchor == MFI_FFT_PAIR)
        touch_head(s, head->head, step);
    for (int i = 0; i < head->chain.count; i++)
        if (head->chain.instr[i].kind == MFI_LOAD)
            touch(s, &head->chain.operand[head->chain.instr[i].operand].view, step);
}

/* Not what parts hand on to each other alone, which never reaches memory. */
static void touch_together(mfi_schedule *s, const mfi_together *t, int step)
{
    for (int i = 0; i < t->parts; i++) {
        mfi_view *view[MFI_MOST_VIEWS];
        for (int k = mfi_problem_views(t->part[i], view) - 1; k >= 0; k--)
            if (view[k]->slot >= 0 && mfi_together_own(t, view[k]->slot) < 0)
                touch(s, view[k], step);
    }
}

static void touch_step(mfi_schedule *s, const mfi_problem *p, int step)
{
    if (p->anchor == MFI_TOGETHER)
        touch_together(s, &p->u.together, step);
    for (int k = 0; k < p->chain.operands; k++)
        touch(s, &p->chain.operand[k].view, step);
    if (p->anchor == MFI_MATMUL || p->anchor == MFI_MATMUL_PAIR) {
        touch(s, &p->u.matmul.a, step);
        touch(s, &p->u.matmul.b, step);
        if (p->anchor == MFI_MATMUL_PAIR)
            touch(s, &p->head->u.matmul.b, step);
    } else if (p->anchor == MFI_FFT) {
        touch(s, &p->u.fft.in, step);
    } else if (p->anchor == MFI_FFT_PAIR) {
        touch_head(s, p->head, step);
    } else if (p->anchor == MFI_SOLVE) {
        const mfi_view *views[] = {&p->u.solve.a, &p->u.solve.b, &p->u.solve.x, &p->u.solve.info};
        for (size_t k = 0; k < MFI_COUNT(views); k++)
            if (views[k]->slot >= 0)
                touch(s, views[k], step);
    } else if (p->anchor == MFI_FACTOR) {
        const mfi_factor *f = &p->u.factor;
        for (int k = 0; k < MFI_FACTOR_INPUTS + MFI_FACTOR_RESULTS; k++) {
            const mfi_factor_operand *o = k < MFI_FACTOR_INPUTS ? &f->in[k] : &f->out[k - MFI_FACTOR_INPUTS];
            if (o->view.slot >= 0)
                touch(s, &o->view, step);
        }
    }
}

static void touch_all(mfi_schedule *s)
{
    for (int i = 0; i < s->buffers; i++)
        s->buffer[i].first = s->buffer[i].last = -1;
    for (int i = 0; i < s->steps; i++)
        touch_step(s, s->step[i], i);
}

static size_t buffer_bytes(const mfi_buffer *b)
{
    size_t bytes = mf_dtype_size(b->dtype);
    for (int d = 0; d < b->ndim; d++)
        bytes *= (size_t)b->shape[d];
    return mfi_align_up(bytes ? bytes : 1, 256);
}

/* First fit: each temporary goes to the lowest offset free during its life. */
size_t mfi_place_temporaries(struct mfi_schedule *s)
{
    size_t total = 0;
    touch_all(s);
    for (int i = s->inputs + s->outputs; i < s->buffers; i++) {
        mfi_buffer *b = &s->buffer[i];
        if (b->first < 0) /* between the halves of a pair */
            continue;
        size_t bytes = buffer_bytes(b), at = 0;
        for (bool moved = true; moved;) {
            moved = false;
            for (int j = s->inputs + s->outputs; j < i; j++) {
                const mfi_buffer *o = &s->buffer[j];
                bool together = o->first <= b->last && b->first <= o->last;
                if (together && at < o->offset + buffer_bytes(o) && o->offset < at + bytes) {
                    at = o->offset + buffer_bytes(o);
                    moved = true;
                }
            }
        }
        b->offset = at;
        if (at + bytes > total)
            total = at + bytes;
    }
    return total;
}

/* ---- what a plan keeps ---- */

/* Roots, and for lengths with a large prime factor a second table: as many bytes as the transform's values, twice. */
static size_t table_bytes(const mfi_problem *p)
{
    size_t bytes = 0;
    for (; p && (p->anchor == MFI_FFT || p->anchor == MFI_FFT_PAIR); p = p->head)
        for (int d = 0; d < p->u.fft.naxes; d++)
            bytes += (size_t)p->u.fft.n[d] * (p->u.fft.f64 ? 32 : 16);
    return bytes;
}

size_t mf_plan_memory(const mf_plan *plan)
{
    const mf_plan *current = mfi_plan_current(plan);
    size_t bytes = current->workspace;
    for (int i = 0; i < current->steps; i++)
        bytes += table_bytes(current->step[i].problem);
    return bytes;
}

size_t mfi_plan_memory_limit(const mfi_caps *caps)
{
    return (size_t)512 << (caps->cuda ? 23 : 20);
}

/* ---- in place ---- */

static bool same_place(const mfi_view *load, const mfi_view *store, int ndim, const int64_t *shape)
{
    bool same = load->offset == store->offset && load->dtype == store->dtype;
    for (int d = 0; d < ndim; d++)
        same &= load->strides[d] == store->strides[d] || shape[d] == 1;
    return same;
}

static bool map_in_place(const mfi_problem *p, int input, int inputs)
{
    bool fits = !p->nreduce;
    for (int a = 0; fits && a < p->chain.operands; a++)
        for (int b = 0; b < p->chain.operands; b++) {
            const mfi_view *load = &p->chain.operand[a].view, *store = &p->chain.operand[b].view;
            if (load->slot == input && store->slot >= inputs)
                fits &= same_place(load, store, p->ndim, p->shape);
        }
    return fits;
}

/* What a solver reads and gives. */
typedef struct matrices {
    mfi_factor_operand in[MFI_FACTOR_INPUTS], out[MFI_FACTOR_RESULTS];
} matrices;

static matrices matrices_of(const mfi_problem *p)
{
    matrices m;
    for (int k = 0; k < MFI_FACTOR_INPUTS; k++)
        m.in[k] = (mfi_factor_operand){.view.slot = -1};
    for (int k = 0; k < MFI_FACTOR_RESULTS; k++)
        m.out[k] = (mfi_factor_operand){.view.slot = -1};
    if (p->anchor == MFI_FACTOR) {
        memcpy(m.in, p->u.factor.in, sizeof m.in);
        memcpy(m.out, p->u.factor.out, sizeof m.out);
        return m;
    }
    const mfi_solve *f = &p->u.solve;
    m.in[0] = (mfi_factor_operand){.view = f->a, .rank = 2, .rows = f->n, .cols = f->n};
    m.in[1] = (mfi_factor_operand){.view = f->b, .rank = 2, .rows = f->n, .cols = f->nrhs};
    m.out[0] =
        (mfi_factor_operand){.view = f->x, .rank = 2, .rows = f->n, .cols = f->solver == MFI_CHOLESKY ? f->n : f->nrhs};
    return m;
}

/* The result that may lie where matrix `input` does: providers on the CPU read an item before they write its results. */
static int solver_in_place(const mfi_problem *p, int input)
{
    matrices m = matrices_of(p);
    int found = 0;
    for (int i = 0; i < MFI_FACTOR_INPUTS; i++) {
        const mfi_factor_operand *in = &m.in[i];
        int fits = 0;
        for (int o = 0; o < MFI_FACTOR_RESULTS && in->view.slot == input && !fits; o++) {
            const mfi_factor_operand *out = &m.out[o];
            int64_t shape[MF_MAX_DIMS + 2] = {0};
            memcpy(shape, p->shape, (size_t)p->ndim * sizeof *shape);
            shape[p->ndim] = in->rows;
            shape[p->ndim + 1] = in->cols;
            bool alike = in->rank == out->rank && in->rows == out->rows && in->cols == out->cols;
            if (out->view.slot >= 0 && alike && same_place(&in->view, &out->view, p->ndim + in->rank, shape))
                fits = out->view.slot;
        }
        if (in->view.slot == input && (!fits || (found && found != fits)))
            return 0;
        found = fits ? fits : found;
    }
    return p->chain.operands ? 0 : found;
}

/* An output may be an input's own memory if one plain map reads each element only where it writes it, or a solver on the CPU
 * each matrix. */
void mfi_plan_find_in_place(mf_plan *plan)
{
    const mfi_schedule *s = plan->schedule;
    const mfi_problem *p = s->steps == 1 ? s->step[0] : NULL;
    bool solver = p && (p->anchor == MFI_SOLVE || p->anchor == MFI_FACTOR) && !plan->caps->cuda;
    for (int i = 0; i < plan->inputs; i++)
        if (solver)
            plan->in_place[i] = solver_in_place(p, i);
        else
            plan->in_place[i] = p && p->anchor == MFI_MAP && map_in_place(p, i, plan->inputs) ? MFI_ANY_OUTPUT : 0;
}
