/* Solvers and decompositions as problems: views of matrices behind a domain of batch dims. */
#include "lower.h"

static void matrix_operand(lowering *l, int node, int batch, mfi_view *out, bool vector)
{
    const mfi_node *x = &l->g->node[node];
    mfi_view own;
    mfi_lower_view(l, node, true, &own);
    *out = own;
    memset(out->strides, 0, sizeof own.strides);
    int matrix = vector ? 1 : 2, leading = x->ndim - matrix;
    for (int d = 0; d < leading; d++)
        if (x->shape[d] != 1)
            out->strides[d + batch - leading] = own.strides[d];
    for (int d = 0; d < matrix; d++)
        out->strides[batch + d] = own.strides[leading + d];
}

static mfi_view result_view(lowering *l, int node, int batch, bool vector)
{
    mfi_view none = {.slot = -1};
    if (node < 0 || l->rounded[node] < 0)
        return none;
    mfi_view view;
    matrix_operand(l, node, batch, &view, vector);
    return view;
}

void mfi_zero_map(mfi_problem *p, const mfi_view *view)
{
    static const mfi_instr nothing = {.operand = -1, .a = -1, .b = -1, .c = -1, .op = -1};
    p->anchor = MFI_MAP;
    p->chain = (mfi_chain){.count = 2, .operands = 1};
    p->chain.instr[0] = p->chain.instr[1] = nothing;
    p->chain.instr[0].kind = MFI_CONST;
    p->chain.instr[1].kind = MFI_STORE;
    p->chain.instr[0].ctype = p->chain.instr[1].ctype = (uint8_t)mfi_compute_type(view->dtype);
    p->chain.instr[1].a = p->chain.instr[1].operand = 0;
    p->chain.operand[0].view = *view;
    for (int d = 0; d < MF_MAX_DIMS; d++)
        p->chain.operand[0].extent[d] = -1;
}

/* Matrices without elements: results are empty and info is 0. */
static void empty_solve(mfi_problem *p)
{
    mfi_view info = p->u.solve.info;
    memset(&p->u, 0, sizeof p->u);
    p->anchor = MFI_MAP;
    p->chain = (mfi_chain){0};
    if (info.slot >= 0)
        mfi_zero_map(p, &info);
}

void mfi_lower_solve(lowering *l, int node)
{
    const mfi_node *n = &l->g->node[node], *a = &l->g->node[n->src[0]];
    mfi_solve *s = &l->problem->u.solve;
    bool vector = n->u.solve.vector, rhs = n->sources == 2;
    int batch = n->ndim - (vector ? 1 : 2), info = -1;
    for (int i = 0; i < l->g->count; i++)
        if (l->g->node[i].kind == MFI_N_RESULT && l->g->node[i].src[0] == node && l->rounded[i] >= 0)
            info = i;
    s->solver = n->u.solve.solver;
    s->flags = n->u.solve.flags;
    s->n = a->shape[a->ndim - 1];
    s->nrhs = !rhs ? 0 : vector ? 1 : n->shape[n->ndim - 1];
    s->ctype = mfi_compute_type(n->dtype);
    s->b.slot = -1;
    matrix_operand(l, n->src[0], batch, &s->a, false);
    if (rhs)
        matrix_operand(l, n->src[1], batch, &s->b, vector);
    s->x = result_view(l, node, batch, vector);
    s->info = (mfi_view){.slot = -1};
    if (info >= 0) {
        mfi_lower_view(l, info, true, &s->info);
        for (int d = l->g->node[info].ndim; d < MF_MAX_DIMS; d++)
            s->info.strides[d] = 0;
    }
    l->problem->ndim = batch;
    memcpy(l->problem->shape, n->shape, (size_t)batch * sizeof *n->shape);
    l->problem->chain = (mfi_chain){0};
    if (s->n == 0 || (rhs && s->nrhs == 0))
        empty_solve(l->problem);
}

/* `rank` matrix axes of a stored node behind the batch's. */
static void factor_operand(lowering *l, int node, int batch, int rank, mfi_factor_operand *out)
{
    const mfi_node *x = &l->g->node[node];
    mfi_view own;
    int leading = x->ndim - rank;
    mfi_lower_view(l, node, true, &own);
    out->view = own;
    memset(out->view.strides, 0, sizeof own.strides);
    for (int d = 0; d < leading; d++)
        if (x->shape[d] != 1)
            out->view.strides[d + batch - leading] = own.strides[d];
    for (int d = 0; d < rank; d++)
        out->view.strides[batch + d] = own.strides[leading + d];
    out->rank = rank;
    out->rows = rank > 0 ? x->shape[leading] : 1;
    out->cols = rank > 1 ? x->shape[leading + 1] : 1;
}

/* The node that is result `index` of `node` and is stored; -1: none. */
static int stored_result(const lowering *l, int node, int index)
{
    if (index == 0)
        return l->rounded[node] >= 0 ? node : -1;
    for (int i = 0; i < l->g->count; i++) {
        const mfi_node *r = &l->g->node[i];
        if (r->kind == MFI_N_RESULT && r->src[0] == node && r->u.result == index && l->rounded[i] >= 0)
            return i;
    }
    return -1;
}

void mfi_lower_factor(lowering *l, int node)
{
    const mfi_node *n = &l->g->node[node], *a = &l->g->node[n->src[0]];
    mfi_factor *f = &l->problem->u.factor;
    mfi_factor_shape shape;
    int batch = mfi_factor_batch(l->g, node), last = n->sources - 1;
    f->kind = n->u.factor.kind;
    f->flags = n->u.factor.flags;
    f->rcond = n->u.factor.rcond;
    f->m = a->shape[a->ndim - 2];
    f->n = a->shape[a->ndim - 1];
    f->ctype = mfi_compute_type(n->operand_dtype);
    for (int i = 0; i < MFI_FACTOR_INPUTS; i++) {
        bool vector = (i == last && n->u.factor.vector) || (i == 1 && f->kind == MFI_LU_APPLY);
        f->in[i].view.slot = -1;
        if (i < n->sources)
            factor_operand(l, n->src[i], batch, vector ? 1 : 2, &f->in[i]);
    }
    f->nrhs = last > 0 ? f->in[last].cols : 0;
    for (int i = 0; i < MFI_FACTOR_RESULTS; i++) {
        int stored = stored_result(l, node, i);
        f->out[i].view.slot = -1;
        if (stored >= 0 && mfi_factor_result(l->g, node, i, &shape))
            factor_operand(l, stored, batch, shape.rank, &f->out[i]);
    }
    l->problem->ndim = batch;
    memcpy(l->problem->shape, n->shape, (size_t)batch * sizeof *n->shape);
    l->problem->chain = (mfi_chain){0};
}
