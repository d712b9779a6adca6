/* Clean a graph before partitioning: dead nodes out, copies where a reshape needs one, outputs computed, roundings as
 * casts. */
#include "schedule.h"

int mfi_view_base(const mf_graph *g, int node)
{
    while (g->node[node].kind == MFI_N_VIEW)
        node = g->node[node].src[0];
    return node;
}

bool mfi_node_has_no_memory(const mfi_node *node)
{
    return node->kind == MFI_N_CONST || node->kind == MFI_N_ARANGE;
}

bool mfi_node_exact(const mfi_node *node)
{
    if (node->kind == MFI_N_INPUT || node->kind == MFI_N_CAST || node->kind == MFI_N_CONST)
        return true;
    return mf_dtype_size(node->dtype) >= 4 || mfi_is_integer(node->dtype);
}

bool mfi_view_is_unit(const mf_graph *g, int node)
{
    const mfi_node *v = &g->node[node], *s = &g->node[v->src[0]];
    if (v->u.view.kind == MFI_V_BROADCAST)
        return true;
    if (v->u.view.kind != MFI_V_RESHAPE)
        return false;
    int i = 0, j = 0; /* the extents other than 1 must be the same */
    for (;;) {
        while (i < v->ndim && v->shape[i] == 1)
            i++;
        while (j < s->ndim && s->shape[j] == 1)
            j++;
        if (i == v->ndim || j == s->ndim)
            return i == v->ndim && j == s->ndim;
        if (v->shape[i++] != s->shape[j++])
            return false;
    }
}

/* Strides of a reshaped array without moving it; false if there are none. Runs of axes on both sides with equal
 * products are matched; each old run must be contiguous in itself. */
static bool reshape_strides(const mfi_node *from, const int64_t *old, const mfi_node *to, int64_t *strides)
{
    int64_t shape[MF_MAX_DIMS], step[MF_MAX_DIMS];
    int n = 0;
    for (int d = 0; d < from->ndim; d++)
        if (from->shape[d] != 1) {
            shape[n] = from->shape[d];
            step[n++] = old[d];
        }
    int i = 0, j = 0;
    while (i < n && j < to->ndim) {
        int64_t left = shape[i], right = to->shape[j];
        int i1 = i + 1, j1 = j + 1;
        while (left != right) {
            if (left < right && i1 < n)
                left *= shape[i1++];
            else if (left > right && j1 < to->ndim)
                right *= to->shape[j1++];
            else
                return false;
        }
        for (int k = i; k + 1 < i1; k++)
            if (step[k] != step[k + 1] * shape[k + 1])
                return false;
        strides[j1 - 1] = step[i1 - 1];
        for (int k = j1 - 1; k > j; k--)
            strides[k - 1] = strides[k] * to->shape[k];
        i = i1;
        j = j1;
    }
    for (; j < to->ndim; j++)
        strides[j] = 0;
    return i == n;
}

static bool is_empty(const mfi_node *n)
{
    bool empty = false;
    for (int d = 0; d < n->ndim; d++)
        empty |= n->shape[d] == 0;
    return empty;
}

static bool apply_view(const mf_graph *g, const mfi_node *v, int64_t *offset, int64_t *strides)
{
    const mfi_node *s = &g->node[v->src[0]];
    int64_t old[MF_MAX_DIMS];
    memcpy(old, strides, sizeof old);
    switch (v->u.view.kind) {
    case MFI_V_PERMUTE:
        for (int d = 0; d < v->ndim; d++)
            strides[d] = old[v->u.view.permutation[d]];
        return true;
    case MFI_V_SLICE:
        for (int d = 0; d < v->ndim; d++) {
            *offset += old[d] * v->u.view.start[d];
            strides[d] = old[d] * v->u.view.step[d];
        }
        return true;
    case MFI_V_BROADCAST:
        for (int d = 0; d < v->ndim; d++) {
            int from = d - (v->ndim - s->ndim);
            strides[d] = from < 0 || s->shape[from] == 1 ? 0 : old[from];
        }
        return true;
    default:
        if (is_empty(s)) { /* nothing is there to be read */
            memset(strides, 0, sizeof old);
            return true;
        }
        return reshape_strides(s, old, v, strides);
    }
}

