/* Write each group of a partition as a problem: buffers, views over the domain, instructions. */
#include "lower.h"

/* ---- buffers ---- */

static int pointer_alignment(const void *data, int64_t offset_bytes)
{
    uintptr_t address = (uintptr_t)data + (uintptr_t)offset_bytes;
    int alignment = 16;
    while (alignment > 1 && address % (uintptr_t)alignment)
        alignment /= 2;
    return alignment;
}

static void bound_buffer(mfi_buffer *b, const mf_tensor *t, mfi_buffer_kind kind)
{
    *b = (mfi_buffer){.kind = kind, .dtype = t->dtype, .ndim = t->ndim};
    b->alignment = pointer_alignment(t->data, 0);
    memcpy(b->shape, t->shape, sizeof b->shape);
    memcpy(b->strides, t->strides, sizeof b->strides);
}

/* An output that is bound with reordered axes, described with the axes of the node that is stored in it. */
static void own_axes(const mf_graph *g, int view, mfi_buffer *b)
{
    int base = mfi_view_base(g, view);
    int64_t strides[MF_MAX_DIMS] = {0};
    if (!mfi_view_store(g, view, b->strides, strides))
        return; /* normalise.c made a copy of every such output */
    b->ndim = g->node[base].ndim;
    memcpy(b->shape, g->node[base].shape, sizeof b->shape);
    memcpy(b->strides, strides, sizeof b->strides);
}

/* Give every value that is read from memory its slot: the output it is, or a temporary. */
static mf_status assign_slots(lowering *l)
{
    for (int i = 0; i < l->s->inputs + l->s->outputs; i++)
        bound_buffer(&l->s->buffer[i], &l->bindings[i], i < l->s->inputs ? MFI_BUF_INPUT : MFI_BUF_OUTPUT);
    for (int o = 0; o < l->s->outputs; o++)
        own_axes(l->g, l->g->stored_as[o], &l->s->buffer[l->s->inputs + o]);
    for (int i = 0; i < l->g->count; i++) {
        const mfi_node *n = &l->g->node[i];
        const mfi_value *v = &l->p->value[i];
        l->rounded[i] = n->kind == MFI_N_INPUT ? n->u.input : -1;
        l->wide[i] = -1;
        for (int o = l->s->outputs - 1; o >= 0; o--)
            if (l->g->output[o] == i)
                l->rounded[i] = l->s->inputs + o;
        if (v->rounded && l->rounded[i] < 0) {
            l->rounded[i] = mfi_schedule_temp(l->s, n->dtype, n->ndim, n->shape);
            MF_REQUIRE(l->rounded[i] >= 0, MF_E_MEMORY, "out of memory for the plan's buffers");
        }
        if (v->wide) {
            mf_dtype dtype = mfi_ctype_dtype(mfi_compute_type(n->dtype));
            l->wide[i] = mfi_schedule_temp(l->s, dtype, n->ndim, n->shape);
            MF_REQUIRE(l->wide[i] >= 0, MF_E_MEMORY, "out of memory for the plan's buffers");
        }
    }
    return MF_OK;
}

void mfi_lower_view(lowering *l, int node, bool rounded, mfi_view *view)
{
    int base = mfi_view_base(l->g, node);
    int slot = !rounded && l->wide[base] >= 0 ? l->wide[base] : l->rounded[base];
    const mfi_buffer *b = &l->s->buffer[slot];
    *view = (mfi_view){.slot = (int16_t)slot, .dtype = b->dtype, .alignment = b->alignment};
    if (!mfi_view_resolve(l->g, node, b->strides, &view->offset, view->strides))
        l->failed = 1; /* normalise.c put a copy below every such view */
    int64_t bytes = view->offset * (int64_t)mf_dtype_size(b->dtype);
    while (view->alignment > 1 && bytes % view->alignment)
        view->alignment /= 2;
}

/* ---- instructions ---- */

static int16_t emit(lowering *l, mfi_instr in)
{
    mfi_chain *c = &l->problem->chain;
    if (c->count == MFI_MAX_INSTR) {
        l->failed = 1;
        return 0;
    }
    c->instr[c->count] = in;
    return (int16_t)c->count++;
}

static bool same_operand(const mfi_operand *a, const mfi_operand *b)
{
    return a->view.slot == b->view.slot && a->view.dtype == b->view.dtype && a->view.alignment == b->view.alignment &&
           a->view.offset == b->view.offset && !memcmp(a->view.strides, b->view.strides, sizeof a->view.strides) &&
           !memcmp(a->extent, b->extent, sizeof a->extent);
}

