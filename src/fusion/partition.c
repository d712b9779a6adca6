/* Group nodes into steps. One pass in graph order: each computed node joins a group of one of its operands if its axes
 * line up with that group's domain and no cycle arises; otherwise it starts a group and reads its operands from memory.
 * A group has at most one anchor, and its reductions all run over the same axes of its domain. */
#include "partition.h"

#include <stdlib.h>

enum { GROUP_PHASES = 4, MAX_GROUP_LOADS = 18 };

/* A reduction to few rows ends its group: what follows over all points would run on a few blocks only. */
enum { FEW_ROWS = 128, LONG_ROW = 16384 };

/* Group a reads what group b computes. Keeps `depends` transitive. */
static void add_dependency(mfi_partition *p, int a, int b)
{
    if (a == b || mfi_depends(p, a, b))
        return;
    for (int k = 0; k < p->groups; k++) {
        if (k != a && !mfi_depends(p, k, a))
            continue;
        for (int w = 0; w < p->words; w++)
            p->group[k].depends[w] |= p->group[b].depends[w];
        p->group[k].depends[b / 64] |= (uint64_t)1 << (b % 64);
    }
}

static int new_group(mfi_partition *p, mfi_anchor anchor, const mfi_node *shape_of)
{
    mfi_group *group = &p->group[p->groups];
    *group = (mfi_group){.anchor = anchor, .anchor_node = -1, .ndim = shape_of->ndim};
    memcpy(group->shape, shape_of->shape, sizeof group->shape);
    group->node = mfi_alloc(sizeof(int) * MFI_GROUP_NODES);
    group->depends = mfi_calloc((size_t)p->words, sizeof(uint64_t));
    if (!group->node || !group->depends) {
        mf_free(group->node);
        mf_free(group->depends);
        return -1;
    }
    return p->groups++;
}

static void join(mfi_partition *p, int group, int node, const int8_t *map, int phase)
{
    mfi_value *v = &p->value[node];
    v->group = group;
    v->phase = (int8_t)phase;
    memcpy(v->map, map, sizeof v->map);
    mfi_group *g = &p->group[group];
    if (g->nodes < MFI_GROUP_NODES)
        g->node[g->nodes++] = node;
    if (phase > g->phases)
        g->phases = phase;
}

static void identity_map(const mfi_node *n, int8_t *map)
{
    memset(map, -1, MF_MAX_DIMS);
    for (int d = 0; d < n->ndim; d++)
        map[d] = (int8_t)d;
}

/* The computed node behind an operand, through views that only touch unit axes; the map from the operand's axes to the
 * domain of that node's group. -1 if the operand is a leaf or sits behind a view that moves elements. */
int mfi_operand_value(const mfi_grouping *s, int node, int8_t *map)
{
    const mfi_node *n = &s->g->node[node];
    if (n->kind != MFI_N_VIEW) {
        const mfi_value *v = &s->p->value[node];
        memcpy(map, v->map, MF_MAX_DIMS);
        bool solver = n->kind == MFI_N_SOLVE || n->kind == MFI_N_FACTOR || n->kind == MFI_N_RESULT;
        return v->group >= 0 && !solver ? node : -1;
    }
    int8_t below[MF_MAX_DIMS];
    int base = mfi_view_is_unit(s->g, node) ? mfi_operand_value(s, n->src[0], below) : -1;
    if (base < 0)
        return -1;
    const mfi_node *from = &s->g->node[n->src[0]];
    memset(map, -1, MF_MAX_DIMS);
    if (n->u.view.kind == MFI_V_BROADCAST) {
        for (int d = 0; d < from->ndim; d++)
            if (from->shape[d] != 1)
                map[d + n->ndim - from->ndim] = below[d];
        return base;
    }
    for (int d = 0, k = 0; d < n->ndim; d++) {
        if (n->shape[d] == 1)
            continue;
        while (from->shape[k] == 1)
            k++;
        map[d] = below[k++];
    }
    return base;
}

/* An output is rounded, for other steps as for the caller: it is not stored a second time. */
static bool is_output(const mf_graph *g, int node)
{
    for (int o = 0; o < g->outputs; o++)
        if (g->output[o] == node)
            return true;
    return false;
}

static bool narrow_outputs(const mf_graph *g)
{
    for (int o = 0; o < g->outputs; o++)
        if (!mfi_is_integer(g->node[g->output[o]].dtype) && mf_dtype_size(g->node[g->output[o]].dtype) > 2)
            return false;
    return true;
}

/* A product's bf16 values cross to other steps as bf16, where all that is made of them is as narrow: half the bytes, and nothing
 * overflows, as it might in f16. */
