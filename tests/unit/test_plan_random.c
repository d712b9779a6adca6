/* Random graphs: every way of cutting them into steps must give what evaluating node by node gives. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "nodes.h"
#include "plan_internal.h"

enum { ROUNDS = 1500, MAX_NODES = 30 };

static uint32_t state;

static uint32_t draw(uint32_t n)
{
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % n;
}

/* ---- an oracle: each node on a dense f64 array ---- */

static double *value[256];

static int64_t elements(const mfi_node *n)
{
    int64_t count = 1;
    for (int d = 0; d < n->ndim; d++)
        count *= n->shape[d];
    return count;
}

static void position(const mfi_node *n, int64_t linear, int64_t *index)
{
    for (int d = n->ndim - 1; d >= 0; d--) {
        index[d] = linear % n->shape[d];
        linear /= n->shape[d];
    }
}

/* Element of x at `index`, right-aligned in `ndim` axes and broadcast. */
static double at(const mf_graph *g, int x, const int64_t *index, int ndim)
{
    const mfi_node *n = &g->node[x];
    int64_t linear = 0;
    for (int d = 0; d < n->ndim; d++)
        linear = linear * n->shape[d] + (n->shape[d] == 1 ? 0 : index[d + ndim - n->ndim]);
    return value[x][linear];
}

static double apply(mf_op op, double x, double y)
{
    switch (op) {
    case MF_OP_ADD:
        return x + y;
    case MF_OP_SUBTRACT:
        return x - y;
    case MF_OP_MULTIPLY:
        return x * y;
    case MF_OP_MAXIMUM:
        return x > y ? x : y;
    case MF_OP_DIVIDE: /* of a mean */
        return x / y;
    case MF_OP_TANH:
        return tanh(x);
    default:
        return fabs(x);
    }
}

static double view_element(const mf_graph *g, const mfi_node *n, const int64_t *index, int64_t linear)
{
    const mfi_node *s = &g->node[n->src[0]];
    int64_t from[MF_MAX_DIMS] = {0};
    if (n->u.view.kind == MFI_V_RESHAPE)
        return value[n->src[0]][linear];
    if (n->u.view.kind == MFI_V_BROADCAST)
        return at(g, n->src[0], index, n->ndim);
    for (int d = 0; d < n->ndim; d++) {
        if (n->u.view.kind == MFI_V_PERMUTE)
            from[n->u.view.permutation[d]] = index[d];
        else
            from[d] = n->u.view.start[d] + index[d] * n->u.view.step[d];
    }
    return at(g, n->src[0], from, s->ndim);
}

static void reduce(const mf_graph *g, const mfi_node *n, double *out)
{
    const mfi_node *s = &g->node[n->src[0]];
    bool max = n->u.reduce.op == MF_MAX;
    for (int64_t i = 0; i < elements(n); i++)
        out[i] = max ? -INFINITY : 0;
    for (int64_t i = 0; i < elements(s); i++) {
        int64_t index[MF_MAX_DIMS], to = 0;
        position(s, i, index);
        for (int d = 0; d < s->ndim; d++)
            if (!(n->u.reduce.axes & 1u << d))
                to = to * s->shape[d] + index[d];
        double x = value[n->src[0]][i];
        out[to] = max ? (x > out[to] ? x : out[to]) : out[to] + x;
    }
}

static double dot(const mf_graph *g, const mfi_node *n, int64_t *index)
{
    const mfi_node *a = &g->node[n->src[0]];
    int64_t left[MF_MAX_DIMS], right[MF_MAX_DIMS];
    double sum = 0;
    memcpy(left, index, sizeof left);
    memcpy(right, index, sizeof right);
    for (int64_t k = 0; k < a->shape[a->ndim - 1]; k++) {
        left[n->ndim - 1] = right[n->ndim - 2] = k;
        sum += at(g, n->src[0], left, n->ndim) * at(g, n->src[1], right, n->ndim);
    }
    return sum;
}