static int16_t add_operand(lowering *l, const mfi_operand *operand)
{
    mfi_chain *c = &l->problem->chain;
    for (int i = 0; i < c->operands; i++)
        if (same_operand(&c->operand[i], operand))
            return (int16_t)i;
    if (c->operands == MFI_MAX_OPERANDS) {
        l->failed = 1;
        return 0;
    }
    c->operand[c->operands] = *operand;
    return (int16_t)c->operands++;
}

/* A view over `axes` of the domain: node axis d lies along problem axis axes[d]; -1: length 1 or repeated. */
static mfi_operand domain_operand(const mfi_view *own, int ndim, const int64_t *shape, const int8_t *axes)
{
    mfi_operand o;
    memset(&o, 0, sizeof o); /* operands are compared as bytes */
    o.view.slot = own->slot;
    o.view.dtype = own->dtype;
    o.view.alignment = own->alignment;
    o.view.offset = own->offset;
    for (int d = 0; d < MF_MAX_DIMS; d++)
        o.extent[d] = -1;
    for (int d = 0; d < ndim; d++)
        if (axes[d] >= 0 && shape[d] != 1)
            o.view.strides[axes[d]] = own->strides[d];
    return o;
}

static const mfi_instr INSTR = {.operand = -1, .a = -1, .b = -1, .c = -1, .op = -1};

static int16_t emit_load(lowering *l, int node, const int8_t *axes, int level)
{
    const mfi_node *n = &l->g->node[node];
    mfi_view own;
    mfi_lower_view(l, node, false, &own);
    mfi_operand operand = domain_operand(&own, n->ndim, n->shape, axes);
    mfi_instr in = INSTR;
    in.kind = MFI_LOAD;
    in.ctype = (uint8_t)mfi_compute_type(own.dtype);
    in.operand = add_operand(l, &operand);
    in.level = (uint8_t)level;
    for (int i = 0; i < l->problem->chain.count; i++) {
        const mfi_instr *old = &l->problem->chain.instr[i];
        if (old->kind == MFI_LOAD && old->operand == in.operand && old->level == in.level)
            return (int16_t)i;
    }
    return emit(l, in);
}

static int16_t emit_constant(lowering *l, const mfi_node *n, mfi_ctype ctype)
{
    mfi_instr in = INSTR;
    in.kind = MFI_CONST;
    in.ctype = (uint8_t)ctype;
    in.re = n->u.constant.re;
    in.im = n->u.constant.im;
    return emit(l, in);
}

static int16_t emit_cast(lowering *l, int16_t a, mf_dtype dtype, bool saturate)
{
    mfi_instr in = INSTR;
    in.kind = MFI_CAST;
    in.a = a;
    in.from = l->problem->chain.instr[a].ctype;
    in.ctype = (uint8_t)mfi_compute_type(dtype);
    in.dtype = (uint8_t)dtype;
    in.saturate = saturate;
    in.level = l->problem->chain.instr[a].level;
    return emit(l, in);
}

static int16_t to_ctype(lowering *l, int16_t a, mfi_ctype ctype)
{
    return l->problem->chain.instr[a].ctype == ctype ? a : emit_cast(l, a, mfi_ctype_dtype(ctype), false);
}

/* The node below views that stay inside the group. */
static int group_base(const lowering *l, int node)
{
    int base = mfi_view_base(l->g, node);
    if (l->value[base] < 0)
        return -1;
    for (int v = node; v != base; v = l->g->node[v].src[0])
        if (!mfi_view_is_unit(l->g, v))
            return -1;
    return base;
}

/* Operand i of node n as an instruction. `axes`: n's axes in the problem. */
static int16_t operand(lowering *l, const mfi_node *n, int i, const int8_t *axes, mfi_ctype want, int level)
{
    int src = n->src[i], base = mfi_view_base(l->g, src);
    if (l->g->node[base].kind == MFI_N_CONST)
        return emit_constant(l, &l->g->node[base], want);
    if (l->g->node[base].kind == MFI_N_ARANGE) {
        int16_t v = mfi_lower_arange(&l->problem->chain, l->g, src, axes + n->ndim - l->g->node[src].ndim, level);
        l->failed |= v < 0;
        return v < 0 ? 0 : v;
    }
    int inside = group_base(l, src);
    if (inside >= 0)
        return l->value[inside];
    const mfi_node *x = &l->g->node[src];
    int8_t own[MF_MAX_DIMS];
    for (int d = 0; d < x->ndim; d++)
        own[d] = axes[d + n->ndim - x->ndim];
    return emit_load(l, src, own, level);
}

