/* Fewer and longer dims: drop those of length 1, order them by stride, merge those that are contiguous for every view.
 */
#include "schedule.h"

#include <stdlib.h>

typedef struct views {
    int count;
    mfi_view *view[MFI_MOST_VIEWS];
} views;

int mfi_problem_views(mfi_problem *p, mfi_view *out[MFI_MOST_VIEWS])
{
    int count = 0;
    for (int i = 0; i < p->chain.operands; i++)
        out[count++] = &p->chain.operand[i].view;
    if (p->anchor == MFI_MATMUL) {
        out[count++] = &p->u.matmul.a;
        out[count++] = &p->u.matmul.b;
    } else if (p->anchor == MFI_FFT) {
        out[count++] = &p->u.fft.in;
    } else if (p->anchor == MFI_SOLVE) {
        out[count++] = &p->u.solve.a;
        out[count++] = &p->u.solve.b;
        out[count++] = &p->u.solve.x;
        out[count++] = &p->u.solve.info;
    } else if (p->anchor == MFI_FACTOR) {
        for (int i = 0; i < MFI_FACTOR_INPUTS; i++)
            out[count++] = &p->u.factor.in[i].view;
        for (int i = 0; i < MFI_FACTOR_RESULTS; i++)
            out[count++] = &p->u.factor.out[i].view;
    }
    return count;
}

static views all_views(mfi_problem *p)
{
    views v;
    v.count = mfi_problem_views(p, v.view);
    return v;
}

static void drop(int64_t *array, int d)
{
    memmove(array + d, array + d + 1, sizeof *array * (size_t)(MF_MAX_DIMS - 1 - d));
    array[MF_MAX_DIMS - 1] = 0;
}

/* The position along dim d is 0 where it has length 1; those of later dims move up. */
static void remove_index(mfi_chain *chain, int d)
{
    for (int i = 0; i < chain->count; i++) {
        mfi_instr *in = &chain->instr[i];
        if (in->kind == MFI_INDEX && in->axis == d)
            in->kind = MFI_CONST;
        else if (in->kind == MFI_INDEX && in->axis > d)
            in->axis--;
    }
}

static bool indexed(const mfi_chain *chain, int d)
{
    for (int i = 0; i < chain->count; i++)
        if (chain->instr[i].kind == MFI_INDEX && chain->instr[i].axis == d)
            return true;
    return false;
}

static void swap_index(mfi_chain *chain, int d)
{
    for (int i = 0; i < chain->count; i++) {
        mfi_instr *in = &chain->instr[i];
        if (in->kind == MFI_INDEX && (in->axis == d || in->axis == d + 1))
            in->axis = (uint8_t)(2 * d + 1 - in->axis);
    }
}

static void remove_dim(mfi_problem *p, const views *v, int d)
{
    remove_index(&p->chain, d);
    for (int i = 0; i < v->count; i++)
        drop(v->view[i]->strides, d);
    for (int i = 0; i < p->chain.operands; i++) {
        drop(p->chain.operand[i].extent, d);
        p->chain.operand[i].extent[MF_MAX_DIMS - 1] = -1;
    }
    drop(p->shape, d);
    if (d >= p->ndim - p->nreduce)
        p->nreduce--;
    p->ndim--;
}

static void swap(int64_t *array, int d)
{
    int64_t t = array[d];
    array[d] = array[d + 1];
    array[d + 1] = t;
}

static bool mergeable(const mfi_problem *p, const views *v, int d)
{
    if (indexed(&p->chain, d) || indexed(&p->chain, d + 1))
        return false;
    for (int i = 0; i < v->count; i++)
        if (v->view[i]->slot >= 0 && v->view[i]->strides[d] != v->view[i]->strides[d + 1] * p->shape[d + 1])
            return false;
    for (int i = 0; i < p->chain.operands; i++)
        if (p->chain.operand[i].extent[d] >= 0 || p->chain.operand[i].extent[d + 1] >= 0)
            return false;
    return true;
}

/* Dims [lo, hi) of a section; `keep` of them stay even at length 1. Returns the new hi. */
static int collapse_section(mfi_problem *p, const views *v, int lo, int hi, int keep)
{
    for (int d = hi - 1; d >= lo; d--)
        if (p->shape[d] == 1 && hi - lo > keep) {
            remove_dim(p, v, d);
            hi--;
        }
    for (int d = hi - 2; d >= lo; d--)
        if (hi - lo > keep && mergeable(p, v, d)) {
            p->shape[d + 1] *= p->shape[d];
            remove_dim(p, v, d);
            hi--;
        }
    return hi;
}

/* Longest stride of `lead` first, so that memory is walked in order. */
static void sort_section(mfi_problem *p, const views *v, const mfi_view *lead, int lo, int hi)
{
    for (int pass = lo; pass < hi; pass++)
        for (int d = lo; d + 1 < hi; d++) {
            if (llabs(lead->strides[d]) >= llabs(lead->strides[d + 1]) || p->shape[d] == 1 || p->shape[d + 1] == 1)
                continue;
            for (int i = 0; i < v->count; i++)
                swap(v->view[i]->strides, d);
            for (int i = 0; i < p->chain.operands; i++)
                swap(p->chain.operand[i].extent, d);
            swap(p->shape, d);
            swap_index(&p->chain, d);
        }
}

static const mfi_view *first_operand(const mfi_problem *p, mfi_instr_kind kind)
{
    for (int i = 0; i < p->chain.count; i++)
        if (p->chain.instr[i].kind == kind)
            return &p->chain.operand[p->chain.instr[i].operand].view;
    return NULL;
}

/* (batch, m, k) by one (k, n) is one product of batch*m rows. */
static void fold_batch(mfi_problem *p, const views *v)
{
    mfi_matmul *mm = &p->u.matmul;
    if (p->ndim != 3 || mm->b.strides[0] != 0 || mm->a.strides[0] != mm->m * mm->a.strides[1] ||
        indexed(&p->chain, 0) || indexed(&p->chain, 1))
        return;
    for (int i = 0; i < p->chain.operands; i++)
        if (p->chain.operand[i].view.strides[0] != mm->m * p->chain.operand[i].view.strides[1])
            return;
    mm->m *= p->shape[0];
    p->shape[1] = mm->m;
    remove_dim(p, v, 0);
}

static void collapse_map(mfi_problem *p, const views *v)
{
    int rows = p->ndim - p->nreduce;
    const mfi_view *store = first_operand(p, MFI_STORE), *load = first_operand(p, MFI_LOAD);
    if (!p->nreduce && store)
        sort_section(p, v, store, 0, rows);
    if (p->nreduce && load)
        sort_section(p, v, load, rows, p->ndim);
    rows = collapse_section(p, v, 0, rows, 0);
    if (p->nreduce)
        collapse_section(p, v, rows, p->ndim, 1);
    if (p->ndim == 0) {
        p->ndim = 1;
        p->shape[0] = 1;
    }
}

void mfi_collapse(mfi_problem *p)
{
    views v = all_views(p);
    if (p->anchor == MFI_MAP) {
        collapse_map(p, &v);
    } else if (p->anchor == MFI_MATMUL) {
        collapse_section(p, &v, 0, p->ndim - 2, 0);
        fold_batch(p, &v);
    } else if (p->anchor == MFI_FFT) {
        collapse_section(p, &v, 0, p->ndim - p->u.fft.naxes, 0);
    } else {
        collapse_section(p, &v, 0, p->ndim, 0);
    }
}
