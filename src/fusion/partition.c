/* Group nodes into steps. One pass in graph order: each computed node joins a group of one of its operands if its axes
 * line up with that group's domain and no cycle arises; otherwise it starts a group and reads its operands from memory.
 * A group has at most one anchor, and its reductions all run over the same axes of its domain. */
#include "schedule.h"

#include <stdlib.h>

enum { GROUP_NODES = 24, GROUP_PHASES = 4, MAX_GROUP_LOADS = 18 };

/* A reduction to few rows ends its group: what follows over all points would run on a few blocks only. */
enum { FEW_ROWS = 128, LONG_ROW = 16384 };

typedef struct pass {
    mfi_partition *p;
    const mf_graph *g;
    const int *uses; /* consumers of each node, outputs included */
    bool fuse;
} pass;

static bool depends(const mfi_partition *p, int a, int b) /* does group a need group b? */
{
    return p->group[a].depends[b / 64] >> (b % 64) & 1;
}

/* Group a reads what group b computes. Keeps `depends` transitive. */
static void add_dependency(mfi_partition *p, int a, int b)
{
    if (a == b || depends(p, a, b))
        return;
    for (int k = 0; k < p->groups; k++) {
        if (k != a && !depends(p, k, a))
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
    group->node = mfi_alloc(sizeof(int) * GROUP_NODES);
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
    if (g->nodes < GROUP_NODES)
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
static int operand_value(const pass *s, int node, int8_t *map)
{
    const mfi_node *n = &s->g->node[node];
    if (n->kind != MFI_N_VIEW) {
        const mfi_value *v = &s->p->value[node];
        memcpy(map, v->map, MF_MAX_DIMS);
        bool solver = n->kind == MFI_N_SOLVE || n->kind == MFI_N_FACTOR || n->kind == MFI_N_RESULT;
        return v->group >= 0 && !solver ? node : -1;
    }
    int8_t below[MF_MAX_DIMS];
    int base = mfi_view_is_unit(s->g, node) ? operand_value(s, n->src[0], below) : -1;
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

/* Everything reads this operand from memory. */
static void read_from_memory(pass *s, int reader, int node, bool rounded)
{
    int base = mfi_view_base(s->g, node);
    mfi_value *v = &s->p->value[base];
    if (v->group < 0)
        return;
    if (rounded || mfi_node_exact(&s->g->node[base]))
        v->rounded = true;
    else
        v->wide = true;
    add_dependency(s->p, reader, v->group);
}

/* Line up the axes of elementwise node n with the domain of `group`, given which operands are in it. An axis of an
 * operand in the group must land where that operand has it; other axes take a free domain axis of their length, in
 * order. */
static bool align(const pass *s, int group, const mfi_node *n, const int *in_group, int8_t operand_maps[3][MF_MAX_DIMS],
                  int8_t *map)
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

static int64_t extent(const mfi_group *g, uint32_t axes)
{
    int64_t n = 1;
    for (int d = 0; d < g->ndim; d++)
        n *= axes & 1u << d ? g->shape[d] : 1;
    return n;
}

/* May values over the reduced axes use row values of this group? Not if its rows are few and long. */
static bool rows_feed_points(const mfi_group *g)
{
    return extent(g, ~g->reduced) >= FEW_ROWS || extent(g, g->reduced) <= LONG_ROW;
}

static bool covers(const int8_t *map, const mfi_node *n, uint32_t axes)
{
    for (int d = 0; d < n->ndim; d++)
        if (map[d] >= 0 && (axes & 1u << map[d]))
            return true;
    return false;
}

/* All values of `group` are used by its own nodes and by `node` only. */
static bool private_to(const pass *s, int group, int node)
{
    const mfi_group *g = &s->p->group[group];
    for (int i = 0; i < g->nodes; i++) {
        int uses = s->uses[g->node[i]];
        for (int k = 0; k < g->nodes + 1; k++) {
            const mfi_node *reader = &s->g->node[k < g->nodes ? g->node[k] : node];
            for (int j = 0; j < reader->sources; j++)
                uses -= mfi_view_base(s->g, reader->src[j]) == g->node[i];
        }
        if (uses > 0 || s->p->value[g->node[i]].rounded || s->p->value[g->node[i]].wide)
            return false;
    }
    return true;
}

/* Another group than `reader` reads what `group` computes. */
static bool read_by_others(const mfi_partition *p, int group, int reader)
{
    for (int k = 0; k < p->groups; k++)
        if (k != reader && !p->group[k].dead && depends(p, k, group))
            return true;
    return false;
}

/* An operand of n is a view that moves elements of a value of `group`: that value has to be in memory first. */
static bool read_moved(const pass *s, int group, const mfi_node *n)
{
    int8_t unused[MF_MAX_DIMS];
    for (int i = 0; i < n->sources; i++)
        if (s->p->value[mfi_view_base(s->g, n->src[i])].group == group && operand_value(s, n->src[i], unused) < 0)
            return true;
    return false;
}

/* Can group `from`, a plain map, be computed inside `into` for node n? If others use its values too, it must have the
 * same points, so that they can still be stored. */
static bool absorbable(const pass *s, int from, int into, const mfi_node *n)
{
    const mfi_group *f = &s->p->group[from], *t = &s->p->group[into];
    if (f->anchor != MFI_MAP || f->phases || f->nodes + t->nodes + 1 > GROUP_NODES || depends(s->p, from, into) ||
        depends(s->p, into, from) || read_moved(s, from, n))
        return false;
    return private_to(s, from, (int)(n - s->g->node)) ||
           (extent(f, ~0u) == extent(t, ~0u) && !read_by_others(s->p, from, into));
}

/* Where the domain axes of `from` lie in the group whose axes `map` gives for n, as n's operands see them; false if two
 * operands see them differently, or not all. */
static bool relate(const pass *s, int from, const mfi_node *n, const int8_t *map, int8_t *axis_of)
{
    const mfi_group *f = &s->p->group[from];
    memset(axis_of, -1, MF_MAX_DIMS);
    for (int i = 0; i < n->sources; i++) {
        const mfi_node *x = &s->g->node[n->src[i]];
        int8_t operand[MF_MAX_DIMS];
        int base = operand_value(s, n->src[i], operand);
        if (base < 0 || s->p->value[base].group != from)
            continue;
        for (int d = 0; d < x->ndim; d++) {
            int axis = operand[d], to = map[d + n->ndim - x->ndim];
            if (axis < 0 || f->shape[axis] == 1)
                continue;
            if (axis_of[axis] >= 0 && axis_of[axis] != to)
                return false;
            axis_of[axis] = (int8_t)to;
        }
    }
    for (int d = 0; d < f->ndim; d++)
        if (f->shape[d] != 1 && axis_of[d] < 0)
            return false;
    return true;
}

/* Merge the plain map `from` into `into`, each value keeping its place relative to n's axes. */
static bool absorb(pass *s, int from, int into, const mfi_node *n, const int8_t *map)
{
    mfi_group *f = &s->p->group[from], *t = &s->p->group[into];
    int8_t axis_of[MF_MAX_DIMS];
    if (!absorbable(s, from, into, n) || !relate(s, from, n, map, axis_of))
        return false;
    for (int i = 0; i < f->nodes; i++) {
        mfi_value *v = &s->p->value[f->node[i]];
        v->group = into;
        for (int d = 0; d < MF_MAX_DIMS; d++)
            v->map[d] = (int8_t)(v->map[d] < 0 ? -1 : axis_of[v->map[d]]);
        t->node[t->nodes++] = f->node[i];
    }
    for (int w = 0; w < s->p->words; w++)
        t->depends[w] |= f->depends[w];
    f->dead = true;
    f->nodes = 0;
    return true;
}

static int insertion_sorted(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

/* Loads that a group would have with this node, roughly: operands of its nodes that come from outside. */
static int load_count(const pass *s, int group, const mfi_node *n)
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
static int candidate(const pass *s, const mfi_node *n, const int *base)
{
    int best = -1;
    for (int i = 0; i < n->sources; i++) {
        int group = base[i] < 0 ? -1 : s->p->value[base[i]].group;
        if (group < 0 || group == best)
            continue;
        bool anchored = s->p->group[group].anchor != MFI_MAP || s->p->group[group].phases;
        bool best_anchored = best >= 0 && (s->p->group[best].anchor != MFI_MAP || s->p->group[best].phases);
        if (best < 0 || depends(s->p, group, best) || (anchored && !best_anchored && !depends(s->p, best, group)))
            best = group;
    }
    return best;
}

/* Would reading the operands that are outside `group`, or behind a view that moves elements, close a cycle? */
static bool closes_cycle(const pass *s, int group, const mfi_node *n, const int *base)
{
    for (int i = 0; i < n->sources; i++) {
        int b = mfi_view_base(s->g, n->src[i]);
        int other = s->p->value[b].group;
        if (other >= 0 && (other == group ? base[i] < 0 : depends(s->p, other, group)))
            return true;
    }
    return false;
}

/* Phase of node n in `group`, or -1 if a row value would feed points that must not be fused with it. */
static int phase_of(const pass *s, int group, const mfi_node *n, const int *base, const int8_t *map)
{
    int phase = 0;
    for (int i = 0; i < n->sources; i++)
        if (base[i] >= 0 && s->p->value[base[i]].group == group && s->p->value[base[i]].phase > phase)
            phase = s->p->value[base[i]].phase;
    const mfi_group *g = &s->p->group[group];
    return phase && covers(map, n, g->reduced) && !rows_feed_points(g) ? -1 : phase;
}

static bool join_elementwise(pass *s, int node)
{
    const mfi_node *n = &s->g->node[node];
    int base[3], in_group[3];
    int8_t maps[3][MF_MAX_DIMS], map[MF_MAX_DIMS];
    for (int i = 0; i < n->sources; i++)
        base[i] = operand_value(s, n->src[i], maps[i]);
    int group = s->fuse ? candidate(s, n, base) : -1;
    if (group < 0 || s->p->group[group].nodes + 1 >= GROUP_NODES || load_count(s, group, n) > MAX_GROUP_LOADS)
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
        if (other >= 0 && other != group && absorb(s, other, group, n, map))
            continue;
        if (other != group)
            read_from_memory(s, group, n->src[i], false);
    }
    join(s->p, group, node, map, phase);
    qsort(s->p->group[group].node, (size_t)s->p->group[group].nodes, sizeof(int), insertion_sorted);
    return true;
}

/* A map too small for this node's shape is computed anew at each of the node's points, if nothing else needs it. */
static mf_status place_elementwise(pass *s, int node)
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
        int base = s->fuse ? operand_value(s, n->src[i], operand) : -1;
        if (base >= 0 && absorb(s, s->p->value[base].group, group, n, map))
            continue;
        if (s->p->value[mfi_view_base(s->g, n->src[i])].group != group)
            read_from_memory(s, group, n->src[i], false);
    }
    join(s->p, group, node, map, 0);
    return MF_OK;
}

/* ---- reductions ---- */

/* Which domain axes a reduction runs over; false if it does not cover each of them fully. */
static bool reduced_axes(const pass *s, int group, const mfi_node *n, const int8_t *operand, uint32_t *axes)
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

static mf_status place_reduce(pass *s, int node)
{
    const mfi_node *n = &s->g->node[node], *x = &s->g->node[n->src[0]];
    int8_t operand[MF_MAX_DIMS], map[MF_MAX_DIMS];
    uint32_t axes;
    int base = s->fuse ? operand_value(s, n->src[0], operand) : -1;
    int group = base < 0 ? -1 : s->p->value[base].group;
    const mfi_group *g = group < 0 ? NULL : &s->p->group[group];
    bool joins = g && g->anchor == MFI_MAP && g->nodes + 1 < GROUP_NODES &&
                 s->p->value[base].phase < GROUP_PHASES - 1 && reduced_axes(s, group, n, operand, &axes) &&
                 (!g->phases || g->reduced == axes);
    int phase = joins ? s->p->value[base].phase + 1 : 1;
    if (!joins) {
        group = new_group(s->p, MFI_MAP, x);
        if (group < 0)
            return MFI_NO_MEMORY(sizeof(mfi_group));
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

static mf_status place_anchor(pass *s, int node)
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

static mf_status place(pass *s, int node)
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
                bool done = p->group[j].dead || !depends(p, k, j);
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
    pass s = {p, g, uses, !(flags & MF_PLAN_NO_FUSION)};
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
