/* What lower.c shares with lower_solve.c: a group being written as a problem. */
#ifndef MFI_LOWER_H
#define MFI_LOWER_H

#include "schedule.h"

typedef struct lowering {
    mfi_schedule *s;
    const mfi_partition *p;
    const mf_graph *g;
    const mf_tensor *bindings;
    int *rounded, *wide; /* node → slot that holds it, -1 */
    int flags;
    /* of the group being lowered */
    const mfi_group *group;
    mfi_problem *problem;
    int16_t *value;           /* node → instruction, -1 */
    int8_t axis[MF_MAX_DIMS]; /* the group's domain axis → the problem's */
    int failed;
} lowering;

/* Where node (a leaf, stored value or a chain of views over one) lies, with its own axes. */
void mfi_lower_view(lowering *l, int node, bool rounded, mfi_view *view);

/* lower_solve.c: the problem of an anchor that has no chain. */
void mfi_lower_solve(lowering *l, int node);
void mfi_lower_factor(lowering *l, int node);

#endif