static void evaluate(const mf_graph *g)
{
    for (int i = 0; i < g->count; i++) {
        const mfi_node *n = &g->node[i];
        int64_t count = elements(n), index[MF_MAX_DIMS];
        double *out = value[i] = malloc(sizeof(double) * (size_t)(count ? count : 1));
        if (n->kind == MFI_N_REDUCE) {
            reduce(g, n, out);
            continue;
        }
        for (int64_t k = 0; k < count; k++) {
            position(n, k, index);
            if (n->kind == MFI_N_INPUT)
                out[k] = (double)draw(2001) / 1000 - 1;
            else if (n->kind == MFI_N_CONST)
                out[k] = n->u.constant.re;
            else if (n->kind == MFI_N_APPLY)
                out[k] = apply(n->u.op, at(g, n->src[0], index, n->ndim),
                               n->sources > 1 ? at(g, n->src[1], index, n->ndim) : 0);
            else if (n->kind == MFI_N_CAST)
                out[k] = at(g, n->src[0], index, n->ndim);
            else if (n->kind == MFI_N_MATMUL)
                out[k] = dot(g, n, index);
            else
                out[k] = view_element(g, n, index, k);
        }
    }
}

/* ---- random graphs ---- */

static mf_node random_view(mf_graph *g, mf_node x)
{
    const mfi_node *n = &g->node[x.id];
    int permutation[MF_MAX_DIMS];
    int64_t shape[MF_MAX_DIMS], start[MF_MAX_DIMS], length[MF_MAX_DIMS], step[MF_MAX_DIMS];
    int ndim = n->ndim;
    switch (draw(4)) {
    case 0:
        for (int d = 0; d < ndim; d++)
            permutation[d] = d;
        for (int d = ndim - 1; d > 0; d--) {
            int other = (int)draw((uint32_t)d + 1), t = permutation[d];
            permutation[d] = permutation[other];
            permutation[other] = t;
        }
        return mf_graph_transpose(g, x, permutation);
    case 1:
        return mf_graph_reshape(g, x, 1, (int64_t[]){-1});
    case 2: /* a unit axis somewhere */
        for (int d = 0, at = (int)draw((uint32_t)ndim + 1), k = 0; d <= ndim; d++)
            shape[d] = d == at ? 1 : n->shape[k++];
        return ndim < 4 ? mf_graph_reshape(g, x, ndim + 1, shape) : x;
    default:
        for (int d = 0; d < ndim; d++) {
            bool back = draw(2);
            length[d] = 1 + (int64_t)draw((uint32_t)n->shape[d]);
            start[d] = back ? length[d] - 1 : n->shape[d] - length[d];
            step[d] = back ? -1 : 1;
        }
        return mf_graph_slice(g, x, start, length, step);
    }
}

static bool fits(const mf_graph *g, mf_node a, mf_node b)
{
    const mfi_node *x = &g->node[a.id], *y = &g->node[b.id];
    int ndim = x->ndim;
    int64_t shape[MF_MAX_DIMS];
    memcpy(shape, x->shape, sizeof shape);
    return mfi_broadcast(&ndim, shape, y->ndim, y->shape);
}

static bool multiplies(const mf_graph *g, mf_node a, mf_node b)
{
    const mfi_node *x = &g->node[a.id], *y = &g->node[b.id];
    int ndim = x->ndim - 2;
    int64_t shape[MF_MAX_DIMS];
    memcpy(shape, x->shape, sizeof shape);
    return x->ndim >= 2 && y->ndim >= 2 && x->shape[x->ndim - 1] == y->shape[y->ndim - 2] &&
           mfi_broadcast(&ndim, shape, y->ndim - 2, y->shape);
}