/* Axes of a node of this group in the problem. */
static void problem_axes(const lowering *l, int node, int8_t *axes)
{
    const mfi_value *v = &l->p->value[node];
    for (int d = 0; d < MF_MAX_DIMS; d++)
        axes[d] = (int8_t)(v->map[d] < 0 ? -1 : l->axis[v->map[d]]);
}

/* A value of the rows, not of the points: its phase; else 0. */
static int level_of(const lowering *l, int node)
{
    const mfi_value *v = &l->p->value[node];
    const mfi_node *n = &l->g->node[node];
    for (int d = 0; d < n->ndim; d++)
        if (v->map[d] >= 0 && (l->group->reduced & 1u << v->map[d]))
            return 0;
    return v->phase;
}

static int16_t lower_apply(lowering *l, int node)
{
    const mfi_node *n = &l->g->node[node];
    int8_t axes[MF_MAX_DIMS];
    problem_axes(l, node, axes);
    int level = level_of(l, node);
    mfi_ctype want = mfi_compute_type(n->operand_dtype);
    mfi_instr in = INSTR;
    in.kind = MFI_APPLY;
    in.op = (int16_t)n->u.op;
    in.from = (uint8_t)want;
    in.ctype = (uint8_t)mfi_compute_type(n->dtype);
    in.level = (uint8_t)level;
    int16_t *slots[3] = {&in.a, &in.b, &in.c};
    for (int i = 0; i < n->sources; i++) {
        bool condition = n->u.op == MF_OP_WHERE && i == 0;
        int16_t v = operand(l, n, i, axes, condition ? MFI_I32 : want, level);
        if (condition && l->g->node[n->src[0]].dtype != MF_BOOL)
            *slots[i] = emit_cast(l, v, MF_BOOL, false);
        else
            *slots[i] = condition ? v : to_ctype(l, v, want);
    }
    int16_t result = emit(l, in);
    bool arithmetic_on_bool = n->dtype == MF_BOOL && n->operand_dtype == MF_BOOL;
    return arithmetic_on_bool ? emit_cast(l, result, MF_BOOL, false) : result; /* 1 + 1 is true */
}

static int16_t lower_node(lowering *l, int node)
{
    const mfi_node *n = &l->g->node[node];
    int8_t axes[MF_MAX_DIMS];
    problem_axes(l, node, axes);
    mfi_instr in = INSTR;
    if (n->kind == MFI_N_APPLY)
        return lower_apply(l, node);
    if (n->kind == MFI_N_CAST) {
        int16_t a = operand(l, n, 0, axes, mfi_compute_type(n->dtype), level_of(l, node));
        bool same =
            l->g->node[n->src[0]].dtype == n->dtype && mfi_node_exact(&l->g->node[mfi_view_base(l->g, n->src[0])]);
        return same ? a : emit_cast(l, a, n->dtype, n->u.cast.saturate);
    }
    if (n->kind == MFI_N_REDUCE) {
        /* the source's axes: those of its own group, or the domain's if it is read from memory */
        const mfi_node *x = &l->g->node[n->src[0]];
        int8_t own[MF_MAX_DIMS];
        for (int d = 0; d < MF_MAX_DIMS; d++)
            own[d] = (int8_t)(d < x->ndim && d < l->group->ndim ? l->axis[d] : -1);
        mfi_node as_source = *n;
        as_source.ndim = x->ndim;
        bool any = n->u.reduce.op == MF_ANY || n->u.reduce.op == MF_ALL;
        int16_t a = operand(l, &as_source, 0, own, mfi_compute_type(x->dtype), 0);
        in.kind = MFI_REDUCE;
        in.ctype = in.from = (uint8_t)mfi_compute_type(n->dtype);
        in.a = any && x->dtype != MF_BOOL ? emit_cast(l, a, MF_BOOL, false) : to_ctype(l, a, (mfi_ctype)in.ctype);
        in.reduce = (uint8_t)n->u.reduce.op;
        in.level = (uint8_t)l->p->value[node].phase;
        return emit(l, in);
    }
    in.kind = MFI_ACC;
    in.ctype = (uint8_t)mfi_compute_type(n->dtype);
    int16_t acc = emit(l, in);
    return n->dtype == MF_BOOL ? emit_cast(l, acc, MF_BOOL, false) : acc; /* how often is not asked */
}

