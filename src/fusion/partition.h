/* Parts of the grouping of nodes: partition.c places them, partition_absorb.c merges maps into what reads them. */
#ifndef MFI_PARTITION_H
#define MFI_PARTITION_H

#include "schedule.h"

enum { MFI_GROUP_NODES = 24 };

typedef struct mfi_grouping {
    mfi_partition *p;
    const mf_graph *g;
    const int *uses; /* consumers of each node, outputs included */
    bool fuse;
} mfi_grouping;

static inline bool mfi_depends(const mfi_partition *p, int a, int b) /* does group a need group b? */
{
    return p->group[a].depends[b / 64] >> (b % 64) & 1;
}

static inline int64_t mfi_extent(const mfi_group *g, uint32_t axes)
{
    int64_t n = 1;
    for (int d = 0; d < g->ndim; d++)
        n *= axes & 1u << d ? g->shape[d] : 1;
    return n;
}

/* The computed node behind an operand, through views that only touch unit axes; the map from the operand's axes to the
 * domain of that node's group. -1 if the operand is a leaf or sits behind a view that moves elements. */
int mfi_operand_value(const mfi_grouping *s, int node, int8_t *map);
/* Merge the plain map `from` into `into`, each value keeping its place relative to n's axes. */
bool mfi_absorb(mfi_grouping *s, int from, int into, const mfi_node *n, const int8_t *map);

#endif
