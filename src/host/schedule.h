/* From a graph to steps: normalise.c cleans it, partition.c groups nodes, lower.c writes each group as a problem. */
#ifndef MFI_SCHEDULE_H
#define MFI_SCHEDULE_H

#include "nodes.h"

typedef enum mfi_buffer_kind { MFI_BUF_INPUT, MFI_BUF_OUTPUT, MFI_BUF_TEMP } mfi_buffer_kind;

/* A slot: memory that steps read and write. */
typedef struct mfi_buffer {
    mfi_buffer_kind kind;
    mf_dtype dtype;
    int ndim;
    int alignment;
    int64_t shape[MF_MAX_DIMS], strides[MF_MAX_DIMS];
    int first, last; /* TEMP: steps that write first and read last */
    size_t offset;   /* TEMP: in the workspace */
} mfi_buffer;

typedef struct mfi_schedule {
    int steps, buffers, inputs, outputs;
    mfi_problem **step;
    mfi_buffer *buffer; /* inputs, outputs, temporaries */
} mfi_schedule;

/* With the flags of a plan: transforms of several axes are done axis by axis. */
enum { MFI_AXES_APART = 1 << 16 };

/* bindings: inputs then outputs, strides and data pointers of what will be bound (data may be NULL: fully aligned). */
mf_status mfi_schedule_new(mfi_schedule **out, const mf_graph *g, const mf_tensor *bindings, int flags);
void mfi_schedule_free(mfi_schedule *s);
/* Add a contiguous temporary; its slot, or -1 without memory. */
int mfi_schedule_temp(mfi_schedule *s, mf_dtype dtype, int ndim, const int64_t *shape);
/* Insert a step at `index`, which the schedule then owns. */
mf_status mfi_schedule_insert(mfi_schedule *s, int index, mfi_problem *p);

/* normalise.c: a copy without dead nodes, in which every output and every anchor operand is a computed node, an input
 * or a view with strides, and roundings of MF_PLAN_MATCH_UNFUSED are casts. */
mf_status mfi_normalise(mf_graph **out, const mf_graph *g, const mf_tensor *bindings, int flags);
/* axes.c: is there a transform of several axes; one of them, reading `source` of g, as a chain of one for each axis. */
bool mfi_has_axes(const mf_graph *g);
mf_status mfi_fft_by_axes(int32_t *out, mf_graph *g, const mf_graph *old, int node, int32_t source);
/* Values are made where they are used: a constant, an arange. */
bool mfi_node_has_no_memory(const mfi_node *node);
/* The node below a chain of views. */
int mfi_view_base(const mf_graph *g, int node);
/* Strides and offset of `node`, a chain of views over its base laid out with `strides`; false if a reshape needs a
 * copy. */
bool mfi_view_resolve(const mf_graph *g, int node, const int64_t *base_strides, int64_t *offset, int64_t *strides);
/* lower_arange.c: a view of an arange whose axes are `axes` of the problem; the value, or -1 if the chain is full. */
int16_t mfi_lower_arange(mfi_chain *c, const mf_graph *g, int node, const int8_t *axes, int level);
/* The other way round: strides of the base's own axes where a view of it lies as `bound` says; false if there are none. */
bool mfi_view_store(const mf_graph *g, int node, const int64_t *bound, int64_t *strides);
bool mfi_view_is_unit(const mf_graph *g, int node); /* a view that only adds, drops or expands axes of length 1 */

/* partition.c: node → group. */
typedef struct mfi_value {
    int group;               /* -1: leaf or view */
    int8_t map[MF_MAX_DIMS]; /* node axis → domain axis of its group, -1 for none */
    int8_t phase;            /* reductions below it */
    bool rounded, wide;      /* stored for others: in its dtype; in its compute type */
} mfi_value;

typedef struct mfi_group {
    mfi_anchor anchor;
    int anchor_node; /* MATMUL, FFT, SOLVE; -1 for MAP */
    int ndim, nodes, phases;
    int64_t shape[MF_MAX_DIMS];
    uint32_t reduced;  /* domain axes that its reductions run over */
    int *node;         /* in graph order */
    uint64_t *depends; /* groups whose results it reads, transitively */
    bool dead;         /* merged into another */
} mfi_group;

typedef struct mfi_partition {
    const mf_graph *g;
    int groups, words;
    mfi_group *group;
    mfi_value *value; /* per node */
    int *order;       /* groups in an order that respects depends */
    int ordered;
} mfi_partition;

mf_status mfi_partition_new(mfi_partition **out, const mf_graph *g, int flags);
void mfi_partition_free(mfi_partition *p);
bool mfi_node_exact(const mfi_node *node); /* its dtype holds what its compute type does */

/* lower.c */
mf_status mfi_lower(mfi_schedule *s, const mfi_partition *p, const mf_tensor *bindings, int flags);
/* collapse.c: drop unit dims, merge dims that are contiguous for every operand. */
void mfi_collapse(mfi_problem *p);