static void store_into(lowering *l, int node, int slot)
{
    const mfi_node *n = &l->g->node[node];
    const mfi_buffer *b = &l->s->buffer[slot];
    mfi_view own = {.slot = (int16_t)slot, .dtype = b->dtype, .alignment = b->alignment};
    memcpy(own.strides, b->strides, sizeof own.strides);
    int8_t axes[MF_MAX_DIMS];
    problem_axes(l, node, axes);
    mfi_operand o = domain_operand(&own, n->ndim, n->shape, axes);
    mfi_instr in = INSTR;
    in.kind = MFI_STORE;
    in.a = l->value[node];
    in.ctype = l->problem->chain.instr[in.a].ctype;
    in.operand = add_operand(l, &o);
    in.level = (uint8_t)level_of(l, node);
    in.saturate = n->kind == MFI_N_CAST && n->u.cast.saturate;
    emit(l, in);
}

static void store(lowering *l, int node)
{
    if (l->wide[node] >= 0)
        store_into(l, node, l->wide[node]);
    if (l->rounded[node] >= 0)
        store_into(l, node, l->rounded[node]);
    for (int o = 0; o < l->s->outputs; o++)
        if (l->g->output[o] == node && l->s->inputs + o != l->rounded[node])
            store_into(l, node, l->s->inputs + o);
}

/* ---- anchors ---- */

static void lower_matmul(lowering *l, const mfi_node *n)
{
    mfi_matmul *mm = &l->problem->u.matmul;
    mfi_view *views[2] = {&mm->a, &mm->b};
    for (int i = 0; i < 2; i++) {
        const mfi_node *x = &l->g->node[n->src[i]];
        mfi_view own;
        mfi_lower_view(l, n->src[i], true, &own);
        *views[i] = own;
        memset(views[i]->strides, 0, sizeof own.strides);
        for (int d = 0; d < x->ndim; d++) {
            bool matrix = d >= x->ndim - 2;
            if (matrix || x->shape[d] != 1)
                views[i]->strides[d + n->ndim - x->ndim] = own.strides[d];
        }
    }
    const mfi_node *a = &l->g->node[n->src[0]];
    mm->m = n->shape[n->ndim - 2];
    mm->n = n->shape[n->ndim - 1];
    mm->k = a->shape[a->ndim - 1];
    mm->acc = mfi_compute_type(n->dtype);
    mm->compute = n->u.compute;
}

static double fft_scale(const mfi_node *n)
{
    double total = 1;
    for (int i = 0; i < n->u.fft.count; i++)
        total *= (double)n->u.fft.n[i];
    bool forward = n->u.fft.kind == MF_FFT || n->u.fft.kind == MF_RFFT;
    if (n->u.fft.norm == MF_NORM_ORTHO)
        return 1 / __builtin_sqrt(total);
    return forward == (n->u.fft.norm == MF_NORM_FORWARD) ? 1 / total : 1;
}

static void lower_fft(lowering *l, const mfi_node *n)
{
    mfi_fft *f = &l->problem->u.fft;
    const mfi_node *x = &l->g->node[n->src[0]];
    mfi_view own;
    mfi_lower_view(l, n->src[0], true, &own);
    f->in = own;
    memset(f->in.strides, 0, sizeof own.strides);
    for (int d = 0; d < n->ndim; d++)
        f->in.strides[l->axis[d]] = own.strides[d];
    f->kind = n->u.fft.kind;
    f->naxes = n->u.fft.count;
    f->f64 = mf_dtype_to_real(n->dtype) == MF_F64;
    f->scale = fft_scale(n);
    for (int i = 0; i < f->naxes; i++) {
        int axis = n->u.fft.axes[i];
        f->n[i] = n->u.fft.n[i];
        f->in_shape[i] = i == f->naxes - 1 && f->kind == MF_IRFFT ? f->n[i] / 2 + 1 : f->n[i];
        f->in_extent[i] = mfi_min64(x->shape[axis], f->in_shape[i]);
    }
}

/* ---- groups ---- */

/* Order of the problem's axes: transform axes last, reduced axes last. */
static void choose_axes(lowering *l, const mfi_node *anchor)
{
    const mfi_group *group = l->group;
    mfi_problem *p = l->problem;
    uint32_t last = group->phases ? group->reduced : 0;
    p->ndim = 0;
    if (anchor && anchor->kind == MFI_N_FFT)
        for (int i = 0; i < anchor->u.fft.count; i++)
            last |= 1u << anchor->u.fft.axes[i];
    for (int d = 0; d < group->ndim; d++)
        if (!(last & 1u << d)) {
            l->axis[d] = (int8_t)p->ndim;
            p->shape[p->ndim++] = group->shape[d];
        }
    if (anchor && anchor->kind == MFI_N_FFT) {
        for (int i = 0; i < anchor->u.fft.count; i++) {
            int d = anchor->u.fft.axes[i];
            l->axis[d] = (int8_t)p->ndim;
            p->shape[p->ndim++] = group->shape[d];
        }
        return;
    }
    for (int d = 0; d < group->ndim; d++)
        if (last & 1u << d) {
            l->axis[d] = (int8_t)p->ndim;
            p->shape[p->ndim++] = group->shape[d];
            p->nreduce++;
        }
    if (group->phases && !p->nreduce) { /* reductions over axes of length 1 only */
        p->shape[p->ndim++] = 1;
        p->nreduce = 1;
    }
}