static mf_node random_node(mf_graph *g)
{
    static const mf_op unary[] = {MF_OP_TANH, MF_OP_ABSOLUTE};
    static const mf_op binary[] = {MF_OP_ADD, MF_OP_SUBTRACT, MF_OP_MULTIPLY, MF_OP_MAXIMUM};
    mf_node x = {(int32_t)draw((uint32_t)g->count)}, y = {(int32_t)draw((uint32_t)g->count)};
    int axis = g->node[x.id].ndim ? (int)draw((uint32_t)g->node[x.id].ndim) : 0;
    switch (draw(8)) {
    case 0:
        return mf_graph_op(g, unary[draw(2)], 1, &x);
    case 1:
    case 2:
    case 3:
        return fits(g, x, y) ? mf_graph_op(g, binary[draw(4)], 2, (mf_node[]){x, y}) : x;
    case 4:
        if (!g->node[x.id].ndim)
            return x;
        return mf_graph_reduce(g, draw(2) ? MF_MAX : MF_MEAN, x, 1, &axis, (int)draw(2));
    case 5:
        return multiplies(g, x, y) ? mf_graph_tanh(g, mf_graph_matmul(g, x, y)) : x;
    case 6:
        return g->node[x.id].ndim ? random_view(g, x) : x;
    default:
        return mf_graph_multiply(g, x, mf_graph_number(g, MF_WEAK_FLOAT, (double)draw(5) - 2, 0));
    }
}

static mf_graph *random_graph(void)
{
    static const int64_t extents[] = {1, 2, 3, 3, 3, 5};
    mf_graph *g;
    cr_assert_eq(mf_graph_new(&g), MF_OK);
    for (int i = 0; i < 3; i++) {
        int64_t shape[3] = {extents[draw(6)], extents[draw(6)], extents[draw(6)]};
        mf_graph_input(g, MF_F64, 1 + (int)draw(3), shape);
    }
    int target = 4 + (int)draw(MAX_NODES - 4);
    for (int tries = 0; g->count < target && tries < 200; tries++)
        random_node(g);
    cr_assert_eq(mf_graph_error(g), MF_OK, "%s", mf_error_message(g->error));
    mf_graph_output(g, (mf_node){g->count - 1});
    for (uint32_t i = draw(3); i > 0; i--)
        mf_graph_output(g, (mf_node){(int32_t)draw((uint32_t)g->count)});
    return g;
}

static void check(mf_context *ctx, const mf_graph *g, int flags, uint32_t seed)
{
    mf_plan *p;
    mf_plan_options o = MF_PLAN_OPTIONS_INIT;
    o.flags = flags;
    mf_status status = mf_plan_new(&p, ctx, g, &o);
    cr_assert_eq(status, MF_OK, "seed %u: %s", seed, mf_error_message(status));
    mf_tensor *t = calloc((size_t)p->bindings, sizeof *t);
    for (int i = 0, input = 0; i < p->bindings; i++) {
        t[i] = p->binding[i];
        if (i < p->inputs)
            t[i].data = value[input++]; /* the inputs are the first nodes */
        else
            t[i].data = calloc((size_t)mf_tensor_elements(&t[i]) + 1, 8);
    }
    status = mf_plan_run(p, t, p->bindings, NULL);
    cr_assert_eq(status, MF_OK, "seed %u: %s", seed, mf_error_message(status));
    for (int i = p->inputs; i < p->bindings; i++) {
        const double *want = value[g->output[i - p->inputs]], *have = t[i].data;
        for (int64_t k = 0; k < mf_tensor_elements(&t[i]); k++)
            if (!(fabs(have[k] - want[k]) <= 1e-9 * (1 + fabs(want[k])))) {
                char *text;
                mf_plan_explain(&text, p, 0);
                cr_assert(false, "seed %u flags %d output %d element %lld: %g, wanted %g\n%s", seed, flags,
                          i - p->inputs, (long long)k, have[k], want[k], text);
            }
        free(t[i].data);
    }
    free(t);
    mf_plan_free(p);
}

Test(plan_random, any_partition_gives_the_same)
{
    mf_context *ctx;
    mf_context_options o = MF_CONTEXT_OPTIONS_INIT;
    o.device = "cpu";
    cr_assert_eq(mf_context_new(&ctx, &o), MF_OK);
    for (uint32_t seed = 1; seed <= ROUNDS; seed++) {
        state = seed * 2654435761u;
        mf_graph *g = random_graph();
        evaluate(g);
        check(ctx, g, 0, seed);
        check(ctx, g, MF_PLAN_NO_FUSION, seed);
        for (int i = 0; i < g->count; i++)
            free(value[i]);
        mf_graph_free(g);
    }
    mf_context_free(ctx);
}