/* pair.c: steps `index` and index + 1 as one FFT_PAIR, or NULL in *out: the second is no transform of one axis, or not of
 * what the first computes for it alone. */
mf_status mfi_pair(mfi_problem **out, const mfi_schedule *s, int index);
/* Put the pair in the place of steps `index` and index + 1; or two steps in the place of the pair. */
void mfi_schedule_join(mfi_schedule *s, int index, mfi_problem *pair);
mf_status mfi_schedule_part(mfi_schedule *s, int index);

/* lower_solve.c: p, whose domain is set, as a map that stores zeros there. */
void mfi_zero_map(mfi_problem *p, const mfi_view *view);
/* pair_solve.c: Cholesky step `index` and step *reader, which alone uses the factor, as one, or NULL in *out. Put it in the
 * place of both. */
mf_status mfi_pair_solve(mfi_problem **out, int *reader, const mfi_schedule *s, int index);
mf_status mfi_schedule_join_solve(mfi_schedule *s, int index, int reader, mfi_problem *pair);

/* pair_matmul.c: the same elements of one slot, as a matrix of this shape. */
bool mfi_same_matrix(const mfi_view *a, const mfi_view *b, const int64_t *shape); /* of two dims */
/* pair_matmul.c: step `index` with step *maker, a product of the same left factor that it alone reads, or NULL in *out; `round`:
 * what it reads as it was stored. Put it in the place of both with mfi_schedule_absorb(s, index, *maker, pair);
 * mfi_schedule_part_beside parts it again. */
mf_status mfi_pair_matmul(mfi_problem **out, int *maker, const mfi_schedule *s, int index, bool round);

/* pair_rows.c: step `product` with step *reader, which reduces its result along rows, or NULL in *out. As mfi_beside's, with
 * nreduce 1. */
mf_status mfi_pair_rows(mfi_problem **out, int *reader, const mfi_schedule *s, int product);

/* beside.c: step `product` with what step `reduction` makes of its result or of one of its operands, or NULL in *out. Put it
 * in the place of both; or both in its place. */
mf_status mfi_beside(mfi_problem **out, const mfi_schedule *s, int product, int reduction);
void mfi_schedule_absorb(mfi_schedule *s, int product, int reduction, mfi_problem *joined);
mf_status mfi_schedule_part_beside(mfi_schedule *s, int index);

/* together.c: `count` steps from `first` on as one TOGETHER, or NULL in *out: they are not of one batch, none solves, or one is too
 * large. Put it in their place; or them in its place. */
bool mfi_together_suits(const mfi_problem *p,
                        int64_t batch); /* a step, to be done for some of so many items by themselves */
mf_status mfi_together_of(mfi_problem **out, const mfi_schedule *s, int first, int count);
void mfi_schedule_join_together(mfi_schedule *s, int first, int count, mfi_problem *together);
mf_status mfi_schedule_part_together(mfi_schedule *s, int index);

/* lay.c: another layout of the temporary that a product stores and transform `reader` alone reads, with its axis in one piece;
 * false: it lies so, or cannot. mfi_lay takes that layout, and the next time the first one again. */
typedef struct mfi_laid {
    int writer; /* step */
    mfi_view *read, *stored, other[2];
} mfi_laid;
bool mfi_lay_along(mfi_laid *out, const mfi_schedule *s, int reader);
void mfi_lay(mfi_laid *l);

/* How many operands of a step are of this slot. */
int mfi_slot_uses(const mfi_problem *p, int slot);
int mfi_schedule_uses(const mfi_schedule *s, int slot); /* of all steps */
/* A temporary that one step writes and one reads. */
bool mfi_is_private(const mfi_schedule *s, int slot);
/* Where the chain's one store goes; NULL if it has several. */
const mfi_view *mfi_only_store(const mfi_problem *p);
/* narrow.c: how many of a transform's first terms, of each signal, other steps read; all of them where that is unknown. */
int64_t mfi_terms_read(const mfi_schedule *s, int index);
/* Narrow transform `index` and the map after it, which alone reads its result, as one, or NULL in *out. */
mf_status mfi_narrow_with(mfi_problem **out, const mfi_schedule *s, int index);
/* Narrow transform `index` as one that stores all terms, where there is room for them; the rest of its chain becomes a map. */
mf_status mfi_widen(mfi_schedule *s, int index);

/* split.c: cut p's chain after value `at`: p computes up to there into `slot`, *rest does what follows. */
mf_status mfi_split(mfi_problem **rest, mfi_problem *p, int at, int slot, mf_dtype dtype);
/* A map's one stored value times `scale`; false: the chain is full, or it stores several. */
bool mfi_scale_stored(mfi_problem *map, double scale);
bool mfi_can_split(const mfi_problem *p, int at); /* only value `at` crosses */
/* The dtype that holds value `at` without changing what follows: its compute type, or the final dtype where only
 * monotone operations that commute with rounding follow. */
mf_dtype mfi_split_dtype(const mfi_problem *p, int at);

#endif
