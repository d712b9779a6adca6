/* Graphs: storage, leaves, outputs, errors. What nodes mean is in graph_op.c, graph_linalg.c and graph_view.c. */
#include "nodes.h"

#include <stdio.h>

mf_status mf_graph_new(mf_graph **out)
{
    MF_REQUIRE(out, MF_E_INVALID, "mf_graph_new: out is NULL");
    *out = mfi_calloc(1, sizeof **out);
    return *out ? MF_OK : MFI_NO_MEMORY(sizeof **out);
}

void mf_graph_free(mf_graph *g)
{
    if (!g)
        return;
    mf_free(g->message);
    mf_free(g->node);
    mf_free(g->output);
    mf_free(g->stored_as);
    mf_free(g);
}

mf_status mfi_graph_copy(mf_graph **out, const mf_graph *g)
{
    MF_TRY(mf_graph_new(out));
    mf_graph *c = *out;
    *c = (mf_graph){.count = g->count, .capacity = g->count, .inputs = g->inputs, .outputs = g->outputs};
    c->output_capacity = g->outputs;
    c->node = mfi_alloc((size_t)g->count * sizeof *c->node);
    c->output = mfi_alloc((size_t)g->outputs * sizeof *c->output);
    if (!c->node || !c->output) {
        mf_graph_free(c);
        *out = NULL;
        return MFI_NO_MEMORY((size_t)g->count * sizeof *c->node);
    }
    memcpy(c->node, g->node, (size_t)g->count * sizeof *c->node);
    memcpy(c->output, g->output, (size_t)g->outputs * sizeof *c->output);
    return MF_OK;
}

mf_status mf_graph_error(const mf_graph *g)
{
    MF_REQUIRE(g, MF_E_INVALID, "the graph is NULL");
    return g->error == MF_OK ? MF_OK : mfi_fail(g->error, "%s", g->message ? g->message : "out of memory");
}

mf_node mfi_graph_latch(mf_graph *g, mf_status status)
{
    if (g && g->error == MF_OK) {
        g->error = status;
        g->message = mfi_strdup(mf_error_message(status));
    }
    return MF_NODE_NONE;
}

const mfi_node *mfi_graph_get(mf_graph *g, mf_node x, const char *what)
{
    if (!g || g->error != MF_OK)
        return NULL;
    if (x.id >= 0 && x.id < g->count)
        return &g->node[x.id];
    mfi_graph_latch(g, mfi_fail(MF_E_INVALID, "%s: operand %d is not a node of this graph, which has %d nodes", what,
                                (int)x.id, g->count));
    return NULL;
}

/* Byte offsets and counts of operations of what is allowed fit 64 bits. */
static mf_status check_extent(const mfi_node *node)
{
    const int64_t most = (int64_t)1 << 48;
    int64_t room = most;
    for (int d = 0; d < node->ndim; d++)
        room /= node->shape[d] > 1 ? node->shape[d] : 1;
    if (room > 0)
        return MF_OK;
    char shape[160];
    mfi_shape_text(node->shape, node->ndim, shape);
    return mfi_fail(
        MF_E_SHAPE,
        "a value of shape %s would have more than %lld elements; use smaller extents or a transform length n "
        "that fits the memory",
        shape, (long long)most);
}

mf_node mfi_graph_add(mf_graph *g, const mfi_node *node)
{
    if (!g || g->error != MF_OK)
        return MF_NODE_NONE;
    mf_status status = check_extent(node);
    if (status != MF_OK)
        return mfi_graph_latch(g, status);
    if (g->count == MFI_MAX_NODES)
        return mfi_graph_latch(g, mfi_fail(MF_E_UNSUPPORTED, "a graph has at most %d nodes; split it", MFI_MAX_NODES));
    if (g->count == g->capacity) {
        int capacity = g->capacity ? 2 * g->capacity : 16;
        mfi_node *grown = mfi_realloc(g->node, (size_t)capacity * sizeof *grown);
        if (!grown)
            return mfi_graph_latch(g, MFI_NO_MEMORY((size_t)capacity * sizeof *grown));
        g->node = grown;
        g->capacity = capacity;
    }
    g->node[g->count] = *node;
    return (mf_node){g->count++};
}

mf_node mfi_graph_missing(mf_graph *g, const char *name, const char *argument)
{
    return mfi_graph_latch(g, mfi_fail(MF_E_INVALID, "%s: %s is NULL", name, argument));
}