/* A product over k = 0 is zero: the chain runs as a map. */
static void empty_product(mfi_problem *p)
{
    for (int i = 0; i < p->chain.count; i++)
        if (p->chain.instr[i].kind == MFI_ACC)
            p->chain.instr[i].kind = MFI_CONST;
    p->anchor = MFI_MAP;
    memset(&p->u, 0, sizeof p->u);
}

static bool nothing_to_do(const mfi_problem *p)
{
    if (p->anchor == MFI_SOLVE && p->u.solve.info.slot < 0 && (p->u.solve.n == 0 || p->u.solve.nrhs == 0) &&
        p->u.solve.solver != MFI_CHOLESKY)
        return true;
    return (p->nreduce ? mfi_problem_rows(p) : mfi_problem_points(p)) == 0;
}

static void lower_anchor(lowering *l, const mfi_node *anchor)
{
    mfi_problem *p = l->problem;
    if (p->anchor == MFI_MATMUL) {
        lower_matmul(l, anchor);
        if (p->u.matmul.k == 0)
            empty_product(p);
    } else if (p->anchor == MFI_FFT) {
        lower_fft(l, anchor);
    } else if (p->anchor == MFI_SOLVE) {
        mfi_lower_solve(l, l->group->anchor_node);
    } else if (p->anchor == MFI_FACTOR) {
        mfi_lower_factor(l, l->group->anchor_node);
    }
}

static mf_status lower_group(lowering *l, int index)
{
    l->group = &l->p->group[index];
    const mfi_node *anchor = l->group->anchor_node < 0 ? NULL : &l->g->node[l->group->anchor_node];
    l->problem = mfi_calloc(1, sizeof *l->problem);
    if (!l->problem)
        return MFI_NO_MEMORY(sizeof *l->problem);
    l->problem->anchor = l->group->anchor;
    for (int i = 0; i < l->g->count; i++)
        l->value[i] = -1;
    choose_axes(l, anchor);
    bool chained = l->group->anchor < MFI_SOLVE; /* solvers have no chain */
    if (anchor && chained)
        l->value[l->group->anchor_node] = lower_node(l, l->group->anchor_node);
    for (int i = 0; i < l->group->nodes && chained; i++)
        if (l->group->node[i] != l->group->anchor_node)
            l->value[l->group->node[i]] = lower_node(l, l->group->node[i]);
    for (int i = 0; i < l->group->nodes && chained; i++)
        store(l, l->group->node[i]);
    l->problem->chain.phases = l->group->phases;
    if (anchor)
        lower_anchor(l, anchor);
    if (l->failed || nothing_to_do(l->problem) || (l->problem->anchor == MFI_MAP && l->problem->chain.count == 0)) {
        mf_free(l->problem);
        return l->failed ? mfi_fail(MF_E_UNSUPPORTED, "a step has more than %d instructions or %d operands",
                                    MFI_MAX_INSTR, MFI_MAX_OPERANDS)
                         : MF_OK;
    }
    mfi_collapse(l->problem);
    return mfi_schedule_insert(l->s, l->s->steps, l->problem);
}

mf_status mfi_lower(mfi_schedule *s, const mfi_partition *p, const mf_tensor *bindings, int flags)
{
    lowering l = {.s = s, .p = p, .g = p->g, .bindings = bindings, .flags = flags};
    size_t count = (size_t)p->g->count;
    l.rounded = mfi_alloc(count * sizeof *l.rounded);
    l.wide = mfi_alloc(count * sizeof *l.wide);
    l.value = mfi_alloc(count * sizeof *l.value);
    mf_status status = l.rounded && l.wide && l.value ? assign_slots(&l) : MFI_NO_MEMORY(count);
    for (int i = 0; status == MF_OK && i < p->ordered; i++)
        status = lower_group(&l, p->order[i]);
    mf_free(l.rounded);
    mf_free(l.wide);
    mf_free(l.value);
    return status;
}
