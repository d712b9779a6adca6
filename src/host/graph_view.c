/* Views: transposes, reshapes, broadcasts, slices. */
#include "nodes.h"

bool mfi_broadcast(int *ndim, int64_t *shape, int other_ndim, const int64_t *other)
{
    int n = *ndim > other_ndim ? *ndim : other_ndim;
    int64_t result[MF_MAX_DIMS];
    for (int d = 0; d < n; d++) {
        int i = d - (n - *ndim), j = d - (n - other_ndim);
        int64_t a = i < 0 ? 1 : shape[i], b = j < 0 ? 1 : other[j];
        if (a != b && a != 1 && b != 1)
            return false;
        result[d] = a == 1 ? b : a;
    }
    *ndim = n;
    memcpy(shape, result, (size_t)n * sizeof *shape);
    return true;
}

static mfi_node view_of(const mfi_node *source, mf_node x, mfi_view_kind kind)
{
    mfi_node node = {.kind = MFI_N_VIEW, .dtype = source->dtype, .ndim = source->ndim, .sources = 1, .src = {x.id}};
    memcpy(node.shape, source->shape, sizeof node.shape);
    node.u.view.kind = kind;
    return node;
}

mf_node mf_graph_transpose(mf_graph *g, mf_node x, const int *permutation)
{
    const mfi_node *source = mfi_graph_get(g, x, "transpose");
    if (!source)
        return MF_NODE_NONE;
    if (!permutation && source->ndim)
        return mfi_graph_missing(g, "transpose", "permutation");
    mfi_node node = view_of(source, x, MFI_V_PERMUTE);
    uint32_t seen = 0;
    for (int d = 0; d < source->ndim; d++) {
        int from = permutation[d] < 0 ? permutation[d] + source->ndim : permutation[d];
        if (from < 0 || from >= source->ndim || (seen & 1u << from))
            return mfi_graph_latch(g, mfi_fail(MF_E_INVALID,
                                               "transpose: entry %d (%d) does not make a permutation of %d axes", d,
                                               permutation[d], source->ndim));
        seen |= 1u << from;
        node.u.view.permutation[d] = from;
        node.shape[d] = source->shape[from];
    }
    return mfi_graph_add(g, &node);
}

mf_node mf_graph_reshape(mf_graph *g, mf_node x, int ndim, const int64_t *shape)
{
    const mfi_node *source = mfi_graph_get(g, x, "reshape");
    if (!source)
        return MF_NODE_NONE;
    if (!shape && ndim > 0)
        return mfi_graph_missing(g, "reshape", "shape");
    int64_t have = 1, known = 1;
    int open = -1;
    bool valid = ndim >= 0 && ndim <= MF_MAX_DIMS;
    for (int d = 0; d < source->ndim; d++)
        have *= source->shape[d];
    for (int d = 0; valid && d < ndim; d++) {
        if (shape[d] == -1 && open < 0)
            open = d;
        else if (shape[d] < 0)
            valid = false;
        else
            known *= shape[d];
    }
    if (valid && open >= 0)
        valid = known > 0 && have % known == 0;
    else if (valid)
        valid = known == have;
    if (!valid) {
        char from[160], to[160];
        mfi_shape_text(source->shape, source->ndim, from);
        mfi_shape_text(shape, ndim < 0 || ndim > MF_MAX_DIMS ? 0 : ndim, to);
        return mfi_graph_latch(
            g, mfi_fail(MF_E_SHAPE, "reshape: %s of %lld elements does not become %s", from, (long long)have, to));
    }
    mfi_node node = view_of(source, x, MFI_V_RESHAPE);
    node.ndim = ndim;
    for (int d = 0; d < ndim; d++)
        node.shape[d] = d == open ? have / known : shape[d];
    return mfi_graph_add(g, &node);
}

mf_node mf_graph_broadcast(mf_graph *g, mf_node x, int ndim, const int64_t *shape)
{
    const mfi_node *source = mfi_graph_get(g, x, "broadcast");
    if (!source)
        return MF_NODE_NONE;
    static const int64_t scalar[1];
    if (!shape && ndim > 0)
        return mfi_graph_missing(g, "broadcast", "shape");
    shape = shape ? shape : scalar;
    bool fits = ndim >= source->ndim && ndim <= MF_MAX_DIMS;
    for (int d = 0; fits && d < source->ndim; d++) {
        int64_t want = shape[d + ndim - source->ndim];
        fits = want >= 0 && (source->shape[d] == want || source->shape[d] == 1);
    }
    if (!fits) {
        char from[160], to[160];
        mfi_shape_text(source->shape, source->ndim, from);
        mfi_shape_text(shape, ndim < 0 || ndim > MF_MAX_DIMS ? 0 : ndim, to);
        return mfi_graph_latch(g, mfi_fail(MF_E_SHAPE, "broadcast: %s does not broadcast to %s", from, to));
    }
    mfi_node node = view_of(source, x, MFI_V_BROADCAST);
    node.ndim = ndim;
    memcpy(node.shape, shape, (size_t)ndim * sizeof *shape);
    return mfi_graph_add(g, &node);
}

mf_node mf_graph_slice(mf_graph *g, mf_node x, const int64_t *start, const int64_t *length, const int64_t *step)
{
    const mfi_node *source = mfi_graph_get(g, x, "slice");
    if (!source)
        return MF_NODE_NONE;
    if (source->ndim && !(start && length && step))
        return mfi_graph_missing(g, "slice", !start ? "start" : !length ? "length" : "step");
    mfi_node node = view_of(source, x, MFI_V_SLICE);
    for (int d = 0; d < source->ndim; d++) {
        int64_t last = -1, extent = source->shape[d];
        if (length[d] < 0 || __builtin_mul_overflow(length[d] - 1, step[d], &last) ||
            __builtin_add_overflow(start[d], last, &last))
            last = -1;
        if (length[d] < 0 || (length[d] > 0 && (start[d] < 0 || start[d] >= extent || last < 0 || last >= extent)))
            return mfi_graph_latch(g, mfi_fail(MF_E_INVALID,
                                               "slice: axis %d has %lld elements; start %lld, length %lld, step %lld "
                                               "reaches outside",
                                               d, (long long)extent, (long long)start[d], (long long)length[d],
                                               (long long)step[d]));
        node.shape[d] = length[d];
        node.u.view.start[d] = length[d] ? start[d] : 0;
        node.u.view.step[d] = step[d];
    }
    return mfi_graph_add(g, &node);
}
