/* A plain map goes into the group that reads it. */
#include "partition.h"

/* All values of `group` are used by its own nodes and by `node` only. */
static bool private_to(const mfi_grouping *s, int group, int node)
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
        if (k != reader && !p->group[k].dead && mfi_depends(p, k, group))
            return true;
    return false;
}

/* An operand of n is a view that moves elements of a value of `group`: that value has to be in memory first. */
static bool read_moved(const mfi_grouping *s, int group, const mfi_node *n)
{
    int8_t unused[MF_MAX_DIMS];
    for (int i = 0; i < n->sources; i++)
        if (s->p->value[mfi_view_base(s->g, n->src[i])].group == group && mfi_operand_value(s, n->src[i], unused) < 0)
            return true;
    return false;
}

/* Can group `from`, a plain map, be computed inside `into` for node n? If others use its values too, it must have the
 * same points, so that they can still be stored. */
static bool absorbable(const mfi_grouping *s, int from, int into, const mfi_node *n)
{
    const mfi_group *f = &s->p->group[from], *t = &s->p->group[into];
    if (f->anchor != MFI_MAP || f->phases || f->nodes + t->nodes + 1 > MFI_GROUP_NODES ||
        mfi_depends(s->p, from, into) || mfi_depends(s->p, into, from) || read_moved(s, from, n))
        return false;
    return private_to(s, from, (int)(n - s->g->node)) ||
           (mfi_extent(f, ~0u) == mfi_extent(t, ~0u) && !read_by_others(s->p, from, into));
}

/* Where the domain axes of `from` lie in the group whose axes `map` gives for n, as n's operands see them; false if two
 * operands see them differently, or not all. */
static bool relate(const mfi_grouping *s, int from, const mfi_node *n, const int8_t *map, int8_t *axis_of)
{
    const mfi_group *f = &s->p->group[from];
    memset(axis_of, -1, MF_MAX_DIMS);
    for (int i = 0; i < n->sources; i++) {
        const mfi_node *x = &s->g->node[n->src[i]];
        int8_t operand[MF_MAX_DIMS];
        int base = mfi_operand_value(s, n->src[i], operand);
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
bool mfi_absorb(mfi_grouping *s, int from, int into, const mfi_node *n, const int8_t *map)
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