static bool crosses_narrow(const mfi_grouping *s, int node)
{
    const mfi_group *g = &s->p->group[s->p->value[node].group];
    return s->g->node[node].dtype == MF_BF16 && g->anchor == MFI_MATMUL && !s->p->value[node].wide &&
           narrow_outputs(s->g);
}

/* Where a largest value is sought, exponentials may follow, as in softmax: they make much of a rounding. */
static void keep_wide(mfi_grouping *s, int node)
{
    mfi_value *v = &s->p->value[node];
    v->wide |= v->group >= 0 && !mfi_node_exact(&s->g->node[node]) && !is_output(s->g, node);
}

/* Everything reads this operand from memory. */
static void read_from_memory(mfi_grouping *s, int reader, int node, bool rounded)
{
    int base = mfi_view_base(s->g, node);
    mfi_value *v = &s->p->value[base];
    if (v->group < 0)
        return;
    if (rounded || mfi_node_exact(&s->g->node[base]) || is_output(s->g, base) || crosses_narrow(s, base))
        v->rounded = true;
    else
        v->wide = true;
    add_dependency(s->p, reader, v->group);
}

/* Line up the axes of elementwise node n with the domain of `group`, given which operands are in it. An axis of an
 * operand in the group must land where that operand has it; other axes take a free domain axis of their length, in
 * order. */
static bool align(const mfi_grouping *s, int group, const mfi_node *n, const int *in_group,
                  int8_t operand_maps[3][MF_MAX_DIMS], int8_t *map)
{
    const mfi_group *g = &s->p->group[group];
    uint32_t used = 0;
    memset(map, -1, MF_MAX_DIMS);
    for (int i = 0; i < n->sources; i++) {
        if (!in_group[i])
            continue;
        const mfi_node *x = &s->g->node[n->src[i]];
        for (int d = 0; d < x->ndim; d++) {
            int at = d + n->ndim - x->ndim, to = operand_maps[i][d];
            if (to < 0 || x->shape[d] == 1)
                continue;
            if (map[at] >= 0 && map[at] != to)
                return false;
            if (map[at] < 0 && (used & 1u << to))
                return false;
            map[at] = (int8_t)to;
            used |= 1u << to;
        }
    }
    int free_axis = 0;
    for (int d = 0; d < n->ndim; d++) {
        if (n->shape[d] == 1)
            continue;
        if (map[d] >= 0) {
            free_axis = map[d] + 1;
            continue;
        }
        while (free_axis < g->ndim && ((used & 1u << free_axis) || g->shape[free_axis] != n->shape[d]))
            free_axis++;
        if (free_axis == g->ndim)
            return false;
        used |= 1u << free_axis;
        map[d] = (int8_t)free_axis++;
    }
    return true;
}

/* May values over the reduced axes use row values of this group? Not if its rows are few and long. */
static bool rows_feed_points(const mfi_group *g)
{
    return mfi_extent(g, ~g->reduced) >= FEW_ROWS || mfi_extent(g, g->reduced) <= LONG_ROW;
}

static bool covers(const int8_t *map, const mfi_node *n, uint32_t axes)
{
    for (int d = 0; d < n->ndim; d++)
        if (map[d] >= 0 && (axes & 1u << map[d]))
            return true;
    return false;
}

