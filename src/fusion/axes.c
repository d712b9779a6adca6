/* A transform of several axes as one of each axis in turn, so that each can be part of a kernel of its own, and terms that
 * nobody reads are dropped on the way. */
#include "schedule.h"

/* How many of the first terms along each axis are read: fewer than all where all readers are slices. */
static void terms_read(const mf_graph *g, int node, int64_t *keep)
{
    const mfi_node *n = &g->node[node];
    bool whole = false;
    memset(keep, 0, sizeof *keep * MF_MAX_DIMS);
    for (int o = 0; o < g->outputs; o++)
        whole |= g->output[o] == node;
    for (int i = node + 1; i < g->count; i++) {
        const mfi_node *reader = &g->node[i];
        int64_t inner[MF_MAX_DIMS];
        bool reads = false;
        for (int s = 0; s < reader->sources; s++)
            reads |= reader->src[s] == node;
        if (!reads)
            continue;
        whole |= reader->kind != MFI_N_VIEW || reader->u.view.kind != MFI_V_SLICE;
        if (whole)
            break;
        terms_read(g, i, inner);
        for (int d = 0; d < n->ndim; d++) {
            int64_t first = reader->u.view.start[d], last = first + (inner[d] - 1) * reader->u.view.step[d];
            keep[d] = mfi_max64(keep[d], mfi_max64(first, last) + 1);
        }
    }
    for (int d = 0; d < n->ndim; d++)
        keep[d] = whole || keep[d] < 1 ? n->shape[d] : mfi_min64(keep[d], n->shape[d]);
}

static int32_t first_terms(mf_graph *g, int32_t x, int axis, int64_t keep)
{
    int64_t start[MF_MAX_DIMS] = {0}, length[MF_MAX_DIMS], step[MF_MAX_DIMS];
    const mfi_node *n = &g->node[x];
    for (int d = 0; d < n->ndim; d++) {
        length[d] = d == axis ? keep : n->shape[d];
        step[d] = 1;
    }
    return mf_graph_slice(g, (mf_node){x}, start, length, step).id;
}

bool mfi_has_axes(const mf_graph *g)
{
    for (int i = 0; i < g->count; i++)
        if (g->node[i].kind == MFI_N_FFT && g->node[i].u.fft.count > 1)
            return true;
    return false;
}

/* Forward, the last axis comes first: of a real signal it leaves half. Back it comes last, so that what lies between a
 * transform and its inverse meets the same axis on both sides. */
mf_status mfi_fft_by_axes(int32_t *out, mf_graph *g, const mf_graph *old, int node, int32_t source)
{
    const mfi_node *n = &old->node[node];
    int64_t keep[MF_MAX_DIMS];
    int32_t x = source;
    int count = n->u.fft.count;
    bool inverse = n->u.fft.kind == MF_IFFT || n->u.fft.kind == MF_IRFFT;
    terms_read(old, node, keep);
    for (int i = 0; i < count; i++) {
        int at = inverse ? i : count - 1 - i, axis = n->u.fft.axes[at];
        mf_fft_kind kind = at == count - 1 ? n->u.fft.kind : inverse ? MF_IFFT : MF_FFT;
        x = mf_graph_fft(g, kind, (mf_node){x}, 1, &axis, &n->u.fft.n[at], n->u.fft.norm).id;
        MF_TRY(mf_graph_error(g));
        if (i + 1 < count && keep[axis] < g->node[x].shape[axis])
            x = first_terms(g, x, axis, keep[axis]);
        MF_TRY(mf_graph_error(g));
    }
    *out = x;
    return MF_OK;
}