bool mfi_view_resolve(const mf_graph *g, int node, const int64_t *base_strides, int64_t *offset, int64_t *strides)
{
    const mfi_node *v = &g->node[node];
    if (v->kind != MFI_N_VIEW) {
        *offset = 0;
        memcpy(strides, base_strides, (size_t)v->ndim * sizeof *strides);
        return true;
    }
    return mfi_view_resolve(g, v->src[0], base_strides, offset, strides) && apply_view(g, v, offset, strides);
}

bool mfi_view_store(const mf_graph *g, int node, const int64_t *bound, int64_t *strides)
{
    int64_t old[MF_MAX_DIMS];
    memcpy(strides, bound, (size_t)g->node[node].ndim * sizeof *strides);
    for (; g->node[node].kind == MFI_N_VIEW; node = g->node[node].src[0]) {
        const mfi_node *v = &g->node[node], *s = &g->node[v->src[0]];
        memcpy(old, strides, sizeof old);
        if (v->u.view.kind == MFI_V_PERMUTE)
            for (int d = 0; d < v->ndim; d++)
                strides[v->u.view.permutation[d]] = old[d];
        else if (v->u.view.kind != MFI_V_RESHAPE || is_empty(v) || !reshape_strides(v, old, s, strides))
            return false;
    }
    return true;
}

/* ---- the pass ---- */

typedef struct pass {
    const mf_graph *old;
    mf_graph *g;
    int32_t *id;               /* old node → new node */
    const mf_tensor *bindings; /* of inputs, then outputs */
    int32_t *first_output;     /* new node → output that will hold it, -1; indexed by old node */
    int flags;
} pass;

static void contiguous(const mfi_node *n, int64_t *strides)
{
    int64_t step = 1;
    for (int d = n->ndim - 1; d >= 0; d--) {
        strides[d] = step;
        step *= mfi_max64(1, n->shape[d]);
    }
}

static int32_t copy_of(pass *p, int32_t node)
{
    return mf_graph_cast(p->g, (mf_node){node}, p->g->node[node].dtype, 0).id;
}

/* Can the new node `view` be read in place? Its base lies as the input does, as the output does, or contiguously. */
static bool readable(const pass *p, int view, int old_base)
{
    int base = mfi_view_base(p->g, view);
    const mfi_node *b = &p->g->node[base];
    int64_t layout[MF_MAX_DIMS], offset, strides[MF_MAX_DIMS];
    contiguous(b, layout);
    if (b->kind == MFI_N_INPUT)
        memcpy(layout, p->bindings[b->u.input].strides, sizeof layout);
    else if (old_base >= 0 && p->first_output[old_base] >= 0)
        memcpy(layout, p->bindings[p->old->inputs + p->first_output[old_base]].strides, sizeof layout);
    return mfi_view_resolve(p->g, view, layout, &offset, strides);
}

/* Dtypes that are rounded at every node under MATCH_UNFUSED. */
static bool rounds(const pass *p, const mfi_node *n)
{
    bool computed = n->kind == MFI_N_APPLY || n->kind == MFI_N_REDUCE || n->kind == MFI_N_MATMUL;
    return (p->flags & MF_PLAN_MATCH_UNFUSED) && computed && !mfi_node_exact(n);
}

static mf_status visit(pass *p, int old)
{
    mfi_node node = p->old->node[old];
    for (int i = 0; i < node.sources; i++)
        node.src[i] = p->id[node.src[i]];
    bool anchor =
        node.kind == MFI_N_MATMUL || node.kind == MFI_N_FFT || node.kind == MFI_N_SOLVE || node.kind == MFI_N_FACTOR;
    for (int i = 0; anchor && i < node.sources; i++) /* a number spread over a matrix has no memory yet */
        if (mfi_node_has_no_memory(&p->g->node[mfi_view_base(p->g, node.src[i])]))
            node.src[i] = copy_of(p, node.src[i]);
    if (node.kind == MFI_N_FFT && node.u.fft.count > 1 && p->flags & MFI_AXES_APART)
        return mfi_fft_by_axes(&p->id[old], p->g, p->old, old, node.src[0]);
    mf_node added = mfi_graph_add(p->g, &node);
    MF_TRY(mf_graph_error(p->g));
    if (node.kind == MFI_N_VIEW && !readable(p, added.id, mfi_view_base(p->old, old))) {
        p->g->count--;
        node.src[0] = copy_of(p, node.src[0]);
        added = mfi_graph_add(p->g, &node);
    } else if (rounds(p, &node)) {
        added = mf_graph_cast(p->g, added, node.dtype, 0);
    }
    p->id[old] = added.id;
    return mf_graph_error(p->g);
}