void mfi_shape_text(const int64_t *shape, int ndim, char out[160])
{
    size_t used = 0, room = 160;
    used += (size_t)snprintf(out, room, "(");
    for (int d = 0; d < ndim && used + 24 < room; d++)
        used += (size_t)snprintf(out + used, room - used, d ? ", %lld" : "%lld", (long long)shape[d]);
    snprintf(out + used, room - used, ndim == 1 ? ",)" : ")");
}

mf_node mf_graph_input(mf_graph *g, mf_dtype dtype, int ndim, const int64_t *shape)
{
    if (!g || g->error != MF_OK)
        return MF_NODE_NONE;
    mf_tensor checked;
    mf_status status = mf_tensor_init(&checked, NULL, dtype, ndim, shape);
    if (status != MF_OK) {
        mfi_prefix(status, "input %d: ", g->inputs);
        return mfi_graph_latch(g, status);
    }
    mfi_node node = {.kind = MFI_N_INPUT, .dtype = dtype, .ndim = ndim, .u.input = g->inputs};
    memcpy(node.shape, checked.shape, sizeof node.shape);
    mf_node added = mfi_graph_add(g, &node);
    g->inputs += added.id >= 0;
    return added;
}

mf_node mf_graph_constant(mf_graph *g, mf_dtype dtype, double re, double im)
{
    if ((unsigned)dtype >= MF_DTYPE_COUNT)
        return mfi_graph_latch(
            g, mfi_fail(MF_E_TYPE, "constant: dtype %d is none of the %d there are", (int)dtype, (int)MF_DTYPE_COUNT));
    mfi_node node = {.kind = MFI_N_CONST, .dtype = dtype, .u.constant = {re, im, false}};
    return mfi_graph_add(g, &node);
}

mf_node mf_graph_number(mf_graph *g, mf_weak_kind kind, double re, double im)
{
    mf_dtype dtype = kind == MF_WEAK_INT ? MF_I64 : kind == MF_WEAK_FLOAT ? MF_F64 : MF_C128;
    mfi_node node = {.kind = MFI_N_CONST, .dtype = dtype, .u.constant = {re, im, true}};
    return mfi_graph_add(g, &node);
}

mf_node mf_graph_arange(mf_graph *g, int64_t n)
{
    if (n < 0)
        return mfi_graph_latch(g, mfi_fail(MF_E_SHAPE, "arange: %lld elements; pass 0 or more", (long long)n));
    mfi_node node = {.kind = MFI_N_ARANGE, .dtype = MF_I64, .ndim = 1, .shape = {n}};
    return mfi_graph_add(g, &node);
}

mf_status mf_graph_output(mf_graph *g, mf_node x)
{
    if (!mfi_graph_get(g, x, "output"))
        return mf_graph_error(g);
    if (g->outputs == g->output_capacity) {
        int capacity = g->output_capacity ? 2 * g->output_capacity : 4;
        int32_t *grown = mfi_realloc(g->output, (size_t)capacity * sizeof *grown);
        if (!grown) {
            mfi_graph_latch(g, MFI_NO_MEMORY((size_t)capacity * sizeof *grown));
            return MF_E_MEMORY;
        }
        g->output = grown;
        g->output_capacity = capacity;
    }
    g->output[g->outputs++] = x.id;
    return MF_OK;
}

mf_status mf_graph_describe(const mf_graph *g, mf_node x, mf_dtype *dtype, int *ndim, int64_t *shape)
{
    MF_TRY(mf_graph_error(g));
    MF_REQUIRE(x.id >= 0 && x.id < g->count, MF_E_INVALID, "node %d is not of this graph, which has %d", (int)x.id,
               g->count);
    const mfi_node *node = &g->node[x.id];
    *dtype = node->dtype;
    *ndim = node->ndim;
    memcpy(shape, node->shape, (size_t)node->ndim * sizeof *shape);
    return MF_OK;
}

int mf_graph_inputs(const mf_graph *g)
{
    return g->inputs;
}

int mf_graph_outputs(const mf_graph *g)
{
    return g->outputs;
}

mf_status mf_graph_output_node(const mf_graph *g, int index, mf_node *out)
{
    MF_REQUIRE(index >= 0 && index < g->outputs, MF_E_INVALID, "output %d was asked for; the graph has %d", index,
               g->outputs);
    *out = (mf_node){g->output[index]};
    return MF_OK;
}