static int insertion_sorted(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

/* Loads that a group would have with this node, roughly: operands of its nodes that come from outside. */
static int load_count(const mfi_grouping *s, int group, const mfi_node *n)
{
    const mfi_group *g = &s->p->group[group];
    int loads = n->sources;
    for (int i = 0; i < g->nodes; i++)
        for (int j = 0; j < s->g->node[g->node[i]].sources; j++) {
            int base = mfi_view_base(s->g, s->g->node[g->node[i]].src[j]);
            loads += s->p->value[base].group != group && !mfi_node_has_no_memory(&s->g->node[base]);
        }
    return loads + 2;
}

/* The group that an elementwise node or a reduction would join: of its operands' groups, the one on which no other
 * depends. */
static int candidate(const mfi_grouping *s, const mfi_node *n, const int *base)
{
    int best = -1;
    for (int i = 0; i < n->sources; i++) {
        int group = base[i] < 0 ? -1 : s->p->value[base[i]].group;
        if (group < 0 || group == best)
            continue;
        bool anchored = s->p->group[group].anchor != MFI_MAP || s->p->group[group].phases;
        bool best_anchored = best >= 0 && (s->p->group[best].anchor != MFI_MAP || s->p->group[best].phases);
        if (best < 0 || mfi_depends(s->p, group, best) ||
            (anchored && !best_anchored && !mfi_depends(s->p, best, group)))
            best = group;
    }
    return best;
}

/* Would reading the operands that are outside `group`, or behind a view that moves elements, close a cycle? */
static bool closes_cycle(const mfi_grouping *s, int group, const mfi_node *n, const int *base)
{
    for (int i = 0; i < n->sources; i++) {
        int b = mfi_view_base(s->g, n->src[i]);
        int other = s->p->value[b].group;
        if (other >= 0 && (other == group ? base[i] < 0 : mfi_depends(s->p, other, group)))
            return true;
    }
    return false;
}

/* Phase of node n in `group`, or -1 if a row value would feed points that must not be fused with it. */
static int phase_of(const mfi_grouping *s, int group, const mfi_node *n, const int *base, const int8_t *map)
{
    int phase = 0;
    for (int i = 0; i < n->sources; i++)
        if (base[i] >= 0 && s->p->value[base[i]].group == group && s->p->value[base[i]].phase > phase)
            phase = s->p->value[base[i]].phase;
    const mfi_group *g = &s->p->group[group];
    return phase && covers(map, n, g->reduced) && !rows_feed_points(g) ? -1 : phase;
}

static bool join_elementwise(mfi_grouping *s, int node)
{
    const mfi_node *n = &s->g->node[node];
    int base[3], in_group[3];
    int8_t maps[3][MF_MAX_DIMS], map[MF_MAX_DIMS];
    for (int i = 0; i < n->sources; i++)
        base[i] = mfi_operand_value(s, n->src[i], maps[i]);
    int group = s->fuse ? candidate(s, n, base) : -1;
    if (group < 0 || s->p->group[group].nodes + 1 >= MFI_GROUP_NODES || load_count(s, group, n) > MAX_GROUP_LOADS)
        return false;
    for (int i = 0; i < n->sources; i++)
        in_group[i] = base[i] >= 0 && s->p->value[base[i]].group == group;
    if (!align(s, group, n, in_group, maps, map) || closes_cycle(s, group, n, base))
        return false;
    int phase = phase_of(s, group, n, base, map);
    if (phase < 0)
        return false;
    for (int i = 0; i < n->sources; i++) {
        int other = base[i] < 0 ? -1 : s->p->value[base[i]].group;
        if (other >= 0 && other != group && mfi_absorb(s, other, group, n, map))
            continue;
        if (other != group)
            read_from_memory(s, group, n->src[i], false);
    }
    join(s->p, group, node, map, phase);
    qsort(s->p->group[group].node, (size_t)s->p->group[group].nodes, sizeof(int), insertion_sorted);
    return true;
}

/* A map too small for this node's shape is computed anew at each of the node's points, if nothing else needs it. */
static mf_status place_elementwise(mfi_grouping *s, int node)
{
    if (join_elementwise(s, node))
        return MF_OK;
    const mfi_node *n = &s->g->node[node];
    int group = new_group(s->p, MFI_MAP, n);
    if (group < 0)
        return MFI_NO_MEMORY(sizeof(mfi_group));
    int8_t map[MF_MAX_DIMS], operand[MF_MAX_DIMS];
    identity_map(n, map);
    for (int i = 0; i < n->sources; i++) {
        int base = s->fuse ? mfi_operand_value(s, n->src[i], operand) : -1;
        if (base >= 0 && mfi_absorb(s, s->p->value[base].group, group, n, map))
            continue;
        if (s->p->value[mfi_view_base(s->g, n->src[i])].group != group)
            read_from_memory(s, group, n->src[i], false);
    }
    join(s->p, group, node, map, 0);
    return MF_OK;
}

/* ---- reductions ---- */

/* Which domain axes a reduction runs over; false if it does not cover each of them fully. */
static bool reduced_axes(const mfi_grouping *s, int group, const mfi_node *n, const int8_t *operand, uint32_t *axes)
{
    const mfi_node *x = &s->g->node[n->src[0]];
    const mfi_group *g = &s->p->group[group];
    uint32_t present = 0;
    *axes = 0;
    for (int d = 0; d < x->ndim; d++) {
        if (operand[d] < 0)
            continue;
        present |= 1u << operand[d];
        if (n->u.reduce.axes & 1u << d)
            *axes |= 1u << operand[d];
    }
    for (int d = 0; d < g->ndim; d++) /* a value that repeats over an axis of the domain cannot be summed over it */
        if (g->shape[d] != 1 && !(present & 1u << d))
            return false;
    for (int d = 0; d < x->ndim; d++) /* nor can a broadcast axis, which the domain lacks, be summed or kept */
        if (operand[d] < 0 && x->shape[d] != 1)
            return false;
    return true;
}

static void result_map(const mfi_node *n, const mfi_node *x, const int8_t *operand, int8_t *map)
{
    memset(map, -1, MF_MAX_DIMS);
    for (int d = 0, k = 0; d < x->ndim; d++) {
        bool reduced = n->u.reduce.axes & 1u << d;
        if (!reduced)
            map[k] = operand[d];
        k += !reduced || n->u.reduce.keepdims;
    }
}

/* References to `node` that no node of its group makes. */
static int uses_elsewhere(const mfi_grouping *s, int node)
{
    const mfi_group *g = &s->p->group[s->p->value[node].group];
    int uses = s->uses[node];
    for (int i = 0; i < g->nodes; i++)
        for (int j = 0; j < s->g->node[g->node[i]].sources; j++)
            uses -= mfi_view_base(s->g, s->g->node[g->node[i]].src[j]) == node;
    return uses;
}

/* The one value of its own group that an elementwise node reads; -1: none, or several. */
static int only_source(const mfi_grouping *s, int node)
{
    const mfi_node *n = &s->g->node[node];
    int source = -1;
    for (int i = 0; i < n->sources; i++) {
        int base = mfi_view_base(s->g, n->src[i]);
        if (s->p->value[base].group != s->p->value[node].group || base == source)
            continue;
        if (source >= 0)
            return -1;
        source = base;
    }
    return source;
}

static void leave(mfi_partition *p, int node)
{
    mfi_group *g = &p->group[p->value[node].group];
    int kept = 0;
    for (int i = 0; i < g->nodes; i++)
        if (g->node[i] != node)
            g->node[kept++] = g->node[i];
    g->nodes = kept;
    p->value[node].group = -1;
}

/* What only a reduction reads of an anchor's group, as a square, need not cross memory beside the value that it is made of, where
 * that does in any case: it moves to the reduction. */
static mf_status sink(mfi_grouping *s, int node)
{
    const mfi_node *n = &s->g->node[node];
    mfi_value *v = &s->p->value[node];
    bool elementwise = n->kind == MFI_N_APPLY || n->kind == MFI_N_CAST;
    if (v->group < 0 || s->p->group[v->group].anchor == MFI_MAP || !elementwise || s->uses[node] != 1 || v->rounded ||
        v->wide)
        return MF_OK;
    int source = only_source(s, node);
    if (source < 0 || uses_elsewhere(s, source) == 0)
        return MF_OK;
    int group = new_group(s->p, MFI_MAP, n);
    if (group < 0)
        return MFI_NO_MEMORY(sizeof(mfi_group));
    int8_t map[MF_MAX_DIMS];
    leave(s->p, node);
    for (int i = 0; i < n->sources; i++)
        read_from_memory(s, group, n->src[i], false);
    identity_map(n, map);
    join(s->p, group, node, map, 0);
    return MF_OK;
}

static mf_status place_reduce(mfi_grouping *s, int node)
{
    const mfi_node *n = &s->g->node[node], *x = &s->g->node[n->src[0]];
    int8_t operand[MF_MAX_DIMS], map[MF_MAX_DIMS];
    uint32_t axes;
    if (s->fuse && mfi_operand_value(s, n->src[0], operand) >= 0)
        MF_TRY(sink(s, mfi_view_base(s->g, n->src[0])));
    int base = s->fuse ? mfi_operand_value(s, n->src[0], operand) : -1;
    int group = base < 0 ? -1 : s->p->value[base].group;
    const mfi_group *g = group < 0 ? NULL : &s->p->group[group];
    bool joins = g && g->anchor == MFI_MAP && g->nodes + 1 < MFI_GROUP_NODES &&
                 s->p->value[base].phase < GROUP_PHASES - 1 && reduced_axes(s, group, n, operand, &axes) &&
                 (!g->phases || g->reduced == axes);
    int phase = joins ? s->p->value[base].phase + 1 : 1;
    if (!joins) {
        group = new_group(s->p, MFI_MAP, x);
        if (group < 0)
            return MFI_NO_MEMORY(sizeof(mfi_group));
        if (n->u.reduce.op == MF_MAX || n->u.reduce.op == MF_MIN)
            keep_wide(s, mfi_view_base(s->g, n->src[0]));
        read_from_memory(s, group, n->src[0], false);
        for (int d = 0; d < MF_MAX_DIMS; d++)
            operand[d] = (int8_t)(d < x->ndim ? d : -1);
        axes = n->u.reduce.axes;
    }
    s->p->group[group].reduced = axes;
    result_map(n, x, operand, map);
    join(s->p, group, node, map, phase);
    return MF_OK;
}

/* ---- anchors ---- */

static mf_status place_anchor(mfi_grouping *s, int node)
{
    const mfi_node *n = &s->g->node[node];
    mfi_anchor anchor = n->kind == MFI_N_MATMUL   ? MFI_MATMUL
                        : n->kind == MFI_N_FFT    ? MFI_FFT
                        : n->kind == MFI_N_FACTOR ? MFI_FACTOR
                                                  : MFI_SOLVE;
    int group = new_group(s->p, anchor, n);
    if (group < 0)
        return MFI_NO_MEMORY(sizeof(mfi_group));
    s->p->group[group].anchor_node = node;
    for (int i = 0; i < n->sources; i++)
        read_from_memory(s, group, n->src[i], true);
    int8_t map[MF_MAX_DIMS];
    identity_map(n, map);
    join(s->p, group, node, map, 0);
    return MF_OK;
}

static mf_status place(mfi_grouping *s, int node)
{
    const mfi_node *n = &s->g->node[node];
    switch (n->kind) {
    case MFI_N_APPLY:
    case MFI_N_CAST:
        return place_elementwise(s, node);
    case MFI_N_REDUCE:
        return place_reduce(s, node);
    case MFI_N_MATMUL:
    case MFI_N_FFT:
    case MFI_N_SOLVE:
    case MFI_N_FACTOR:
        return place_anchor(s, node);
    case MFI_N_RESULT:
        s->p->value[node].group = s->p->value[n->src[0]].group;
        s->p->value[node].rounded = true;
        return MF_OK;
    default:
        return MF_OK;
    }
}

/* Groups in an order in which each comes after those it depends on. */
static void sort_groups(mfi_partition *p)
{
    for (int round = 0; round < p->groups; round++) {
        for (int k = 0; k < p->groups; k++) {
            bool ready = !p->group[k].dead;
            for (int j = 0; ready && j < p->ordered; j++)
                ready = p->order[j] != k;
            for (int j = 0; ready && j < p->groups; j++) {
                bool done = p->group[j].dead || !mfi_depends(p, k, j);
                for (int i = 0; !done && i < p->ordered; i++)
                    done = p->order[i] == j;
                ready = done;
            }
            if (ready)
                p->order[p->ordered++] = k;
        }
    }
}

static int *count_uses(const mf_graph *g)
{
    int *uses = mfi_calloc((size_t)g->count, sizeof *uses);
    for (int i = 0; uses && i < g->count; i++)
        for (int s = 0; g->node[i].kind != MFI_N_VIEW && s < g->node[i].sources; s++)
            uses[mfi_view_base(g, g->node[i].src[s])]++;
    for (int o = 0; uses && o < g->outputs; o++)
        uses[g->output[o]]++;
    return uses;
}

mf_status mfi_partition_new(mfi_partition **out, const mf_graph *g, int flags)
{
    *out = NULL;
    mfi_partition *p = mfi_calloc(1, sizeof *p);
    int *uses = count_uses(g);
    if (!p || !uses) {
        mf_free(p);
        mf_free(uses);
        return MFI_NO_MEMORY(g->count);
    }
    p->g = g;
    p->words = (g->count + 63) / 64;
    p->group = mfi_calloc((size_t)g->count, sizeof *p->group);
    p->value = mfi_calloc((size_t)g->count, sizeof *p->value);
    p->order = mfi_calloc((size_t)g->count, sizeof *p->order);
    mf_status status = p->group && p->value && p->order ? MF_OK : MFI_NO_MEMORY(g->count);
    mfi_grouping s = {p, g, uses, !(flags & MF_PLAN_NO_FUSION)};
    for (int i = 0; status == MF_OK && i < g->count; i++)
        p->value[i].group = -1;
    for (int i = 0; status == MF_OK && i < g->count; i++)
        status = place(&s, i);
    for (int o = 0; status == MF_OK && o < g->outputs; o++)
        p->value[g->output[o]].rounded = true;
    mf_free(uses);
    if (status != MF_OK) {
        mfi_partition_free(p);
        return status;
    }
    sort_groups(p);
    *out = p;
    return MF_OK;
}

void mfi_partition_free(mfi_partition *p)
{
    if (!p)
        return;
    for (int i = 0; p->group && i < p->groups; i++) {
        mf_free(p->group[i].node);
        mf_free(p->group[i].depends);
    }
    mf_free(p->group);
    mf_free(p->value);
    mf_free(p->order);
    mf_free(p);
}