static void mark(const mf_graph *g, bool *used)
{
    for (int o = 0; o < g->outputs; o++)
        used[g->output[o]] = true;
    for (int i = g->count - 1; i >= 0; i--)
        for (int s = 0; used[i] && s < g->node[i].sources; s++)
            used[g->node[i].src[s]] = true;
    for (int i = 0; i < g->count; i++)
        used[i] |= g->node[i].kind == MFI_N_INPUT;
}

/* A computed node whose axes are only reordered, split or merged on the way to output `o` can be stored there at once, if
 * nothing else looks at it through a view. Returns it, or -1. */
static int32_t stored_through(const pass *p, int32_t id, int o)
{
    int64_t strides[MF_MAX_DIMS];
    if (!mfi_view_store(p->g, id, p->bindings[p->old->inputs + o].strides, strides))
        return -1;
    int base = mfi_view_base(p->g, id), views = 0, chain = 0;
    for (int32_t v = id; v != base; v = p->g->node[v].src[0])
        chain++;
    for (int i = 0; i < p->g->count; i++)
        views += p->g->node[i].kind == MFI_N_VIEW && mfi_view_base(p->g, i) == base;
    for (int other = 0; other < p->g->outputs; other++)
        if (p->g->output[other] == base)
            return -1;
    mfi_node_kind kind = p->g->node[base].kind;
    bool computed = kind == MFI_N_APPLY || kind == MFI_N_CAST || kind == MFI_N_REDUCE || kind == MFI_N_MATMUL;
    return computed && views == chain ? base : -1;
}

/* Outputs that are leaves or moved by views, and second outputs of a solver's results, become copies. */
static mf_status finish_outputs(pass *p)
{
    p->g->stored_as = mfi_alloc((size_t)p->old->outputs * sizeof *p->g->stored_as);
    if (!p->g->stored_as)
        return MFI_NO_MEMORY((size_t)p->old->outputs * sizeof *p->g->stored_as);
    for (int o = 0; o < p->old->outputs; o++) {
        int32_t id = p->id[p->old->output[o]], base = -1;
        mfi_node_kind kind = p->g->node[id].kind;
        bool solver = kind == MFI_N_SOLVE || kind == MFI_N_FACTOR || kind == MFI_N_RESULT;
        bool again = false;
        for (int e = 0; e < o; e++)
            again |= p->g->output[e] == id;
        if (kind == MFI_N_VIEW)
            base = stored_through(p, id, o);
        if (kind == MFI_N_INPUT || mfi_node_has_no_memory(&p->g->node[id]) || (kind == MFI_N_VIEW && base < 0) ||
            (solver && again))
            id = copy_of(p, id);
        p->g->stored_as[o] = id;
        MF_TRY(mf_graph_output(p->g, (mf_node){base < 0 ? id : base}));
    }
    return MF_OK;
}

mf_status mfi_normalise(mf_graph **out, const mf_graph *old, const mf_tensor *bindings, int flags)
{
    pass p = {.old = old, .bindings = bindings, .flags = flags};
    bool *used = mfi_calloc((size_t)old->count, sizeof *used);
    p.id = mfi_calloc((size_t)old->count, sizeof *p.id);
    p.first_output = mfi_alloc((size_t)old->count * sizeof *p.first_output);
    *out = NULL;
    mf_status status = used && p.id && p.first_output ? mf_graph_new(&p.g) : MFI_NO_MEMORY(old->count);
    if (status != MF_OK)
        goto out;
    mark(old, used);
    for (int i = 0; i < old->count; i++)
        p.first_output[i] = -1;
    for (int o = old->outputs - 1; o >= 0; o--)
        p.first_output[old->output[o]] = o;
    p.g->inputs = old->inputs;
    for (int i = 0; i < old->count; i++)
        if (used[i])
            MF_TRY_OUT(visit(&p, i));
    status = finish_outputs(&p);
    if (status == MF_OK) {
        *out = p.g;
        p.g = NULL;
    }
out:
    mf_graph_free(p.g);
    mf_free(p.first_output);
    mf_free(p.id);
    mf_free(used);
    return status;
}
